/* Data sets: images with labels, or text. All randomness is a pure function of (seed, epoch or step, sample), so that a resumed run
 * gets the batches that it would have had without a stop. */
#ifndef TR_DATA_H
#define TR_DATA_H

#include <stddef.h>
#include <stdint.h>

#define TR_WHY 512 /* size of the buffer for an error message */

typedef enum tr_task { TR_IMAGES, TR_TEXT } tr_task;
typedef enum tr_split { TR_TRAIN, TR_TEST } tr_split;

/* What a model needs to know of its data. */
typedef struct tr_shape {
    tr_task task;
    uint32_t channels, height, width; /* of an image; all 0 for text */
    uint32_t classes;                 /* images: number of labels; text: number of different characters */
    uint32_t sequence;                /* text: characters per sample; images: 1 */
} tr_shape;

/* Some samples. Images: pixels is n x channels x height x width, normalised by the training set's mean and deviation, and
 * labels holds n classes. Text: symbols is n x sequence, and labels the n x sequence symbols that follow. */
typedef struct tr_batch {
    size_t n;
    const float *pixels;
    const int32_t *symbols;
    const int32_t *labels;
} tr_batch;

typedef struct tr_data tr_data;

/* How the set number `index` is named on a command line: NAME, NAME[:PLACE] where the place may be left out, or NAME:PLACE.
 * NULL after the last one. */
const char *tr_data_form(size_t index);

/* Opens "fashion", "fashion:DIR", "mnist:DIR", "cifar10:DIR", "text:FILE" or "glyphs". Returns 0, or -1 and an
 * error in `why` that says how to get the data. On success `why` is empty, or a warning that the set has fewer samples than it
 * usually has. */
int tr_data_open(tr_data **out, const char *spec, char why[TR_WHY]);
void tr_data_free(tr_data *d);

const char *tr_data_name(const tr_data *d); /* "fashion" */
tr_shape tr_data_shape(const tr_data *d);
size_t tr_data_count(const tr_data *d, tr_split split); /* samples */

/* A hash of the whole content of a split: of an image set its shape, pixels and labels, of a text its bytes. Computed from the
 * content in memory. The same for a plain file and its .gz. */
uint64_t tr_data_hash(const tr_data *d, tr_split split);

/* Assembles the batches of one worker. Every thread needs its own. */
typedef struct tr_loader tr_loader;
int tr_loader_new(tr_loader **out, const tr_data *d, size_t batch_max, char why[TR_WHY]);
void tr_loader_free(tr_loader *l);

/* Which batch to draw. */
typedef struct tr_draw {
    uint64_t seed;
    uint64_t step;
    uint32_t worker, workers;
    size_t batch; /* samples per worker and step */
    int augment;  /* mirror images (if the data set allows it) and shift them */
} tr_draw;

/* Steps per epoch. Samples that do not fill a step are left out, different ones in every epoch. 0 if the training set does not fill
 * a single step. */
uint64_t tr_data_steps_per_epoch(const tr_data *d, uint32_t workers, size_t batch);

/* The batch of a worker at a step of training. In an epoch no two workers or steps draw the same sample: all workers share
 * one permutation of the training set, which depends on seed and epoch alone. The batch is valid until the next call with this
 * loader. It is empty if the draw is invalid: no steps per epoch, worker >= workers, batch > batch_max. */
tr_batch tr_loader_train(tr_loader *l, const tr_draw *draw);

/* Test samples [first, first + n), without augmentation; fewer at the end of the set, and at most batch_max. */
tr_batch tr_loader_test(tr_loader *l, size_t first, size_t n);

#endif
