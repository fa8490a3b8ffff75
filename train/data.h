/* Data sets: images with labels, or text. Everything that is random is a pure function of (seed, epoch or step, example),
 * so that a run that was stopped goes on with the very batches that it would have had. */
#ifndef TR_DATA_H
#define TR_DATA_H

#include <stddef.h>
#include <stdint.h>

#define TR_WHY 512 /* room for the sentence about a failure */

typedef enum tr_task { TR_IMAGES, TR_TEXT } tr_task;
typedef enum tr_split { TR_TRAIN, TR_TEST } tr_split;

/* What a model must know of its data. */
typedef struct tr_shape {
    tr_task task;
    uint32_t channels, height, width; /* of an image; all 0 for text */
    uint32_t classes;                 /* of images: labels; of text: different characters */
    uint32_t sequence;                /* of text: characters that a sample has; 1 for images */
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
 * NULL behind the last one. */
const char *tr_data_form(size_t index);

/* Opens "fashion", "fashion:DIR", "mnist:DIR", "cifar10:DIR", "text:FILE" or "glyphs". 0, or -1 and one sentence in `why`
 * that says what is wrong and how to get the data. Where it succeeds, `why` is empty, or a remark for whoever runs it: the
 * set has fewer samples here than it usually has. */
int tr_data_open(tr_data **out, const char *spec, char why[TR_WHY]);
void tr_data_free(tr_data *d);

const char *tr_data_name(const tr_data *d); /* "fashion" */
tr_shape tr_data_shape(const tr_data *d);
size_t tr_data_count(const tr_data *d, tr_split split); /* samples */

/* A hash of the whole content of a split: of an image set its shape, pixels and labels, of a text its bytes. Computed from what
 * was read into memory, so that it is of what a run sees. The same for a plain file and its .gz. */
uint64_t tr_data_hash(const tr_data *d, tr_split split);

/* Where the batches of one worker are put together; one for each thread that asks for batches. */
typedef struct tr_loader tr_loader;
int tr_loader_new(tr_loader **out, const tr_data *d, size_t batch_max, char why[TR_WHY]);
void tr_loader_free(tr_loader *l);

/* Whose batch, of what. */
typedef struct tr_draw {
    uint64_t seed;
    uint64_t step;
    uint32_t worker, workers;
    size_t batch; /* samples a worker and step */
    int augment;  /* flip (where a mirror image is of the same class) and shift images */
} tr_draw;

/* Steps after which every training sample has been drawn once (the rest that fills no step is left out, other samples in
 * every epoch). 0 where the training set does not fill a single step. */
uint64_t tr_data_steps_per_epoch(const tr_data *d, uint32_t workers, size_t batch);

/* The batch of a worker at a step of training. In an epoch no two workers or steps draw the same sample: all workers go
 * through one permutation of the training set, which depends on seed and epoch alone. The batch is valid until the loader
 * is asked again. It is empty where there is none: no step in an epoch, a worker beyond the last, more than batch_max. */
tr_batch tr_loader_train(tr_loader *l, const tr_draw *draw);

/* Test samples [first, first + n) as they are, or as many of them as there are and as batch_max allows. */
tr_batch tr_loader_test(tr_loader *l, size_t first, size_t n);

#endif
