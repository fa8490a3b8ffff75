/* Sums whose order does not depend on threads, vector width or device: by leaves, and over leaves as a tree (docs/format.md,
 * "Sums by leaves"). Kernels sum one leaf; this file does the rest. */
#ifndef TG_KERNELS_SUMS_H
#define TG_KERNELS_SUMS_H

#include <stddef.h>
#include <stdint.h>

#define TG_SUM_LEAF 1024 /* numbers of a leaf */
#define TG_SUM_PARTS 32  /* partial sums of a leaf */

/* Numbers that are added as a tree of neighbours. Starts with n = 0; of `level`, entry l holds the sum of 2^l numbers if bit l
 * of n is set. */
typedef struct tg_tree {
    uint64_t n;
    double level[64];
} tg_tree;

static inline void tg_tree_add(tg_tree *t, double number)
{
    unsigned l = 0;
    for (uint64_t n = t->n++; (n & 1) != 0; n >>= 1) {
        number = t->level[l++] + number;
    }
    t->level[l] = number;
}

double tg_tree_sum(const tg_tree *t);

/* Adds the sums of leaves of magnitudes and of squares. All calls but the last for a tree have whole leaves. */
void tg_tree_add_magnitudes(tg_tree *t, const float *values, size_t n);
void tg_tree_add_squares(tg_tree *t, const float *values, size_t n);

/* Magnitudes that come in portions of any length, as one sequence. */
typedef struct tg_summing {
    double parts[TG_SUM_PARTS]; /* of that leaf, set when it begins */
    size_t n;                   /* in the leaf that is not complete */
    tg_tree leaves;
} tg_summing;

static inline void tg_summing_start(tg_summing *s)
{
    s->n = 0;
    s->leaves.n = 0;
}

void tg_summing_add(tg_summing *s, const float *values, size_t n);
double tg_summing_end(tg_summing *s);

/* Of any number of values. */
double tg_sum_magnitudes(const float *values, size_t n);
double tg_sum_squares(const float *values, size_t n);

/* of[0] and of[1]: the sums of magnitudes and of squares. Returns how many values are not 0. */
size_t tg_sum_moments(double of[2], const float *values, size_t n);

/* around[0]: the sum of value * scale of the values not above the threshold; around[1]: of those above, whose number is
 * returned. Partial sums are in binary32. */
size_t tg_sum_around(double around[2], const float *values, float threshold, float scale, size_t n);

/* Folds the partial sums of a leaf by halves. */
static inline double tg_fold(double parts[TG_SUM_PARTS])
{
    for (size_t half = TG_SUM_PARTS / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            parts[l] += parts[l + half];
        }
    }
    return parts[0];
}

#endif
