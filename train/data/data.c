/* Opens a data set by its name; queries. */
#include "data.h"

#include "data/refuse.h"
#include "data/sets.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *form;
    tr_set_open *open;
} sets[] = {
    {"fashion", "fashion[:DIR]", tr_set_fashion}, {"mnist", "mnist:DIR", tr_set_mnist},
    {"cifar10", "cifar10:DIR", tr_set_cifar10},   {"text", "text:FILE", tr_set_text},
    {"glyphs", "glyphs", tr_set_glyphs},
};

const char *tr_data_form(size_t index)
{
    return index < sizeof sets / sizeof *sets ? sets[index].form : NULL;
}

static int fill(tr_data *d, const char *spec, char why[TR_WHY])
{
    const char *colon = strchr(spec, ':');
    size_t name_len = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    if (colon != NULL && colon[1] == '\0') {
        return tr_data_refuse(why, "'%.300s' has nothing behind its colon; a folder or file belongs there", spec);
    }
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (strlen(sets[i].name) == name_len && memcmp(sets[i].name, spec, name_len) == 0) {
            (void)snprintf(d->name, sizeof d->name, "%s", sets[i].name);
            return sets[i].open(d, colon != NULL ? colon + 1 : NULL, why);
        }
    }
    return tr_data_refuse(why,
                          "'%.200s' is no data set; there are 'fashion', 'fashion:DIR', 'mnist:DIR', 'cifar10:DIR', "
                          "'text:FILE' and 'glyphs'",
                          spec);
}

/* Warns if a set is incomplete: its results cannot be compared with others. */
static void remark(const tr_data *d, char why[TR_WHY])
{
    const tr_part *train = &d->parts[TR_TRAIN], *test = &d->parts[TR_TEST];
    if (train->n != train->usual_n || test->n != test->usual_n) {
        (void)tr_data_refuse(why, "%s has %zu training and %zu test samples here, and usually %zu and %zu", d->name,
                             train->n, test->n, train->usual_n, test->usual_n);
    }
}

static void hash_images(tr_part *part, const tr_shape *s)
{
    uint32_t shape[3] = {s->channels, s->height, s->width};
    part->hash = tr_hash(0, shape, sizeof shape);
    part->hash = tr_hash(part->hash, part->pixels, part->n * tr_image_len(s));
    part->hash = tr_hash(part->hash, part->labels, part->n);
}

int tr_data_open(tr_data **out, const char *spec, char why[TR_WHY])
{
    why[0] = '\0';
    tr_data *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return tr_data_refuse_memory(why);
    }
    if (fill(d, spec, why) != 0) {
        tr_data_free(d);
        return -1;
    }
    if (d->shape.task == TR_IMAGES) {
        hash_images(&d->parts[TR_TRAIN], &d->shape);
        hash_images(&d->parts[TR_TEST], &d->shape);
        tr_normalise(d);
        remark(d, why);
    }
    *out = d;
    return 0;
}

void tr_data_free(tr_data *d)
{
    if (d == NULL) {
        return;
    }
    for (int split = 0; split < 2; split++) {
        free(d->parts[split].pixels);
        free(d->parts[split].labels);
    }
    free(d->parts[TR_TRAIN].symbols); /* for text, both parts share one buffer */
    free(d);
}

const char *tr_data_name(const tr_data *d)
{
    return d->name;
}

tr_shape tr_data_shape(const tr_data *d)
{
    return d->shape;
}

size_t tr_data_count(const tr_data *d, tr_split split)
{
    return d->parts[split].n;
}

uint64_t tr_data_hash(const tr_data *d, tr_split split)
{
    return d->parts[split].hash;
}

uint64_t tr_data_steps_per_epoch(const tr_data *d, uint32_t workers, size_t batch)
{
    size_t n = d->parts[TR_TRAIN].n;
    if (workers == 0 || batch == 0 || batch > n / workers) { /* the last also prevents overflow of the product */
        return 0;
    }
    return n / (workers * batch);
}
