/* The k largest magnitudes, ties to the lower index, found exactly in one pass without sorting.
 *
 * Each lane of the measuring pass collects candidates: elements whose magnitude reaches a bound, in the order of their
 * indices. The bound is estimated from a sample. If all lanes together find too few, the pass is repeated without a bound.
 * When a lane's buffer is full, it keeps its k largest candidates, and its bound rises to the smallest of them.
 *
 * The k largest are found by counting, as in a radix sort. Candidates are counted by the upper bits of their magnitude. The
 * cell that has the k-th largest is then counted by the bits below, and so on, until the k-th magnitude is known, and how
 * many candidates of exactly that magnitude are selected. At the end the same is done with the candidates of all lanes: each
 * lane counts its own, and the counts are added up. So the result does not depend on the number of lanes or on the estimate. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "select/select.h"

#include <math.h>
#include <string.h>

enum { RATIO = TG_SELECT_OWN, WARMUP };
#define WARMUP_RATIO 0.25 /* the ratio at step 0 of a warm-up */
enum { INDEX_BITS = 33 }; /* of a candidate; the other 31 bits are its magnitude */

static const tg_param params[] = {
    TG_SELECT_SCOPE_PARAM,
    TG_SELECT_COORDS_PARAM,
    TG_SELECT_RATIO_PARAM,
    {.name = "warmup",
     .summary = "steps in which the ratio falls exponentially from 0.25 to its value",
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
    uint64_t count; /* candidates; after the last turn those that are selected */
    uint32_t bound; /* a magnitude key; smaller magnitudes are not candidates */
    uint64_t left;  /* keys of candidates of which the turns so far do not tell whether they are selected */
    uint64_t ties;  /* candidates of exactly the smallest selected magnitude that are selected */
} lane;

/* The scratch buffer starts with this. The lanes follow, then the candidates of every lane, a key for each candidate, and
 * counters of every lane if there are several. */
typedef struct topk {
    uint64_t k, n;
    uint64_t lane_k;   /* candidates that a lane must keep: k, or all of its elements */
    uint64_t lane_cap; /* capacity of a lane's buffer */
    uint32_t lanes;
    lane *of_lane;        /* one a lane */
    uint64_t *candidates; /* of lane l from l * lane_cap on */
    uint32_t *keys;       /* scratch for a key of each candidate, likewise */
    uint32_t *counts;     /* CELLS a lane, with several lanes */
    uint64_t rank;        /* of the k-th largest among the keys that are left */
    uint32_t kth;         /* its upper bits, as many as are known */
} topk;

/* A candidate has its magnitude's key in the upper bits and its index in the lower ones. */
#define KEY_MASK 0x7fffffffu /* of a float's bits: its magnitude */
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)

/* Candidates that a lane of lane_n elements must keep, and the capacity of its buffer. */
#define LANE_K(k, lane_n) ((k) < (lane_n) ? (k) : (lane_n))
#define LANE_CAP(lane_k, lane_n) (2 * (lane_k) + TG_BLOCK < (lane_n) ? 2 * (lane_k) + TG_BLOCK : (lane_n))

/* ---- the k largest ----------------------------------------------------------------------------------------------------- */

/* The bits of a key by which candidates are counted in each round, from the highest on. */
enum { ROUNDS = 3, CELL_BITS = 12, CELLS = 1 << CELL_BITS };
static const struct {
    unsigned shift, bits;
} rounds[ROUNDS] = {{19, CELL_BITS}, {7, CELL_BITS}, {0, 7}};

/* As find_kth, for few keys: clearing counters would take longer than this. A pivot splits the keys, and those on the side of
 * the k-th largest stay. */
enum { FEW = 1024, TRIES = 64 };

