/* Compares the gradients of workers, pair by pair; see similarity_run.h. Sums run in a fixed order in one thread, so the
 * numbers depend on the values alone.
 *
 * The information is that between a pair's values at the coordinates of the first one's top-k set. Each side is cut into
 * BIN_N quantiles, so that neither the scale nor the shape of its distribution counts, and
 *
 *     I = H(first) + H(second) - H(both),   H = - sum p log2 p + (cells that are not empty - 1) / (2 m ln 2)
 *
 * with the correction of Miller and Madow for m values. Quantiles tell less than values do: what is estimated bounds the
 * information between the values from below, and is at most log2 BIN_N. Four of them, because more would leave too few
 * values a cell: with 64 values that share nothing, 4 x 4 cells find 0.01 bits on average, and 8 x 8 find 0.37.
 */
#include "similarity_run.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

enum { BIN_N = 4 };

/* Classes of magnitudes: those whose bits have the same upper half. */
enum { CLASS_WIDTH = 1 << 16, CLASS_N = 1 << 15 };

struct cli_similarity_room {
    uint32_t workers;
    size_t *counts;        /* of the values in each class */
    uint64_t *keys;        /* of values that are to be sorted: magnitude, and place */
    uint8_t **tops;        /* for each worker, 1 where its largest values are */
    float *first, *second; /* values of a pair at the top of the first */
    float *sorted;
    cli_similarity_row *pairs;
};

/* ---- the largest values ---------------------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* Floats without their sign are ordered as their bits are. */
static uint32_t magnitude(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffu;
}

/* The class that holds the kth largest; *above receives how many are in the classes above it. */
static uint32_t find_class(size_t *above, size_t *counts, const float *values, size_t n, size_t k)
{
    uint32_t at = CLASS_N - 1;
    memset(counts, 0, CLASS_N * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        counts[magnitude(values[i]) / CLASS_WIDTH]++;
    }
    *above = 0;
    while (*above + counts[at] < k) {
        *above += counts[at--];
    }
    return at;
}

/* Only the class in which the set ends needs sorting; of equal values the first comes first. Zeros are never among the
 * largest: a layer that is mostly 0 would seem to agree on which. */
static void mark_top(uint8_t *top, cli_similarity_room *room, const float *values, size_t n, size_t k)
{
    size_t above, key_n = 0;
    uint32_t last = find_class(&above, room->counts, values, n, k);
    for (size_t i = 0; i < n; i++) {
        uint32_t size = magnitude(values[i]), class = size / CLASS_WIDTH;
        top[i] = class > last;
        if (class == last && size > 0) {
            room->keys[key_n++] = (uint64_t)size << 32 | (UINT32_MAX - (uint32_t)i);
        }
    }
    qsort(room->keys, key_n, sizeof *room->keys, descending);
    for (size_t i = 0; i < key_n && i < k - above; i++) {
        top[UINT32_MAX - (uint32_t)room->keys[i]] = 1;
    }
}

/* ---- information ----------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void find_edges(float edges[BIN_N - 1], float *sorted, const float *values, size_t n)
{
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    for (size_t b = 1; b < BIN_N; b++) {
        edges[b - 1] = sorted[b * n / BIN_N];
    }
}

/* The edge itself belongs to the bin above it, so equal values are always together. */
static size_t bin_of(const float edges[BIN_N - 1], float value)
{
    size_t bin = 0;
    for (size_t b = 0; b < BIN_N - 1; b++) {
        bin += value >= edges[b];
    }
    return bin;
}

/* In bits, corrected. */
static double entropy(const size_t *counts, size_t count_n, size_t total)
{
    double sum = 0, filled = 0;
    for (size_t i = 0; i < count_n; i++) {
        if (counts[i] > 0) {
            double share = (double)counts[i] / (double)total;
            sum -= share * log2(share);
            filled++;
        }
    }
    return sum + (filled - 1) / (2 * (double)total * log(2));
}

static double information(const cli_similarity_room *room, size_t n)
{
    if (n < CLI_SIMILARITY_LEAST) {
        return NAN;
    }
    float first_edges[BIN_N - 1], second_edges[BIN_N - 1];
    size_t first[BIN_N] = {0}, second[BIN_N] = {0}, both[BIN_N * BIN_N] = {0};
    find_edges(first_edges, room->sorted, room->first, n);
    find_edges(second_edges, room->sorted, room->second, n);
    for (size_t i = 0; i < n; i++) {
        size_t a = bin_of(first_edges, room->first[i]), b = bin_of(second_edges, room->second[i]);
        first[a]++;
        second[b]++;
        both[a * BIN_N + b]++;
    }
    return entropy(first, BIN_N, n) + entropy(second, BIN_N, n) - entropy(both, BIN_N * BIN_N, n);
}

