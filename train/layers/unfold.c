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

/* Runs are often as short as 8 numbers; a call for each would cost more than the copy. */
static inline void copy_run(float *restrict to, const float *restrict from, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(to + i, from + i, 8 * sizeof *to);
    }
    for (; i + 2 <= n; i += 2) {
        memcpy(to + i, from + i, 2 * sizeof *to);
    }
    if (i < n) {
        to[i] = from[i];
    }
}

static void unfold_plane(float *restrict to, const float *restrict plane, const tr_layer *l, const place *p)
{
    size_t width = l->out->width, stride = l->window.stride, first = p->columns.first, end = p->columns.end;
    if (p->rows.end - p->rows.first < l->out->height || end - first < width) {
        memset(to, 0, tr_signal_area(l->out) * sizeof *to);
    }
    if (p->rows.first == p->rows.end || first == end) {
        return; /* a window that sees nothing but padding from here */
    }
    const float *from = plane + in_row(l, p, p->rows.first) + (first * stride + p->x - l->window.padding);
    to += p->rows.first * width + first;
    for (size_t y = p->rows.first; y < p->rows.end; y++, to += width, from += stride * l->in->width) {
        if (stride == 1) {
            copy_run(to, from, end - first);
        } else {
            for (size_t x = 0; x < end - first; x++) {
                to[x] = from[x * stride];
            }
        }
    }
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