static bool find_kth_of_few(uint32_t *kth, uint64_t *ties, uint32_t *keys, size_t *left, uint64_t *rank)
{
    size_t n = *left;
    uint64_t k = *rank;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t pivot = keys[n / 2];
        size_t above = 0, equal = 0, stay = 0;
        for (size_t i = 0; i < n; i++) {
            above += keys[i] > pivot ? 1 : 0;
            equal += keys[i] == pivot ? 1 : 0;
        }
        if (k > above && k <= above + equal) {
            *kth = pivot;
            *ties = k - above;
            return true;
        }
        bool is_above = k <= above;
        for (size_t i = 0; i < n; i++) {
            uint32_t key = keys[i];
            keys[stay] = key;
            stay += (is_above ? key > pivot : key < pivot) ? 1 : 0;
        }
        k -= is_above ? 0 : above + equal;
        n = stay;
    }
    *left = n;
    *rank = k;
    return false; /* keys that are ordered against it: by counting */
}

/* Returns the k-th largest of n keys (1 <= k <= n), and in *ties how many of the k largest have exactly that key. Reorders
 * the keys. */
static uint32_t find_kth(uint64_t *ties, uint32_t *keys, uint64_t n, uint64_t k)
{
    uint32_t kth = 0;
    size_t few = (size_t)n;
    if (n <= FEW) {
        if (find_kth_of_few(&kth, ties, keys, &few, &k)) {
            return kth;
        }
        n = few;
    }
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t counts[CELLS] = {0}, in_cell = 0;
        uint32_t last = (1u << rounds[r].bits) - 1, cell = last;
        for (uint64_t i = 0; i < n; i++) {
            counts[keys[i] >> rounds[r].shift & last]++;
        }
        for (; k > counts[cell]; cell--) {
            k -= counts[cell];
        }
        for (uint64_t i = 0; i < n; i++) {
            uint32_t key = keys[i];
            keys[in_cell] = key;
            in_cell += (key >> rounds[r].shift & last) == cell ? 1 : 0;
        }
        n = in_cell;
    }
    *ties = k;
    return keys[0];
}

/* Moves the k largest of n candidates to the front, in their order; of equal ones the first are kept. Returns the smallest of
 * their keys. `keys` is scratch for n keys. */
static uint32_t keep_largest(uint64_t *candidates, uint32_t *keys, uint64_t n, uint64_t k)
{
    uint64_t ties = 0, kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = (uint32_t)(candidates[i] >> INDEX_BITS);
    }
    uint32_t kth = find_kth(&ties, keys, n, k);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t key = (uint32_t)(candidates[i] >> INDEX_BITS);
        bool is_tie = key == kth, stays = key > kth || (is_tie && ties > 0);
        candidates[kept] = candidates[i];
        kept += stays ? 1 : 0;
        ties -= is_tie && stays ? 1 : 0;
    }
    return kth;
}

/* ---- the part ---------------------------------------------------------------------------------------------------------- */

static uint64_t scratch_len(const double *p, uint64_t n, uint32_t lanes, uint64_t lane_n)
{
    uint64_t k = most(p, n), lane_k = LANE_K(k, lane_n), lane_cap = LANE_CAP(lane_k, lane_n);
    uint64_t count_len = lanes > 1 ? CELLS * sizeof(uint32_t) : 0;
    return sizeof(topk) + lanes * (sizeof(lane) + lane_cap * (sizeof(uint64_t) + sizeof(uint32_t)) + count_len);
}

static void start(void *scratch, const double *p, uint64_t n, uint32_t lanes, uint64_t lane_n)
{
    topk *t = scratch;
    *t = (topk){.k = tg_ratio_entries(p[RATIO], n), .n = n, .lanes = lanes};
    t->lane_k = LANE_K(t->k, lane_n);
    t->lane_cap = LANE_CAP(t->lane_k, lane_n);
    t->of_lane = (lane *)(void *)(t + 1);
    t->candidates = (uint64_t *)(void *)(t->of_lane + lanes);
    t->keys = (uint32_t *)(void *)(t->candidates + lanes * t->lane_cap);
    t->counts = t->keys + lanes * t->lane_cap;
    memset(t->of_lane, 0, lanes * sizeof(lane));
}

