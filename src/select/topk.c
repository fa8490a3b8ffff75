/* The largest magnitudes, ties to the lower index, found exactly in one pass.
 *
 * An element's rank is one number: the key of its magnitude above, its distance from the end below, so that no two
 * elements are equal and "largest" settles ties. Each lane of the measuring pass collects candidates; when its
 * buffer is full it keeps the k best and from then on lets in only what beats the worst of them. Candidates of
 * all lanes together then give the k-th largest rank, and the writing pass sends what is not below it. The
 * answer does not depend on the number of lanes. Random data fills a buffer about ln(n/k) times. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "select/select.h"

#include <math.h>
#include <string.h>

enum { RATIO = TG_SELECT_OWN, WARMUP };
#define WARMUP_RATIO 0.25 /* where a warm-up begins */
enum { GROUP = 512 };     /* elements */
enum { INDEX_BITS = 33 }; /* beside the 31 bits of a magnitude in a 64-bit rank */

static const tg_param params[] = {
    TG_SELECT_SCOPE_PARAM,
    TG_SELECT_COORDS_PARAM,
    TG_SELECT_RATIO_PARAM,
    {.name = "warmup",
     .summary = "steps in which the ratio falls to its value, from a quarter, by the same factor each",
     .lowest = 0,
     .highest = 1e9,
     .is_whole = true,
     .standard = 0},
};

static void at_step(double *p, uint64_t step)
{
    if ((double)step < p[WARMUP] && p[RATIO] < WARMUP_RATIO) {
        p[RATIO] = WARMUP_RATIO * pow(p[RATIO] / WARMUP_RATIO, (double)step / p[WARMUP]);
    }
}

static uint64_t most(const double *p, uint64_t n)
{
    bool begins_higher = p[WARMUP] > 0 && p[RATIO] < WARMUP_RATIO;
    return tg_ratio_entries(begins_higher ? WARMUP_RATIO : p[RATIO], n);
}

typedef struct lane {
    uint64_t count;
    uint64_t worst; /* ranks up to this one are out */
} lane;

typedef struct topk {
    uint64_t k;
    uint64_t lane_k;   /* candidates that a lane must keep */
    uint64_t lane_cap; /* candidates that it has room for */
    uint64_t cut;      /* the k-th largest rank */
    uint32_t lanes;
} topk; /* behind it: the lanes, then their candidates */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t rank_of(float value, uint64_t index)
{
    return (uint64_t)tg_magnitude_key(value) << INDEX_BITS | ((UINT64_C(1) << INDEX_BITS) - 1 - index);
}

static lane *lanes_of(topk *t)
{
    return (lane *)(void *)(t + 1);
}

static uint64_t *candidates_of(topk *t, uint32_t l)
{
    return (uint64_t *)(void *)(lanes_of(t) + t->lanes) + l * t->lane_cap;
}

static topk layout(uint64_t k, uint32_t lanes, uint64_t lane_n)
{
    topk t = {.k = k, .lanes = lanes};
    t.lane_k = least(t.k, lane_n);
    t.lane_cap = least(lane_n, t.lane_k + t.lane_k / 2 + 64);
    return t;
}

/* Moves the k largest of n different numbers to the front (1 <= k <= n) and returns the least of them. */
static uint64_t keep_largest(uint64_t *a, uint64_t n, uint64_t k)
{
    uint64_t low = 0, high = n - 1; /* the k-th largest lies in [low, high] */
    uint64_t draw = n;              /* pivots from anywhere, so that no order of values is a bad one */
    while (low < high) {
        draw = draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t at = low + (draw >> 33) % (high - low + 1), pivot = a[at];
        a[at] = a[low]; /* a pivot in the first place makes both sides shorter than the whole */
        a[low] = pivot;
        uint64_t i = low, j = high;
        for (;;) {
            while (a[i] > pivot) {
                i++;
            }
            while (a[j] < pivot) {
                j--;
            }
            if (i >= j) {
                break;
            }
            uint64_t swap = a[i];
            a[i++] = a[j];
            a[j--] = swap;
        }
        /* Now a[low..j] are not below the pivot and a[j+1..high] are not above it. */
        if (k - 1 <= j) {
            high = j;
        } else {
            low = j + 1;
        }
    }
    return a[k - 1];
}

static uint64_t scratch_len(const double *p, uint64_t n, uint32_t lanes, uint64_t lane_n)
{
    topk t = layout(most(p, n), lanes, lane_n);
    return sizeof t + lanes * (sizeof(lane) + t.lane_cap * sizeof(uint64_t));
}

static void start(void *scratch, const double *p, uint64_t n, uint32_t lanes, uint64_t lane_n)
{
    topk *t = scratch;
    *t = layout(tg_ratio_entries(p[RATIO], n), lanes, lane_n);
    memset(lanes_of(t), 0, lanes * sizeof(lane));
}

static void admit(const topk *t, lane *mine, uint64_t *candidates, uint64_t rank)
{
    if (rank <= mine->worst) {
        return;
    }
    if (mine->count == t->lane_cap) {
        mine->worst = keep_largest(candidates, mine->count, t->lane_k);
        mine->count = t->lane_k;
        if (rank <= mine->worst) {
            return;
        }
    }
    candidates[mine->count++] = rank;
}

/* Elements in groups: those of a group that can not be in by their magnitudes are passed over at once. */
static void measure(void *scratch, uint32_t l, uint64_t at, const float *u, size_t n)
{
    topk *t = scratch;
    lane *mine = &lanes_of(t)[l];
    uint64_t *candidates = candidates_of(t, l);
    for (size_t done = 0; done < n; done += GROUP) {
        size_t m = n - done < GROUP ? n - done : GROUP;
        uint64_t mask[GROUP / 64];
        tg_kernels_best()->mark_keys(mask, u + done, (uint32_t)(mine->worst >> INDEX_BITS), m);
        for (size_t w = 0; w < tg_words(m); w++) {
            for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
                size_t i = done + w * 64 + tg_lowest(word);
                admit(t, mine, candidates, rank_of(u[i], at + i));
            }
        }
    }
}

static void settle(void *scratch)
{
    topk *t = scratch;
    uint64_t *all = candidates_of(t, 0);
    uint64_t count = lanes_of(t)[0].count;
    for (uint32_t l = 1; l < t->lanes; l++) {
        uint64_t n = lanes_of(t)[l].count;
        memmove(all + count, candidates_of(t, l), n * sizeof *all);
        count += n;
    }
    t->cut = keep_largest(all, count, t->k);
}

static void mark(uint64_t *mask, const void *scratch, const double *p, uint64_t at, const float *u, size_t n)
{
    (void)p;
    const topk *t = scratch;
    tg_kernels_best()->mark_keys(mask, u, (uint32_t)(t->cut >> INDEX_BITS), n);
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) { /* of equal magnitudes only the first are in */
            size_t i = w * 64 + tg_lowest(word);
            mask[w] &= ~((uint64_t)(rank_of(u[i], at + i) < t->cut) << i % 64);
        }
    }
}

const tg_select_part tg_select_topk = {
    .part = {.name = "topk",
             .summary = "the largest magnitudes, ties to the lower index",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .by = TG_BY_DATA,
    .n_max = (UINT64_C(1) << INDEX_BITS) - 1, /* so that no rank is 0, which is below all */
    .most = most,
    .at_step = at_step,
    .scratch_len = scratch_len,
    .start = start,
    .measure = measure,
    .settle = settle,
    .mark = mark,
};
