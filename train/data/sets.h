/* Internal to the data sets: their object, and the functions that fill it, one file for each kind of set. */
#ifndef TR_DATA_SETS_H
#define TR_DATA_SETS_H

#include "data.h"

enum { TR_CHANNEL_MAX = 3, TR_TEXT_SEQUENCE = 64 };

/* The samples of a split, as bytes; they are converted to floats when a batch is assembled. */
typedef struct tr_part {
    size_t n;
    uint8_t *pixels;  /* of images: n x channels x height x width */
    uint8_t *labels;  /* of images: n */
    uint8_t *symbols; /* of text */
    size_t symbol_n;  /* number of symbols */
    size_t usual_n;   /* of images: samples that the complete set has */
    uint64_t hash;    /* of all its bytes as they were read */
} tr_part;

struct tr_data {
    char name[16];
    tr_shape shape;
    tr_part parts[2];                      /* by tr_split */
    float normalised[TR_CHANNEL_MAX][256]; /* the model's input for each byte value of a channel */
    uint32_t shift_max;                    /* pixels by which augmentation may shift an image */
    int is_mirrored;                       /* whether augmentation may mirror an image */
};

/* Fills the shape, the parts and the augmentation limits of an empty set. Returns 0, or -1 and an error; what was filled until
 * then is freed with the set. `place` is the part of the spec after the colon, or NULL. */
typedef int tr_set_open(tr_data *d, const char *place, char why[TR_WHY]);
tr_set_open tr_set_fashion, tr_set_mnist, tr_set_cifar10, tr_set_text, tr_set_glyphs;

/* normalise.c: computes `normalised` from the training images. */
void tr_normalise(tr_data *d);

/* Bytes of an image. */
static inline size_t tr_image_len(const tr_shape *s)
{
    return (size_t)s->channels * s->height * s->width;
}

#endif
