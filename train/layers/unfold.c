/* See the header. Both ways walk the columns row by row, that is, for one place in the window at a time: then all that is
 * read and written lies in runs as wide as the image, cut where the window hangs over its edge. */
#include "unfold.h"

#include <string.h>

/* Which places [first, end) of an output axis see a place inside the image, through the window's place `offset`. */
typedef struct inside {
    size_t first, end;
} inside;

static inside find_inside(size_t in_size, size_t out_size, size_t offset, const tr_window *w)
{
    size_t first = offset >= w->padding ? 0 : (w->padding - offset + w->stride - 1) / w->stride;
    size_t end = in_size + w->padding > offset ? (in_size + w->padding - offset - 1) / w->stride + 1 : 0;
    end = end < out_size ? end : out_size;
    return (inside){first < end ? first : end, end};
}

/* A place in the window. */
typedef struct place {
    size_t y, x;
    inside rows, columns;
} place;

static place find_place(const tr_layer *l, size_t y, size_t x)
{
    return (place){y, x, find_inside(l->in->height, l->out->height, y, &l->window),
                   find_inside(l->in->width, l->out->width, x, &l->window)};
}

static size_t in_row(const tr_layer *l, const place *p, size_t out_y)
{
    return (out_y * l->window.stride + p->y - l->window.padding) * l->in->width;
}

static void unfold_row(float *restrict to, const float *restrict row, const tr_layer *l, const place *p)
{
    size_t first = p->columns.first, end = p->columns.end, stride = l->window.stride;
    for (size_t x = 0; x < first; x++) {
        to[x] = 0;
    }
    if (stride == 1 && first < end) {
        memcpy(to + first, row + (first + p->x - l->window.padding), (end - first) * sizeof *to);
    } else {
        for (size_t x = first; x < end; x++) {
            to[x] = row[x * stride + p->x - l->window.padding];
        }
    }
    for (size_t x = end; x < l->out->width; x++) {
        to[x] = 0;
    }
}

static void unfold_plane(float *to, const float *plane, const tr_layer *l, const place *p)
{
    size_t width = l->out->width;
    memset(to, 0, p->rows.first * width * sizeof *to);
    for (size_t y = p->rows.first; y < p->rows.end; y++) {
        unfold_row(to + y * width, plane + in_row(l, p, y), l, p);
    }
    memset(to + p->rows.end * width, 0, (l->out->height - p->rows.end) * width * sizeof *to);
}

void tr_unfold(float *columns, const float *images, const tr_layer *l, size_t group)
{
    size_t area = tr_signal_area(l->in), out_area = tr_signal_area(l->out), channels = l->in->channels;
    for (size_t c = 0; c < channels; c++) {
        for (size_t y = 0; y < l->window.height; y++) {
            for (size_t x = 0; x < l->window.width; x++) {
                place p = find_place(l, y, x);
                for (size_t s = 0; s < group; s++, columns += out_area) {
                    unfold_plane(columns, images + (s * channels + c) * area, l, &p);
                }
            }
        }
    }
}

static void fold_row(float *restrict row, const float *restrict from, const tr_layer *l, const place *p)
{
    size_t stride = l->window.stride;
    if (stride == 1) {
        float *restrict to = row + (p->columns.first + p->x - l->window.padding);
        for (size_t x = p->columns.first, i = 0; x < p->columns.end; x++, i++) {
            to[i] += from[x];
        }
        return;
    }
    for (size_t x = p->columns.first; x < p->columns.end; x++) {
        row[x * stride + p->x - l->window.padding] += from[x];
    }
}

void tr_fold_add(float *images, const float *columns, const tr_layer *l, size_t group)
{
    size_t area = tr_signal_area(l->in), out_area = tr_signal_area(l->out), channels = l->in->channels;
    for (size_t c = 0; c < channels; c++) {
        for (size_t y = 0; y < l->window.height; y++) {
            for (size_t x = 0; x < l->window.width; x++) {
                place p = find_place(l, y, x);
                for (size_t s = 0; s < group; s++, columns += out_area) {
                    float *plane = images + (s * channels + c) * area;
                    for (size_t out_y = p.rows.first; out_y < p.rows.end; out_y++) {
                        fold_row(plane + in_row(l, &p, out_y), columns + out_y * l->out->width, l, &p);
                    }
                }
            }
        }
    }
}
