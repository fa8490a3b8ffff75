/* The idx format of MNIST: a magic number that says type and dimensions, the dimensions, the elements. */
#ifndef TR_DATA_IDX_H
#define TR_DATA_IDX_H

#include "data.h"

enum { TR_IDX_CLASSES = 10, TR_IDX_SIDE_MAX = 256, TR_IDX_COUNT_MAX = 1 << 24 };

typedef struct tr_idx {
    uint32_t n;
    uint32_t height, width; /* of images; 1 and 1 for labels */
    size_t data_at;         /* n x height x width bytes */
} tr_idx;

/* Parses a file. Returns 0, or -1 and the fault in `why`, worded as the second half of a sentence. Strict: the length must match
 * the dimensions, no dimension may be 0, labels must be below TR_IDX_CLASSES. */
int tr_idx_images(tr_idx *out, const uint8_t *src, size_t src_len, char why[TR_WHY]);
int tr_idx_labels(tr_idx *out, const uint8_t *src, size_t src_len, char why[TR_WHY]);

#endif