/* Sets the bound of all lanes so that about k elements of the unit reach it, plus a margin of four standard deviations. */
static void estimate(void *scratch, const float *sample, size_t sample_n)
{
    const topk *t = scratch;
    uint32_t *keys = t->keys;
    uint64_t key_cap = t->lanes * t->lane_cap, ties = 0;
    size_t every = (size_t)((sample_n + key_cap - 1) / key_cap), n = 0; /* the sample may be longer than the buffer */
    for (size_t i = 0; i < sample_n; i += every) {
        memcpy(&keys[n], &sample[i], sizeof *keys);
        keys[n++] &= KEY_MASK;
    }
    double expected = (double)n * (double)t->k / (double)t->n, rank = expected + 4 * sqrt(expected) + 8;
    for (uint32_t l = 0; rank < (double)n && l < t->lanes; l++) {
        t->of_lane[l].bound = l > 0 ? t->of_lane[0].bound : find_kth(&ties, keys, n, (uint64_t)rank);
    }
}

/* Appends the elements of a block that reach the lane's bound to its candidates. */
static void measure(void *scratch, uint32_t l, uint64_t at, const float *u, size_t n)
{
    const tg_kernels *kernels = tg_kernels_best();
    topk *t = scratch;
    lane *mine = &t->of_lane[l];
    uint64_t mask[TG_BLOCK / 64];
    uint32_t list[TG_BLOCK + TG_LIST_MORE];
    if (t->k == 1 && n == t->n) { /* the only entry of a short unit */
        mine->bound = kernels->select.largest_key(u, n);
    }
    kernels->select.mark_keys(mask, u, mine->bound, n);
    size_t count = kernels->select.list_marks(list, mask, 0, n);
    if (count > t->lane_cap - mine->count) {
        mine->bound = keep_largest(t->candidates + l * t->lane_cap, t->keys + l * t->lane_cap, mine->count, t->lane_k);
        mine->count = t->lane_k;
    }
    uint64_t *candidates = t->candidates + l * t->lane_cap + mine->count;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &u[list[i]], sizeof bits);
        candidates[i] = (uint64_t)(bits & KEY_MASK) << INDEX_BITS | (at + list[i]);
    }
    mine->count += count;
}

/* ---- the end of the pass ----------------------------------------------------------------------------------------------- */

enum { TURN_KEEP = ROUNDS, TURNS }; /* a turn for each round of counting, and one to keep what is selected */

/* The keys that are left and have the upper bits of the k-th largest stay; of the first round all. */
static uint64_t drop_keys(uint32_t *keys, uint64_t n, uint32_t kth, unsigned shift)
{
    uint64_t left = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t key = keys[i];
        keys[left] = key;
        left += key >> shift == kth ? 1 : 0;
    }
    return left;
}

static void count_round(const topk *t, uint32_t l, uint32_t round)
{
    lane *mine = &t->of_lane[l];
    const uint64_t *candidates = t->candidates + l * t->lane_cap;
    uint32_t *keys = t->keys + l * t->lane_cap, *counts = t->counts + (size_t)l * CELLS;
    if (round == 0) {
        for (uint64_t i = 0; i < mine->count; i++) {
            keys[i] = (uint32_t)(candidates[i] >> INDEX_BITS);
        }
        mine->left = mine->count;
    } else {
        mine->left = drop_keys(keys, mine->left, t->kth, rounds[round - 1].shift);
    }
    memset(counts, 0, CELLS * sizeof *counts);
    for (uint64_t i = 0; i < mine->left; i++) {
        counts[keys[i] >> rounds[round].shift & ((1u << rounds[round].bits) - 1)]++;
    }
}

/* Moves the selected candidates of a lane to the front, in their order. */
static void keep_selected(const topk *t, uint32_t l)
{
    lane *mine = &t->of_lane[l];
    uint64_t *candidates = t->candidates + l * t->lane_cap, kept = 0, ties = mine->ties;
    for (uint64_t i = 0; i < mine->count; i++) {
        uint32_t key = (uint32_t)(candidates[i] >> INDEX_BITS);
        bool is_tie = key == t->kth, stays = key > t->kth || (is_tie && ties > 0);
        candidates[kept] = candidates[i];
        kept += stays ? 1 : 0;
        ties -= is_tie && stays ? 1 : 0;
    }
    mine->count = kept;
}

static void sift(void *scratch, uint32_t l, uint32_t turn)
{
    const topk *t = scratch;
    if (turn == TURN_KEEP) {
        keep_selected(t, l);
    } else {
        count_round(t, l, turn);
    }
}

