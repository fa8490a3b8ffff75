/* Assembles batches. A loader owns the buffers of one batch. A batch is a pure function of its tr_draw, so that loaders are
 * independent of each other. */
#include "data/order.h"
#include "data/random.h"
#include "data/refuse.h"
#include "data/sets.h"

#include <stdlib.h>
#include <string.h>

struct tr_loader {
    const tr_data *data;
    size_t batch_max;
    float *pixels;
    int32_t *symbols;
    int32_t *labels;
};

/* ---- buffers ------------------------------------------------------------------------------------------------------------- */

int tr_loader_new(tr_loader **out, const tr_data *d, size_t batch_max, char why[TR_WHY])
{
    why[0] = '\0';
    size_t sample_n = d->shape.task == TR_IMAGES ? tr_image_len(&d->shape) : d->shape.sequence;
    if (batch_max == 0 || batch_max > SIZE_MAX / sizeof(float) / sample_n) {
        return tr_data_refuse(why, "a batch of %zu samples is too %s", batch_max, batch_max == 0 ? "small" : "large");
    }
    tr_loader *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return tr_data_refuse_memory(why);
    }
    l->data = d;
    l->batch_max = batch_max;
    l->labels = malloc(batch_max * d->shape.sequence * sizeof *l->labels);
    int has_room = l->labels != NULL;
    if (d->shape.task == TR_IMAGES) {
        l->pixels = malloc(batch_max * sample_n * sizeof *l->pixels);
        has_room = has_room && l->pixels != NULL;
    } else {
        l->symbols = malloc(batch_max * sample_n * sizeof *l->symbols);
        has_room = has_room && l->symbols != NULL;
    }
    if (!has_room) {
        tr_loader_free(l);
        return tr_data_refuse(why, "there is not enough memory for batches of %zu samples", batch_max);
    }
    *out = l;
    return 0;
}

void tr_loader_free(tr_loader *l)
{
    if (l == NULL) {
        return;
    }
    free(l->pixels);
    free(l->symbols);
    free(l->labels);
    free(l);
}

static tr_batch batch_of(const tr_loader *l, size_t n)
{
    return (tr_batch){n, l->pixels, l->symbols, l->labels};
}

/* ---- images ---------------------------------------------------------------------------------------------------------------- */

/* How an image is augmented: shifted to the right and down, and mirrored. */
typedef struct view {
    int right, down, is_mirrored;
} view;

static view draw_view(const tr_data *d, uint64_t bits)
{
    uint32_t span = 2 * d->shift_max + 1;
    int right = (int)tr_random_below(tr_random_mix(bits, 1), span) - (int)d->shift_max;
    int down = (int)tr_random_below(tr_random_mix(bits, 2), span) - (int)d->shift_max;
    return (view){right, down, d->is_mirrored && (tr_random_mix(bits, 3) & 1)};
}

/* Writes one row: columns [first, end) come from the image's row, all others are black. */
static void put_row(float *out, const uint8_t *row, const float values[256], int width, const view *v)
{
    int first = v->right > 0 ? v->right : 0, end = v->right < 0 ? width + v->right : width;
    for (int x = 0; x < first && x < width; x++) {
        out[x] = values[0];
    }
    for (int x = first; x < end; x++) {
        int from = x - v->right;
        out[x] = values[row[v->is_mirrored ? width - 1 - from : from]];
    }
    for (int x = end > 0 ? end : 0; x < width; x++) {
        out[x] = values[0];
    }
}

static void put_plane(float *out, const uint8_t *plane, const float values[256], const tr_shape *s, const view *v)
{
    int height = (int)s->height, width = (int)s->width;
    for (int y = 0; y < height; y++, out += width) {
        int from = y - v->down;
        if (from >= 0 && from < height) {
            put_row(out, plane + from * width, values, width, v);
            continue;
        }
        for (int x = 0; x < width; x++) {
            out[x] = values[0];
        }
    }
}

static void put_image(tr_loader *l, size_t place, tr_split split, size_t sample, const view *v)
{
    const tr_data *d = l->data;
    const tr_part *part = &d->parts[split];
    size_t image_len = tr_image_len(&d->shape), plane = (size_t)d->shape.height * d->shape.width;
    for (size_t c = 0; c < d->shape.channels; c++) {
        put_plane(l->pixels + place * image_len + c * plane, part->pixels + sample * image_len + c * plane,
                  d->normalised[c], &d->shape, v);
    }
    l->labels[place] = part->labels[sample];
}

/* ---- text ------------------------------------------------------------------------------------------------------------------ */

static void put_window(tr_loader *l, size_t place, const uint8_t *text)
{
    size_t n = l->data->shape.sequence;
    for (size_t i = 0; i < n; i++) {
        l->symbols[place * n + i] = text[i];
        l->labels[place * n + i] = text[i + 1];
    }
}

/* The offset of an epoch's windows, so that sequences do not always begin at the same characters. */
static size_t epoch_offset(const tr_data *d, uint64_t seed, uint64_t epoch)
{
    return tr_random_below(tr_random_key(TR_RANDOM_OFFSET, seed, epoch), d->shape.sequence);
}

/* ---- batches --------------------------------------------------------------------------------------------------------------- */

tr_batch tr_loader_train(tr_loader *l, const tr_draw *draw)
{
    const tr_data *d = l->data;
    uint64_t steps = tr_data_steps_per_epoch(d, draw->workers, draw->batch);
    if (steps == 0 || draw->worker >= draw->workers || draw->batch > l->batch_max) {
        return batch_of(l, 0);
    }
    uint64_t epoch = draw->step / steps;
    size_t first = (size_t)(draw->step % steps * draw->workers + draw->worker) * draw->batch;
    size_t offset = d->shape.task == TR_TEXT ? epoch_offset(d, draw->seed, epoch) : 0;
    uint64_t key = tr_random_mix(tr_random_key(TR_RANDOM_AUGMENT, draw->seed, draw->step), draw->worker);
    tr_order order = tr_order_of(d->parts[TR_TRAIN].n, draw->seed, epoch);
    for (size_t i = 0; i < draw->batch; i++) {
        size_t sample = tr_order_at(&order, first + i);
        if (d->shape.task == TR_TEXT) {
            put_window(l, i, d->parts[TR_TRAIN].symbols + offset + sample * d->shape.sequence);
        } else {
            view v = draw->augment ? draw_view(d, tr_random_mix(key, sample)) : (view){0, 0, 0};
            put_image(l, i, TR_TRAIN, sample, &v);
        }
    }
    return batch_of(l, draw->batch);
}

tr_batch tr_loader_test(tr_loader *l, size_t first, size_t n)
{
    const tr_data *d = l->data;
    const tr_part *test = &d->parts[TR_TEST];
    size_t left_n = first < test->n ? test->n - first : 0;
    n = n < left_n ? n : left_n;
    n = n < l->batch_max ? n : l->batch_max;
    for (size_t i = 0; i < n; i++) {
        if (d->shape.task == TR_TEXT) {
            put_window(l, i, test->symbols + (first + i) * d->shape.sequence);
        } else {
            put_image(l, i, TR_TEST, first + i, &(view){0, 0, 0});
        }
    }
    return batch_of(l, n);
}
