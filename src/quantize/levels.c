/* Levels for random rounding; see levels.h.
 *
 * A value v between neighbouring levels a and c becomes one of them without bias at an expected squared error of
 * (c - v)(v - a). Levels that are best lie on values, the ends among them. */
#include "quantize/levels.h"

#include "quantize/bucket.h"

#include <math.h>
#include <stdlib.h>

/* ---- by the rule --------------------------------------------------------------------------------------------------- */

/* Values [k, j], ends in place. The best level between two others is a quantile: as many values are above it as the mean
 * lies on the way from the lower to the upper. Fills levels[lo + 1 .. hi - 1] from their neighbours at lo and hi. */
static void split(float *levels, uint32_t lo, uint32_t hi, float *x, size_t k, size_t j)
{
    if (hi - lo < 2) {
        return;
    }
    uint32_t middle = lo + (hi - lo) / 2;
    double low = (double)x[k], high = (double)x[j];
    size_t m = k;
    if (high > low) {
        double sum = 0; /* of how far values are below the upper end */
        for (size_t i = k + 1; i <= j; i++) {
            sum += high - (double)x[i];
        }
        /* At least k and at most j, up to rounding: sum is at most (j - k)(high - low). */
        m = k + (size_t)ceil(sum / (high - low));
        m = m > j ? j : m;
        if (m > k && m < j) {
            (void)tg_partition(x + k + 1, j - k - 1, m - k - 1);
        }
    }
    levels[middle] = x[m];
    split(levels, lo, middle, x, k, m);
    split(levels, middle, hi, x, m, j);
}

void tg_levels_greedy(float *levels, uint32_t s, float *x, size_t n)
{
    for (size_t i = 1; i < n; i++) { /* the ends into their places */
        if (x[i] < x[0]) {
            float swap = x[0];
            x[0] = x[i];
            x[i] = swap;
        }
    }
    for (size_t i = 1; i + 1 < n; i++) {
        if (x[i] > x[n - 1]) {
            float swap = x[n - 1];
            x[n - 1] = x[i];
            x[i] = swap;
        }
    }
    levels[0] = x[0];
    levels[s - 1] = x[n - 1];
    split(levels, 0, s - 1, x, 0, n - 1);
}

/* ---- the best ------------------------------------------------------------------------------------------------------ */

/* least[t][j]: the least error of values up to j if the t-th level lies on value j; from[t][j]: where the one before it
 * then lies. The cost of an interval obeys the quadrangle inequality, so `from` ascends with j, and halving finds all of a
 * row in n log n. */
typedef struct table {
    const float *x;
    double *sums, *squares; /* of all values before one */
    double *before, *now;   /* rows of `least` */
    uint16_t *from;
    size_t n;
} table;

static double cost(const table *t, size_t k, size_t j)
{
    double a = (double)t->x[k], c = (double)t->x[j], count = (double)(j - k);
    double sum = t->sums[j + 1] - t->sums[k + 1], squares = t->squares[j + 1] - t->squares[k + 1];
    double whole = (a + c) * sum - a * c * count - squares;
    return whole > 0 ? whole : 0; /* below 0 only by rounding */
}

/* Row entries [lo, hi] whose `from` lies in [first, last]. */
static void fill_row(const table *t, uint16_t *from, size_t lo, size_t hi, size_t first, size_t last)
{
    size_t j = lo + (hi - lo) / 2, best = first;
    double least = INFINITY;
    for (size_t k = first; k <= last && k <= j; k++) {
        double whole = t->before[k] + cost(t, k, j);
        if (whole < least) {
            least = whole;
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

/* If there are no more different values than levels, they are the levels, with nothing to weigh up. */
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

uint64_t tg_levels_room(uint32_t s, uint64_t n)
{
    return (4 * (n + 1)) * sizeof(double) + s * n * sizeof(uint16_t);
}

void tg_levels_exact(float *levels, uint32_t s, float *x, size_t n, void *room)
{
    double *numbers = room;
    table t = {.x = x,
               .sums = numbers,
               .squares = numbers + (n + 1),
               .before = numbers + 2 * (n + 1),
               .now = numbers + 3 * (n + 1),
               .from = (uint16_t *)(void *)(numbers + 4 * (n + 1)),
               .n = n};
    qsort(x, n, sizeof *x, by_value);
    if (take_distinct(levels, s, x, n)) {
        return;
    }
    t.sums[0] = t.squares[0] = 0;
    for (size_t i = 0; i < n; i++) {
        double value = (double)x[i];
        t.sums[i + 1] = t.sums[i] + value;
        t.squares[i + 1] = t.squares[i] + value * value;
    }
    for (size_t j = 0; j < n; j++) {
        t.now[j] = cost(&t, 0, j); /* the first level lies on the first value, the second on j */
    }
    for (uint32_t level = 2; level < s; level++) {
        double *swap = t.before;
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
}
