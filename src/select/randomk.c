/* A random set of elements; every set of its size is equally likely. Numbers are drawn until enough of them are different; of
 * sets that are more than half of all, those are drawn that are left out. The draws do not depend on each other. They go into a
 * bitmap, so the set is sorted. */
#include "base/bits.h"
#include "select/select.h"

#include <string.h>

static const tg_param params[] = {
    TG_SELECT_SCOPE_PARAM,
    TG_SELECT_COORDS_AUTO_PARAM,
    TG_SELECT_RATIO_PARAM,
    TG_SELECT_UNBIASED_PARAM,
};

static uint64_t scratch_len(const double *p, uint64_t n, uint32_t lanes, uint64_t lane_n)
{
    (void)p;
    (void)lanes;
    (void)lane_n;
    return tg_words(n) * sizeof(uint64_t);
}

static void draw(void *scratch, const double *p, uint64_t n, const tg_stream *stream)
{
    uint64_t *taken = scratch;
    uint64_t most = tg_ratio_most(p, n), wanted = most <= n - most ? most : n - most;
    memset(taken, 0, tg_words(n) * sizeof *taken);
    for (uint64_t i = 0, count = 0; count < wanted; i++) {
        uint64_t at = tg_stream_below(stream, i, n), bit = UINT64_C(1) << at % 64;
        count += (taken[at / 64] & bit) == 0 ? 1 : 0;
        taken[at / 64] |= bit;
    }
    for (uint64_t w = 0; wanted < most && w < tg_words(n); w++) {
        taken[w] = ~taken[w]; /* bits after the last element are never read */
    }
}

static void mark(uint64_t *mask, const void *scratch, const double *p, uint64_t at, const float *u, size_t n)
{
    (void)p;
    (void)u;
    tg_mask_extract(mask, scratch, at, n);
}

const tg_select_part tg_select_randomk = {
    .part = {.name = "randomk",
             .summary = "a random set of elements",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .by = TG_BY_SEED,
    .most = tg_ratio_most,
    .gain = tg_unbiased_gain,
    .scratch_len = scratch_len,
    .draw = draw,
    .mark = mark,
};
