/* Reads a whole file. Only regular files: the length of others is not known in advance. */
#include "data/file.h"

#include "data/gunzip.h"
#include "data/refuse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int tr_file_exists(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0;
}

static int read_open(tr_bytes *out, FILE *file, const char *path, char why[TR_WHY])
{
    struct stat facts;
    if (fstat(fileno(file), &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return tr_data_refuse(why, "'%s' can not be read: it is not an ordinary file", path);
    }
    if (facts.st_size < 0 || (uintmax_t)facts.st_size > TR_FILE_LEN_MAX) {
        return tr_data_refuse(why, "'%s' can not be read: it is longer than %zu bytes", path, TR_FILE_LEN_MAX);
    }
    size_t len = (size_t)facts.st_size;
    uint8_t *bytes = malloc(len + 1); /* malloc(0) may return NULL */
    if (bytes == NULL) {
        return tr_data_refuse_memory(why);
    }
    if (fread(bytes, 1, len, file) != len) {
        free(bytes);
        return tr_data_refuse(why, "'%s' can not be read: it ends or fails before its %zu bytes are read", path, len);
    }
    out->at = bytes;
    out->len = len;
    return 0;
}

int tr_file_read(tr_bytes *out, const char *path, char why[TR_WHY])
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return tr_data_refuse(why, "'%s' can not be opened: %s", path, strerror(errno));
    }
    int status = read_open(out, file, path, why);
    (void)fclose(file); /* nothing was written that could be lost */
    return status;
}

int tr_file_read_unpacked(tr_bytes *out, const char *path, char why[TR_WHY])
{
    tr_bytes packed, plain;
    char reason[TR_WHY];
    if (tr_file_read(&packed, path, why) != 0) {
        return -1;
    }
    if (!tr_is_gzip(packed.at, packed.len)) {
        *out = packed;
        return 0;
    }
    int status = tr_gunzip(&plain.at, &plain.len, packed.at, packed.len, TR_FILE_LEN_MAX, reason);
    free(packed.at);
    if (status != 0) {
        return tr_data_refuse(why, "'%s' can not be unpacked: %.200s", path, reason);
    }
    *out = plain;
    return 0;
}
