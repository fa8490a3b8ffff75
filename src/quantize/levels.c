/* Levels for random rounding; see levels.h.
 *
 * Rounding a value v without bias to one of the neighbouring levels a and c has an expected squared error of
 * (c - v)(v - a). Optimal levels coincide with values; the first and last are the smallest and largest value. */
#include "quantize/levels.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -0 becomes 0: which of the two is found depends on the order of values. */
static void drop_signs_of_zeros(float *levels, uint32_t s)
{
    for (uint32_t i = 0; i < s; i++) {
        levels[i] += 0.0f;
    }
}

/* ---- the greedy rule --------------------------------------------------------------------------------------------------- */

/* The n values between two levels, low and high. Splitting them copies them from x to `other`, so the two buffers swap roles
 * at each depth of the recursion. */
typedef struct interval {
    float *x, *other;
    size_t n;
    float low, high;
} interval;

enum { GRID_BITS = 40 }; /* the mean is summed in fixed point, so that it does not depend on the order of the values */

/* The rank of the best level inside an interval. At that level the fraction of values above it equals
 * (mean - low) / (high - low). */
static size_t middle_of(const interval *s)
{
    double low = (double)s->low, high = (double)s->high, scale = 0x1p40 / (high - low);
    uint64_t sum_all = tg_kernels_best()->statistics.ways_up(s->x, high, scale, s->n);
    uint64_t sum = sum_all - (uint64_t)((high - low) * scale); /* without the lower end itself */
    uint64_t m = (sum + (UINT64_C(1) << GRID_BITS) - 1) >> GRID_BITS;
    return m < s->n ? (size_t)m : s->n - 1;
}

/* Fills levels[lo + 1 .. hi - 1] between the known levels at lo and hi. `scratch` is scratch for 2 n values. */
static void split(float *levels, uint32_t lo, uint32_t hi, interval s, float *scratch)
{
    if (hi - lo < 2) {
        return;
    }
    uint32_t middle = lo + (hi - lo) / 2;
    if (!(s.high > s.low)) {
        for (uint32_t i = lo + 1; i < hi; i++) {
            levels[i] = s.low;
        }
        return;
    }
    size_t m = middle_of(&s);
    tg_ordered at = tg_kernels_best()->statistics.nth(scratch, s.x, s.n, m);
    levels[middle] = at.value;
    if (hi - lo > 2) {
        tg_kernels_best()->statistics.split(s.other, s.x, s.n, &at);
        split(levels, lo, middle, (interval){s.other, s.x, m + 1, s.low, at.value}, scratch);
        split(levels, middle, hi, (interval){s.other + m, s.x + m, s.n - m, at.value, s.high}, scratch);
    }
}

void tg_levels_greedy(float *levels, uint32_t s, const float *x, size_t n, float *scratch)
{
    float ends[2];
    tg_kernels_best()->statistics.ends(ends, x, n);
    levels[0] = ends[0];
    levels[s - 1] = ends[1];
    memcpy(scratch, x, n * sizeof *x);
    split(levels, 0, s - 1, (interval){scratch, scratch + n, n, ends[0], ends[1]}, scratch + 2 * n);
    drop_signs_of_zeros(levels, s);
}

/* ---- exact levels ------------------------------------------------------------------------------------------------------ */

/* Dynamic programming over sorted values. least[t][j] is the smallest error of the values up to j if level t is value j;
 * from[t][j] is the value of level t - 1 in that case, the smallest of those that are as good. The cost of an interval obeys the
 * quadrangle inequality, so `from` ascends with j, and divide and conquer fills a row in n log n.
 *
 * Values count as multiples of a 2^22nd of their range. Then all sums are integers below 2^62 and exact. */
typedef struct table {
    int64_t *x;
    int64_t *sums, *squares; /* prefix sums: of all values before one */
    int64_t *before, *now;   /* the previous and the current row of `least` */
    uint16_t *from;
    size_t n;
} table;

static int64_t cost(const table *t, size_t k, size_t j)
{
    int64_t a = t->x[k], c = t->x[j], count = (int64_t)(j - k);
    int64_t sum = t->sums[j + 1] - t->sums[k + 1], squares = t->squares[j + 1] - t->squares[k + 1];
    return (a + c) * sum - a * c * count - squares;
}

/* Fills entries [lo, hi] of a row, whose `from` is known to be in [first, last]. */
static void fill_row(const table *t, uint16_t *from, size_t lo, size_t hi, size_t first, size_t last)
{
    size_t j = lo + (hi - lo) / 2, best = first;
    int64_t least = INT64_MAX;
    for (size_t k = first; k <= last && k <= j; k++) {
        int64_t error = t->before[k] + cost(t, k, j);
        if (error < least) {
            least = error;
            best = k;
        }
    }
    t->now[j] = least;
    from[j] = (uint16_t)best;
    if (j > lo) {
        fill_row(t, from, lo, j - 1, first, best);
    }
    if (j < hi) {
        fill_row(t, from, j + 1, hi, best, last);
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* If there are at most s distinct values, they are the levels, and there is no error. */
static bool take_distinct(float *levels, uint32_t s, const float *x, size_t n)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && x[i] == x[i - 1]) {
            continue;
        }
        if (count == s) {
            return false;
        }
        levels[count++] = x[i];
    }
    for (; count < s; count++) {
        levels[count] = x[n - 1];
    }
    return true;
}

uint64_t tg_levels_scratch_len(uint32_t s, uint64_t n)
{
    return (5 * (n + 1)) * sizeof(int64_t) + s * n * sizeof(uint16_t);
}

void tg_levels_exact(float *levels, uint32_t s, float *x, size_t n, void *scratch)
{
    int64_t *numbers = scratch;
    table t = {.x = numbers,
               .sums = numbers + (n + 1),
               .squares = numbers + 2 * (n + 1),
               .before = numbers + 3 * (n + 1),
               .now = numbers + 4 * (n + 1),
               .from = (uint16_t *)(void *)(numbers + 5 * (n + 1)),
               .n = n};
    qsort(x, n, sizeof *x, by_value);
    if (take_distinct(levels, s, x, n)) {
        drop_signs_of_zeros(levels, s);
        return;
    }
    double low = (double)x[0], scale = 0x1p22 / ((double)x[n - 1] - low);
    t.sums[0] = t.squares[0] = 0;
    for (size_t i = 0; i < n; i++) {
        t.x[i] = (int64_t)(((double)x[i] - low) * scale);
        t.sums[i + 1] = t.sums[i] + t.x[i];
        t.squares[i + 1] = t.squares[i] + t.x[i] * t.x[i];
    }
    for (size_t j = 0; j < n; j++) {
        t.now[j] = cost(&t, 0, j); /* level 0 is the first value, level 1 is value j */
    }
    for (uint32_t level = 2; level < s; level++) {
        int64_t *swap = t.before;
        t.before = t.now;
        t.now = swap;
        fill_row(&t, t.from + level * n, 0, n - 1, 0, n - 1);
    }
    size_t at = n - 1;
    for (uint32_t level = s - 1; level > 0; level--) {
        levels[level] = x[at];
        at = level >= 2 ? t.from[level * n + at] : 0;
    }
    levels[0] = x[0];
    drop_signs_of_zeros(levels, s);
}
