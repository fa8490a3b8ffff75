/* Files of a data set, as bytes in memory. */
#ifndef TR_DATA_FILE_H
#define TR_DATA_FILE_H

#include "data.h"

/* No file of the sets that are read here comes near to it. */
#define TR_FILE_LEN_MAX ((size_t)1 << 30)

typedef struct tr_bytes {
    uint8_t *at; /* to be freed */
    size_t len;
} tr_bytes;

/* Whether there is something of this name. */
int tr_file_exists(const char *path);

/* The file as it is. 0, or -1 and a sentence that names it. */
int tr_file_read(tr_bytes *out, const char *path, char why[TR_WHY]);

/* The file, unpacked if it is gzipped, which its content tells and not its name. */
int tr_file_read_unpacked(tr_bytes *out, const char *path, char why[TR_WHY]);

#endif
