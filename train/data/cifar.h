/* The binary format of CIFAR-10: records of a label and 32 x 32 pixels in red, green and blue, one plane after the other. */
#ifndef TR_DATA_CIFAR_H
#define TR_DATA_CIFAR_H

#include "data.h"

enum {
    TR_CIFAR_CHANNELS = 3,
    TR_CIFAR_SIDE = 32,
    TR_CIFAR_IMAGE_LEN = TR_CIFAR_CHANNELS * TR_CIFAR_SIDE * TR_CIFAR_SIDE,
    TR_CIFAR_RECORD_LEN = 1 + TR_CIFAR_IMAGE_LEN,
    TR_CIFAR_CLASSES = 10
};

/* The number of records in a file. Returns 0, or -1 and the fault in `why`, worded as the second half of a sentence: no records,
 * part of a record, an invalid label. */
int tr_cifar_records(size_t *out, const uint8_t *src, size_t src_len, char why[TR_WHY]);

#endif
