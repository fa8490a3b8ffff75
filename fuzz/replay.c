/* Runs a fuzz target without a fuzzer, so that every compiler and every preset can: on each file of the directories that
 * are given, on all its beginnings, and with single bytes changed at places spread over it. Under a sanitizer, which makes it ten
 * times as slow, on all short beginnings and one of five of the others. */
#include "check.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

enum { CHANGED_PLACES = 48, PATH_CAP = 4096, SHORT = 64 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 5 };
#else
enum { STRIDE = 1 };
#endif

static size_t input_n;

/* Runs a copy of the exact length, so that a sanitizer detects any access past its end. */
static void run(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len == 0 ? 1 : len);
    PROMISE(copy != NULL, "the machine has memory for a small input");
    memcpy(copy, bytes, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
    input_n++;
}

static void run_changed(uint8_t *bytes, size_t len)
{
    static const uint8_t changes[] = {0x01, 0x80, 0xff}; /* bits to flip */
    size_t places = len < CHANGED_PLACES ? len : CHANGED_PLACES;
    for (size_t i = 0; i < places; i++) {
        size_t at = i * len / places;
        for (size_t c = 0; c < sizeof changes; c++) {
            bytes[at] ^= changes[c];
            run(bytes, len);
            bytes[at] ^= changes[c];
        }
    }
}

static uint8_t *read_file(size_t *len, const char *path)
{
    struct stat facts;
    FILE *file = fopen(path, "rb");
    if (file == NULL || stat(path, &facts) != 0) {
        (void)fprintf(stderr, "%s can not be opened\n", path);
        exit(1);
    }
    *len = (size_t)facts.st_size;
    uint8_t *bytes = malloc(*len + 1);
    if (bytes == NULL || fread(bytes, 1, *len, file) != *len) {
        (void)fprintf(stderr, "%s can not be read\n", path);
        exit(1);
    }
    (void)fclose(file);
    return bytes;
}

static void run_file(const char *path)
{
    size_t len = 0;
    uint8_t *bytes = read_file(&len, path);
    for (size_t n = 0; n < len; n += n < SHORT ? 1 : STRIDE) {
        run(bytes, n);
    }
    run(bytes, len);
    run_changed(bytes, len);
    free(bytes);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_directory(const char *directory)
{
    struct dirent **entries = NULL;
    int entry_n = scandir(directory, &entries, is_visible, alphasort);
    if (entry_n < 0) {
        (void)fprintf(stderr, "%s is not a directory that can be read\n", directory);
        exit(1);
    }
    for (int i = 0; i < entry_n; i++) {
        char path[PATH_CAP];
        (void)snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        run_file(path);
        free(entries[i]);
    }
    free(entries);
}

int main(int argument_n, char **arguments)
{
    for (int i = 1; i < argument_n; i++) {
        run_directory(arguments[i]);
    }
    (void)printf("%zu inputs\n", input_n);
    return input_n == 0 ? 1 : 0;
}
