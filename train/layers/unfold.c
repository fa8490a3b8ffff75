/* im2col and col2im; see unfold.h. Both walk the columns row by row, that is, one position in the window at a time. So they read
 * and write contiguous runs as wide as the image, cut where the window exceeds its edge. */
#include "unfold.h"

#include <string.h>

/* The positions [first, end) of an output axis for which the window's position `offset` is inside the image. */
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

/* A position in the window. */
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

/* Runs are often as short as 8 numbers; a call of memcpy would cost more than the copy. */
static inline void copy_run(float *restrict to, const float *restrict from, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(to + i, from + i, 8 * sizeof *to);
    }
    if (n & 4) {
        memcpy(to + i, from + i, 4 * sizeof *to);
        i += 4;
    }
    for (; i < n; i++) {
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
        return; /* here the window covers nothing but padding */
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

/* The row of the columns for one channel and one position in the window. */
static size_t row_at(const tr_layer *l, size_t channel, const place *p)
{
    return (channel * l->window.height + p->y) * l->window.width + p->x;
}

static void unfold_place(float *columns, const float *images, const tr_layer *l, size_t group, const place *p)
{
    size_t area = tr_signal_area(l->in), out_area = tr_signal_area(l->out), channels = l->in->channels;
    for (size_t c = 0; c < channels; c++) {
        float *row = columns + row_at(l, c, p) * group * out_area;
        for (size_t s = 0; s < group; s++) {
            unfold_plane(row + s * out_area, images + (s * channels + c) * area, l, p);
        }
    }
}

void tr_unfold(float *columns, const float *images, const tr_layer *l, size_t group)
{
    for (size_t y = 0; y < l->window.height; y++) {
        for (size_t x = 0; x < l->window.width; x++) {
            place p = find_place(l, y, x);
            unfold_place(columns, images, l, group, &p);
        }
    }
}

static void fold_plane(float *restrict plane, const float *restrict from, const tr_layer *l, const place *p)
{
    size_t width = l->out->width, stride = l->window.stride, first = p->columns.first, n = p->columns.end - first;
    if (p->rows.first == p->rows.end || n == 0) {
        return;
    }
    float *restrict to = plane + in_row(l, p, p->rows.first) + (first * stride + p->x - l->window.padding);
    from += p->rows.first * width + first;
    for (size_t y = p->rows.first; y < p->rows.end; y++, from += width, to += stride * l->in->width) {
        if (stride == 1) { /* a loop of its own, because only this one can be vectorised */
            for (size_t x = 0; x < n; x++) {
                to[x] += from[x];
            }
        } else {
            for (size_t x = 0; x < n; x++) {
                to[x * stride] += from[x];
            }
        }
    }
}

static void fold_place(float *images, const float *columns, const tr_layer *l, size_t group, const place *p)
{
    size_t area = tr_signal_area(l->in), out_area = tr_signal_area(l->out), channels = l->in->channels;
    for (size_t c = 0; c < channels; c++) {
        const float *row = columns + row_at(l, c, p) * group * out_area;
        for (size_t s = 0; s < group; s++) {
            fold_plane(images + (s * channels + c) * area, row + s * out_area, l, p);
        }
    }
}

void tr_fold_add(float *images, const float *columns, const tr_layer *l, size_t group)
{
    for (size_t y = 0; y < l->window.height; y++) {
        for (size_t x = 0; x < l->window.width; x++) {
            place p = find_place(l, y, x);
            fold_place(images, columns, l, group, &p);
        }
    }
}
