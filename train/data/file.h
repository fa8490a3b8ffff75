/* Files of a data set, as bytes in memory. */
#ifndef TR_DATA_FILE_H
#define TR_DATA_FILE_H

#include "data.h"

/* Larger files are refused; no file of these data sets comes near. */
#define TR_FILE_LEN_MAX ((size_t)1 << 30)

typedef struct tr_bytes {
    uint8_t *at; /* the caller frees it */
    size_t len;
} tr_bytes;

/* Whether the path exists. */
int tr_file_exists(const char *path);

/* Reads a file. Returns 0, or -1 and an error that names it. */
int tr_file_read(tr_bytes *out, const char *path, char why[TR_WHY]);

/* Reads a file, and decompresses it if its content is gzip, whatever its name. */
int tr_file_read_unpacked(tr_bytes *out, const char *path, char why[TR_WHY]);

#endif
