/* An order statistic by narrowing a range around it; see loops.h. The file that includes this has, for its vectors, sort_sixteen,
 * nth_of_few, which takes up to 32 values, and keep_between, which copies the values of a range in their order and counts those
 * below. */
#ifndef TG_KERNELS_ORDER_LOOPS_H
#define TG_KERNELS_ORDER_LOOPS_H

#include "kernels/scalar.h"

#include <math.h>

/* A range that most likely holds the m-th value, from the order statistics of a sample. */
typedef struct range {
    float low, high;
} range;

TG_TARGET static inline range around(const float *values, size_t n, size_t m)
{
    enum { SAMPLE = 16, MARGIN = 3 };
    float sample[SAMPLE], sorted[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++) {
        sample[i] = values[n * (2 * i + 1) / (2 * SAMPLE)];
    }
    sort_sixteen(sorted, sample);
    size_t place = m * SAMPLE / n;
    return (range){place < MARGIN ? -INFINITY : sorted[place - MARGIN],
                   place + MARGIN >= SAMPLE ? INFINITY : sorted[place + MARGIN]};
}

/* The same for n values in a known range, assumed uniform, with a margin of some standard deviations. */
TG_TARGET static inline range inside(range r, size_t n, size_t m)
{
    float width = r.high - r.low, margin = 2.0f / sqrtf((float)n);
    float share = ((float)m + 0.5f) / (float)n;
    return (range){fmaxf(r.low, r.low + width * (share - margin)), fminf(r.high, r.low + width * (share + margin))};
}

/* Narrows a range around the m-th value until few values are left in it. */
TG_TARGET static tg_ordered nth(float *scratch, const float *values, size_t n, size_t m)
{
    float *buffers[2] = {scratch, scratch + n};
    const float *among = values;
    size_t among_n = n, less = 0; /* values below the range */
    range r = {-INFINITY, INFINITY};
    for (int turn = 0; among_n > 32; turn ^= 1) {
        bool bounded = isfinite(r.high - r.low);
        r = bounded ? inside(r, among_n, m - less) : around(among, among_n, m - less);
        size_t below = 0, kept = keep_between(buffers[turn], &below, among, among_n, r.low, r.high);
        if (m - less < below) { /* the sample was misleading: the value is below the range, */
            r = (range){-INFINITY, nextafterf(r.low, -INFINITY)};
            kept = keep_between(buffers[turn], &below, among, among_n, r.low, r.high);
        } else if (m - less >= below + kept) { /* or above it */
            r = (range){nextafterf(r.high, INFINITY), INFINITY};
            kept = keep_between(buffers[turn], &below, among, among_n, r.low, r.high);
        }
        less += below;
        if (r.low == r.high) {
            return (tg_ordered){.value = r.low, .less = less, .equal = kept};
        }
        if (kept == among_n) { /* few distinct values: narrowing makes no progress */
            return tg_scalar_nth(scratch, values, n, m);
        }
        among = buffers[turn];
        among_n = kept;
    }
    tg_ordered found = nth_of_few(among, among_n, m - less);
    found.less += less;
    return found;
}

#endif