/* ---- pairs ----------------------------------------------------------------------------------------------------------- */

static double cosine(const float *a, const float *b, size_t n)
{
    double product = 0, first = 0, second = 0;
    for (size_t i = 0; i < n; i++) {
        product += (double)a[i] * (double)b[i];
        first += (double)a[i] * (double)a[i];
        second += (double)b[i] * (double)b[i];
    }
    return first > 0 && second > 0 ? product / sqrt(first) / sqrt(second) : NAN;
}

static cli_similarity_row compare_pair(cli_similarity_room *room, const float *a, const uint8_t *top_a, const float *b,
                                       const uint8_t *top_b, size_t n, size_t k)
{
    size_t shared = 0, top_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (top_a[i]) {
            shared += top_b[i];
            room->first[top_n] = a[i];
            room->second[top_n] = b[i];
            top_n++;
        }
    }
    return (cli_similarity_row){cosine(a, b, n), (double)shared / (double)k, information(room, top_n)};
}

cli_similarity_row cli_similarity_measure(cli_similarity_room *room, const float *const *values, size_t from, size_t n,
                                          size_t k)
{
    size_t pair_n = 0;
    assert(k >= 1 && k <= n && n < UINT32_MAX);
    for (uint32_t w = 0; w < room->workers; w++) {
        mark_top(room->tops[w], room, values[w] + from, n, k);
    }
    for (uint32_t a = 0; a < room->workers; a++) {
        for (uint32_t b = a + 1; b < room->workers; b++) {
            room->pairs[pair_n++] =
                compare_pair(room, values[a] + from, room->tops[a], values[b] + from, room->tops[b], n, k);
        }
    }
    cli_similarity_row out = cli_similarity_mean(room->pairs, pair_n, 1);
    /* Corrected estimates scatter around 0 where nothing is shared. Their mean is clipped, and not each: that would leave
     * the upper half of the scatter. */
    out.information = out.information < 0 ? 0 : out.information;
    return out;
}

/* ---- means ----------------------------------------------------------------------------------------------------------- */

typedef struct mean {
    double sum;
    size_t n;
} mean;

static void add(mean *m, double value)
{
    if (!isnan(value)) {
        m->sum += value;
        m->n++;
    }
}

static double mean_of(const mean *m)
{
    return m->n > 0 ? m->sum / (double)m->n : NAN;
}

cli_similarity_row cli_similarity_mean(const cli_similarity_row *items, size_t n, size_t stride)
{
    mean cosines = {0}, overlaps = {0}, informations = {0};
    for (size_t i = 0; i < n; i++) {
        add(&cosines, items[i * stride].cosine);
        add(&overlaps, items[i * stride].overlap);
        add(&informations, items[i * stride].information);
    }
    return (cli_similarity_row){mean_of(&cosines), mean_of(&overlaps), mean_of(&informations)};
}

size_t cli_similarity_k(size_t n, double ratio)
{
    size_t k = (size_t)(ratio * (double)n + 0.5);
    return k < 1 ? 1 : k > n ? n : k;
}

/* ---- room ------------------------------------------------------------------------------------------------------------ */

void cli_similarity_room_free(cli_similarity_room *room)
{
    if (room == NULL) {
        return;
    }
    for (uint32_t w = 0; w < room->workers && room->tops != NULL; w++) {
        free(room->tops[w]);
    }
    free(room->tops);
    free(room->counts);
    free(room->keys);
    free(room->first);
    free(room->second);
    free(room->sorted);
    free(room->pairs);
    free(room);
}

int cli_similarity_room_new(cli_similarity_room **out, uint32_t workers, size_t n_max)
{
    cli_similarity_room *room = calloc(1, sizeof *room);
    if (room == NULL) {
        return cli_fail_memory();
    }
    room->workers = workers;
    room->tops = calloc(workers, sizeof *room->tops);
    room->counts = calloc(CLASS_N, sizeof *room->counts);
    room->keys = calloc(n_max, sizeof *room->keys);
    room->first = calloc(n_max, sizeof *room->first);
    room->second = calloc(n_max, sizeof *room->second);
    room->sorted = calloc(n_max, sizeof *room->sorted);
    room->pairs = calloc((size_t)workers * workers, sizeof *room->pairs);
    int sound = room->tops != NULL && room->counts != NULL && room->keys != NULL && room->first != NULL &&
                room->second != NULL && room->sorted != NULL && room->pairs != NULL;
    for (uint32_t w = 0; w < workers && sound; w++) {
        room->tops[w] = calloc(n_max, sizeof *room->tops[w]);
        sound = room->tops[w] != NULL;
    }
    if (!sound) {
        cli_similarity_room_free(room);
        return cli_fail_memory();
    }
    *out = room;
    return CLI_OK;
}
