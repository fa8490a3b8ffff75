/* What a data set is inside, and who fills it: one file for each kind of set. */
#ifndef TR_DATA_SETS_H
#define TR_DATA_SETS_H

#include "data.h"

enum { TR_CHANNEL_MAX = 3, TR_TEXT_SEQUENCE = 64 };

/* The samples of a split, as bytes: a float would take four times the memory and is made when a batch is. */
typedef struct tr_part {
    size_t n;
    uint8_t *pixels;  /* of images: n x channels x height x width */
    uint8_t *labels;  /* of images: n */
    uint8_t *symbols; /* of text */
    size_t symbol_n;  /* symbols there are */
    size_t usual_n;   /* of images: samples that the set has where it is whole */
    uint64_t hash;    /* of all its bytes as they were read */
} tr_part;

struct tr_data {
    char name[16];
    tr_shape shape;
    tr_part parts[2];                      /* by tr_split */
    float normalised[TR_CHANNEL_MAX][256]; /* what a byte of a channel is for a model */
    uint32_t shift_max;                    /* pixels by which an image may be moved and is still of its class */
    int is_mirrored;                       /* whether the mirror image is of the same class too */
};

/* Each fills shape and parts of an empty set, and how images may be moved. 0, or -1 and a sentence; what was filled until
 * then is freed with the set. `place` is what the spec has behind its colon, or NULL. */
typedef int tr_set_open(tr_data *d, const char *place, char why[TR_WHY]);
tr_set_open tr_set_fashion, tr_set_mnist, tr_set_cifar10, tr_set_text, tr_set_glyphs;

/* normalise.c: fills `normalised` by the training images. */
void tr_normalise(tr_data *d);

/* Bytes of an image. */
static inline size_t tr_image_len(const tr_shape *s)
{
    return (size_t)s->channels * s->height * s->width;
}

#endif
