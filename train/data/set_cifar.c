/* CIFAR-10 (Krizhevsky 2009) in its binary version: up to five training batches and a test batch. Fewer or shorter
 * batches are accepted too, for quick trials; tr_data_open then warns how many samples are missing. */
#include "data/cifar.h"
#include "data/file.h"
#include "data/refuse.h"
#include "data/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GET_CIFAR                                                                                                      \
    "give the folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin as 'cifar10:DIR' (the binary version " \
    "at https://www.cs.toronto.edu/~kriz/cifar.html), or use 'glyphs', which needs no files"

enum { PATH_CAP = 4096, BATCH_N = 5, USUAL_BATCH_N = 10000, SHIFT_MAX = 4 };

/* Adds the records of a file to a part. */
static int add_records(tr_part *part, const uint8_t *records, size_t n, char why[TR_WHY])
{
    uint8_t *pixels = realloc(part->pixels, (part->n + n) * TR_CIFAR_IMAGE_LEN);
    if (pixels == NULL) {
        return tr_data_refuse_memory(why);
    }
    part->pixels = pixels;
    uint8_t *labels = realloc(part->labels, part->n + n);
    if (labels == NULL) {
        return tr_data_refuse_memory(why);
    }
    part->labels = labels;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *record = records + i * TR_CIFAR_RECORD_LEN;
        labels[part->n] = record[0];
        memcpy(pixels + part->n * TR_CIFAR_IMAGE_LEN, record + 1, TR_CIFAR_IMAGE_LEN);
        part->n++;
    }
    return 0;
}

static int read_batch(tr_part *part, const char *path, char why[TR_WHY])
{
    char reason[TR_WHY];
    tr_bytes bytes;
    size_t n = 0;
    if (tr_file_read(&bytes, path, why) != 0) {
        return -1;
    }
    int status = tr_cifar_records(&n, bytes.at, bytes.len, reason);
    if (status != 0) {
        (void)tr_data_refuse(why, "'%s' can not be read: %.200s", path, reason);
    } else {
        status = add_records(part, bytes.at, n, why);
    }
    free(bytes.at);
    return status;
}

/* Adds a file that may be missing. */
static int read_if_there(tr_part *part, const char *directory, const char *name, char why[TR_WHY])
{
    char path[PATH_CAP];
    int len = snprintf(path, sizeof path, "%s/%s", directory, name);
    return len >= PATH_CAP || !tr_file_exists(path) ? 0 : read_batch(part, path, why);
}

static int read_train(tr_part *part, const char *directory, char why[TR_WHY])
{
    for (int b = 1; b <= BATCH_N; b++) {
        char name[32];
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", b);
        if (read_if_there(part, directory, name, why) != 0) {
            return -1;
        }
    }
    return 0;
}

int tr_set_cifar10(tr_data *d, const char *place, char why[TR_WHY])
{
    tr_part *train = &d->parts[TR_TRAIN], *test = &d->parts[TR_TEST];
    if (place == NULL) {
        return tr_data_refuse(why, "'cifar10' alone does not say where its files are; %s", GET_CIFAR);
    }
    if (read_train(train, place, why) != 0 || read_if_there(test, place, "test_batch.bin", why) != 0) {
        return -1;
    }
    if (train->n == 0 || test->n == 0) {
        return tr_data_refuse(why, "there is no %s in '%.150s'; %s",
                              train->n == 0 ? "data_batch_1.bin" : "test_batch.bin", place, GET_CIFAR);
    }
    d->shape = (tr_shape){TR_IMAGES, TR_CIFAR_CHANNELS, TR_CIFAR_SIDE, TR_CIFAR_SIDE, TR_CIFAR_CLASSES, 1};
    train->usual_n = BATCH_N * USUAL_BATCH_N;
    test->usual_n = USUAL_BATCH_N;
    d->shift_max = SHIFT_MAX;
    d->is_mirrored = 1;
    return 0;
}
