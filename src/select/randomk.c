/* A random set of elements; every set of its size is equally likely. Floyd's algorithm draws one number for each element
 * of the set. It draws into a bitmap, so the set is sorted. */
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
    memset(taken, 0, tg_words(n) * sizeof *taken);
    uint64_t first = n - tg_ratio_most(p, n);
    for (uint64_t j = first; j < n; j++) {
        uint64_t t = tg_stream_below(stream, j - first, j + 1);
        if (taken[t / 64] >> t % 64 & 1) {
            t = j;
        }
        taken[t / 64] |= UINT64_C(1) << t % 64;
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
