/* Fashion-MNIST (Xiao, Rasul, Vollgraf 2017) and MNIST (LeCun, Cortes): four idx files in a folder. The names of the
 * files vary slightly between distributions. */
#include "data/file.h"
#include "data/idx.h"
#include "data/refuse.h"
#include "data/sets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEBIAN_FASHION "/usr/share/datasets/fashion-mnist"
#define GET_FASHION                                                                                        \
    "get the set by 'apt-get install dataset-fashion-mnist', or give its folder as 'fashion:DIR', or use " \
    "'glyphs', which needs no files"
#define GET_MNIST                                        \
    "give the folder of its four files as 'mnist:DIR', " \
    "or use 'glyphs', which needs no files"

enum { PATH_CAP = 4096, USUAL_TRAIN_N = 60000, USUAL_TEST_N = 10000, SHIFT_MAX = 2 };

/* Where a set is, and how to get it. */
typedef struct source {
    const char *directory;
    const char *advice;
} source;

/* One of the four files: "train" and "images", or "t10k" and "labels". */
typedef struct member {
    const char *split, *kind;
    int dim_n;
} member;

/* "train-images-idx3-ubyte", or the same with ".idx" for "-idx", or either with ".gz" appended. */
static int find_file(char path[PATH_CAP], const source *from, const member *m, char why[TR_WHY])
{
    static const char marks[] = {'-', '.'};
    static const char *const endings[] = {"", ".gz"};
    for (int variant = 0; variant < 4; variant++) {
        int len = snprintf(path, PATH_CAP, "%s/%s-%s%cidx%d-ubyte%s", from->directory, m->split, m->kind,
                           marks[variant % 2], m->dim_n, endings[variant / 2]);
        if (len < PATH_CAP && tr_file_exists(path)) {
            return 0;
        }
    }
    return tr_data_refuse(why, "there is no %s-%s-idx%d-ubyte, plain or as .gz, in '%.200s'; %s", m->split, m->kind,
                          m->dim_n, from->directory, from->advice);
}

/* The elements of a file, without its header. */
static int read_member(tr_bytes *out, tr_idx *idx, const source *from, const member *m, char why[TR_WHY])
{
    char path[PATH_CAP], reason[TR_WHY];
    tr_bytes bytes;
    if (find_file(path, from, m, why) != 0 || tr_file_read_unpacked(&bytes, path, why) != 0) {
        return -1;
    }
    int status = m->dim_n == 1 ? tr_idx_labels(idx, bytes.at, bytes.len, reason)
                               : tr_idx_images(idx, bytes.at, bytes.len, reason);
    if (status != 0) {
        free(bytes.at);
        return tr_data_refuse(why, "'%s' can not be read: %.200s", path, reason);
    }
    bytes.len -= idx->data_at;
    memmove(bytes.at, bytes.at + idx->data_at, bytes.len);
    *out = bytes;
    return 0;
}

static int read_part(tr_part *part, tr_idx *images, const source *from, const char *split, char why[TR_WHY])
{
    tr_bytes bytes;
    tr_idx labels;
    if (read_member(&bytes, images, from, &(member){split, "images", 3}, why) != 0) {
        return -1;
    }
    part->pixels = bytes.at;
    if (read_member(&bytes, &labels, from, &(member){split, "labels", 1}, why) != 0) {
        return -1;
    }
    part->labels = bytes.at;
    part->n = images->n;
    if (labels.n != images->n) {
        return tr_data_refuse(
            why, "the files of '%s' in '%.300s' do not belong together: %" PRIu32 " images, %" PRIu32 " labels", split,
            from->directory, images->n, labels.n);
    }
    return 0;
}

static int read_set(tr_data *d, const source *from, char why[TR_WHY])
{
    tr_idx train, test;
    if (read_part(&d->parts[TR_TRAIN], &train, from, "train", why) != 0 ||
        read_part(&d->parts[TR_TEST], &test, from, "t10k", why) != 0) {
        return -1;
    }
    if (train.height != test.height || train.width != test.width) {
        return tr_data_refuse(why,
                              "the files in '%.300s' do not belong together: training images are %" PRIu32 " x %" PRIu32
                              ", test images %" PRIu32 " x %" PRIu32,
                              from->directory, train.height, train.width, test.height, test.width);
    }
    d->shape = (tr_shape){TR_IMAGES, 1, train.height, train.width, TR_IDX_CLASSES, 1};
    d->parts[TR_TRAIN].usual_n = USUAL_TRAIN_N;
    d->parts[TR_TEST].usual_n = USUAL_TEST_N;
    d->shift_max = SHIFT_MAX;
    return 0;
}

int tr_set_fashion(tr_data *d, const char *place, char why[TR_WHY])
{
    d->is_mirrored = 1; /* a shoe that points to the left is a shoe */
    return read_set(d, &(source){place != NULL ? place : DEBIAN_FASHION, GET_FASHION}, why);
}

int tr_set_mnist(tr_data *d, const char *place, char why[TR_WHY])
{
    if (place == NULL) {
        return tr_data_refuse(why, "'mnist' alone does not say where its files are; %s", GET_MNIST);
    }
    return read_set(d, &(source){place, GET_MNIST}, why);
}
