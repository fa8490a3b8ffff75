/* See sums.h. */
#include "kernels/sums.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static size_t leaf_at(size_t at, size_t n)
{
    return n - at < TG_SUM_LEAF ? n - at : TG_SUM_LEAF;
}

double tg_tree_sum(const tg_tree *t)
{
    double sum = 0;
    unsigned l = 0;
    for (uint64_t n = t->n, after = 0; n != 0; n >>= 1, l++) {
        if ((n & 1) != 0) {
            sum = after++ == 0 ? t->level[l] : t->level[l] + sum;
        }
    }
    return sum;
}

void tg_tree_add_magnitudes(tg_tree *t, const float *values, size_t n)
{
    for (size_t at = 0; at < n; at += TG_SUM_LEAF) {
        tg_tree_add(t, tg_kernels_best()->statistics.magnitudes(values + at, leaf_at(at, n)));
    }
}

void tg_tree_add_squares(tg_tree *t, const float *values, size_t n)
{
    for (size_t at = 0; at < n; at += TG_SUM_LEAF) {
        tg_tree_add(t, tg_kernels_best()->statistics.squares(values + at, leaf_at(at, n)));
    }
}

/* ---- portions -------------------------------------------------------------------------------------------------------- */

static void end_leaf(tg_summing *s)
{
    tg_tree_add(&s->leaves, tg_fold(s->parts));
    s->n = 0;
}

void tg_summing_add(tg_summing *s, const float *values, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (s->n == 0 && n - i >= TG_SUM_LEAF) {
            tg_tree_add_magnitudes(&s->leaves, values + i, TG_SUM_LEAF);
            i += TG_SUM_LEAF;
            continue;
        }
        if (s->n == 0) {
            memset(s->parts, 0, sizeof s->parts);
        }
        s->parts[s->n++ % TG_SUM_PARTS] += fabs((double)values[i++]);
        if (s->n == TG_SUM_LEAF) {
            end_leaf(s);
        }
    }
}

double tg_summing_end(tg_summing *s)
{
    if (s->n > 0) {
        end_leaf(s);
    }
    return tg_tree_sum(&s->leaves);
}

/* ---- any number of values -------------------------------------------------------------------------------------------- */

/* The sum of a tree of one leaf is that leaf's. */

double tg_sum_magnitudes(const float *values, size_t n)
{
    if (n <= TG_SUM_LEAF) {
        return tg_kernels_best()->statistics.magnitudes(values, n);
    }
    tg_tree t;
    t.n = 0;
    tg_tree_add_magnitudes(&t, values, n);
    return tg_tree_sum(&t);
}

double tg_sum_squares(const float *values, size_t n)
{
    if (n <= TG_SUM_LEAF) {
        return tg_kernels_best()->statistics.squares(values, n);
    }
    tg_tree t;
    t.n = 0;
    tg_tree_add_squares(&t, values, n);
    return tg_tree_sum(&t);
}

size_t tg_sum_moments(double of[2], const float *values, size_t n)
{
    if (n <= TG_SUM_LEAF) {
        return tg_kernels_best()->statistics.moments(of, values, n);
    }
    tg_tree trees[2];
    size_t count = 0;
    trees[0].n = trees[1].n = 0;
    for (size_t at = 0; at < n; at += TG_SUM_LEAF) {
        double leaf[2];
        count += tg_kernels_best()->statistics.moments(leaf, values + at, leaf_at(at, n));
        tg_tree_add(&trees[0], leaf[0]);
        tg_tree_add(&trees[1], leaf[1]);
    }
    of[0] = tg_tree_sum(&trees[0]);
    of[1] = tg_tree_sum(&trees[1]);
    return count;
}

size_t tg_sum_around(double around[2], const float *values, float threshold, float scale, size_t n)
{
    if (n <= TG_SUM_LEAF) {
        return tg_kernels_best()->statistics.sums_around(around, values, threshold, scale, n);
    }
    tg_tree trees[2];
    size_t count = 0;
    trees[0].n = trees[1].n = 0;
    for (size_t at = 0; at < n; at += TG_SUM_LEAF) {
        double leaf[2];
        count += tg_kernels_best()->statistics.sums_around(leaf, values + at, threshold, scale, leaf_at(at, n));
        tg_tree_add(&trees[0], leaf[0]);
        tg_tree_add(&trees[1], leaf[1]);
    }
    around[0] = tg_tree_sum(&trees[0]);
    around[1] = tg_tree_sum(&trees[1]);
    return count;
}
