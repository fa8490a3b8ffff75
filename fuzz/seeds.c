/* Writes seeds; see seeds.h. */
#include "seeds.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_CAP = 1024 };

static const char *directory;

void set_directory(const char *path)
{
    directory = path;
}

void write_seed(const char *target, const char *name, const void *bytes, size_t len)
{
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", directory, target);
    (void)mkdir(directory, 0777); /* may exist already; otherwise opening the file fails */
    (void)mkdir(path, 0777);
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, target, name);
    FILE *file = fopen(path, "wb");
    bool written = file != NULL && fwrite(bytes, 1, len, file) == len;
    written = file != NULL && fclose(file) == 0 && written;
    PROMISE(written && len < SEED_CAP, "a seed is small and can be written");
}

void add_bytes(draft *d, const void *bytes, size_t len)
{
    PROMISE(len <= sizeof d->bytes - d->len, "a seed is small");
    if (len > 0) {
        memcpy(d->bytes + d->len, bytes, len);
    }
    d->len += len;
}

void add8(draft *d, unsigned value)
{
    add_bytes(d, &(uint8_t){(uint8_t)value}, 1);
}

void add16(draft *d, size_t value)
{
    add8(d, (unsigned)value & 0xff);
    add8(d, (unsigned)(value >> 8) & 0xff);
}

void add32(draft *d, size_t value)
{
    add16(d, value & 0xffff);
    add16(d, value >> 16);
}