/* False if fewer than k candidates were found, because the estimated bound was too high. A lane that dropped candidates still
 * has k of them. A single lane selects at once. */
static bool finish(void *scratch)
{
    topk *t = scratch;
    lane *first = &t->of_lane[0];
    uint64_t count = 0;
    for (uint32_t l = 0; l < t->lanes; l++) {
        count += t->of_lane[l].count;
    }
    if (count < t->k) {
        return false;
    }
    if (t->lanes == 1 && count > t->k) {
        (void)keep_largest(t->candidates, t->keys, count, t->k);
        first->count = t->k;
    }
    t->rank = t->k;
    t->kth = 0;
    return true;
}

/* Of the candidates with exactly the k-th magnitude the first are selected. */
static void share_ties(topk *t, uint32_t cell)
{
    uint64_t left = t->rank;
    for (uint32_t l = 0; l < t->lanes; l++) {
        uint64_t equal = t->counts[(size_t)l * CELLS + cell];
        t->of_lane[l].ties = equal < left ? equal : left;
        left -= t->of_lane[l].ties;
    }
}

/* Finds the cell of the k-th largest in the counts of all lanes. */
static void combine(void *scratch, uint32_t turn)
{
    topk *t = scratch;
    if (turn == TURN_KEEP) {
        return;
    }
    uint32_t cell = (1u << rounds[turn].bits) - 1;
    for (;; cell--) {
        uint64_t in_cell = 0;
        for (uint32_t l = 0; l < t->lanes; l++) {
            in_cell += t->counts[(size_t)l * CELLS + cell];
        }
        if (t->rank <= in_cell) {
            break;
        }
        t->rank -= in_cell;
    }
    t->kth = t->kth << rounds[turn].bits | cell;
    if (turn + 1 == ROUNDS) {
        share_ties(t, cell);
    }
}

/* ---- the result ---------------------------------------------------------------------------------------------------------- */

/* The position in a lane's result of the first index that is at least `at`. */
static uint64_t first_from(const topk *t, uint32_t l, uint64_t at)
{
    const uint64_t *chosen = t->candidates + l * t->lane_cap;
    uint64_t from = 0, to = t->of_lane[l].count; /* the position is in [from, to] */
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if ((chosen[middle] & INDEX_MASK) < at) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

static uint64_t list(uint32_t *list, uint64_t most, const void *scratch, uint64_t at, uint64_t n)
{
    const topk *t = scratch;
    uint64_t count = 0;
    for (uint32_t l = 0; l < t->lanes; l++) {
        const uint64_t *chosen = t->candidates + l * t->lane_cap;
        uint64_t from = first_from(t, l, at), to = first_from(t, l, at + n);
        for (uint64_t i = from; count + (to - from) <= most && i < to; i++) {
            list[count + (i - from)] = (uint32_t)((chosen[i] & INDEX_MASK) - at);
        }
        count += to - from;
    }
    return count;
}

static void mark(uint64_t *mask, const void *scratch, const double *p, uint64_t at, const float *u, size_t n)
{
    (void)p;
    (void)u;
    const topk *t = scratch;
    for (uint32_t l = 0; l < t->lanes; l++) {
        const uint64_t *chosen = t->candidates + l * t->lane_cap;
        for (uint64_t i = first_from(t, l, at), end = first_from(t, l, at + n); i < end; i++) {
            uint64_t bit = (chosen[i] & INDEX_MASK) - at;
            mask[bit / 64] |= UINT64_C(1) << bit % 64;
        }
    }
}

const tg_select_part tg_select_topk = {
    .part = {.name = "topk",
             .summary = "the largest magnitudes; ties go to the lower index",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .by = TG_BY_DATA,
    .n_max = (UINT64_C(1) << INDEX_BITS) - 1,
    .most = most,
    .at_step = at_step,
    .scratch_len = scratch_len,
    .start = start,
    .estimate = estimate,
    .measure = measure,
    .finish = finish,
    .turns = TURNS,
    .sift = sift,
    .combine = combine,
    .list = list,
    .mark = mark,
};
