/* Sums over many numbers. They use sixteen partial sums, added in a fixed order: compilers can vectorise this, the result has the
 * same bits everywhere, and it has a smaller rounding error than a single sum. */
#ifndef TR_SUMS_H
#define TR_SUMS_H

#include <stddef.h>

enum { TR_LANES = 16 };

static inline double tr_join(const float lanes[TR_LANES])
{
    double sum = 0;
    for (size_t j = 0; j < TR_LANES; j++) {
        sum += (double)lanes[j];
    }
    return sum;
}

static inline double tr_sum(const float *x, size_t n)
{
    float lanes[TR_LANES] = {0};
    size_t i = 0;
    for (; i + TR_LANES <= n; i += TR_LANES) {
        for (size_t j = 0; j < TR_LANES; j++) {
            lanes[j] += x[i + j];
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        lanes[j] += x[i];
    }
    return tr_join(lanes);
}

/* The sum of x * (y - mean). */
static inline double tr_dot_about(const float *x, const float *y, float mean, size_t n)
{
    float lanes[TR_LANES] = {0};
    size_t i = 0;
    for (; i + TR_LANES <= n; i += TR_LANES) {
        for (size_t j = 0; j < TR_LANES; j++) {
            lanes[j] += x[i + j] * (y[i + j] - mean);
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        lanes[j] += x[i] * (y[i] - mean);
    }
    return tr_join(lanes);
}

/* The sum of (x - mean) squared. */
static inline double tr_squares_about(const float *x, float mean, size_t n)
{
    float lanes[TR_LANES] = {0};
    size_t i = 0;
    for (; i + TR_LANES <= n; i += TR_LANES) {
        for (size_t j = 0; j < TR_LANES; j++) {
            lanes[j] += (x[i + j] - mean) * (x[i + j] - mean);
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        lanes[j] += (x[i] - mean) * (x[i] - mean);
    }
    return tr_join(lanes);
}

#endif
