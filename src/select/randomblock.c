/* One random block of consecutive elements (arXiv 2009.09271), which may wrap around the end of the unit. If all ranks share
 * the block, values are summed without sending indices. */
#include "base/bits.h"
#include "select/select.h"

static const tg_param params[] = {
    TG_SELECT_SCOPE_PARAM,
    TG_SELECT_COORDS_AUTO_PARAM,
    TG_SELECT_RATIO_PARAM,
    TG_SELECT_UNBIASED_PARAM,
};

/* The block as two ranges [from, to); the second is empty unless the block wraps around. */
typedef struct block {
    uint64_t from[2], to[2];
} block;

static uint64_t scratch_len(const double *p, uint64_t n, uint32_t lanes, uint64_t lane_n)
{
    (void)p;
    (void)n;
    (void)lanes;
    (void)lane_n;
    return sizeof(block);
}

static void draw(void *scratch, const double *p, uint64_t n, const tg_stream *stream)
{
    block *b = scratch;
    uint64_t entries = tg_ratio_most(p, n);
    uint64_t start = tg_stream_below(stream, 0, n);
    uint64_t before_end = n - start < entries ? n - start : entries;
    *b = (block){.from = {start, 0}, .to = {start + before_end, entries - before_end}};
}

static void mark(uint64_t *mask, const void *scratch, const double *p, uint64_t at, const float *u, size_t n)
{
    (void)p;
    (void)u;
    const block *b = scratch;
    for (int s = 0; s < 2; s++) {
        uint64_t from = b->from[s] > at ? b->from[s] - at : 0;
        uint64_t to = b->to[s] > at ? b->to[s] - at : 0;
        tg_mask_fill(mask, from, to < n ? to : n);
    }
}

const tg_select_part tg_select_randomblock = {
    .part = {.name = "randomblock",
             .summary = "one random block of consecutive elements, which may wrap around",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .by = TG_BY_SEED,
    .most = tg_ratio_most,
    .gain = tg_unbiased_gain,
    .scratch_len = scratch_len,
    .draw = draw,
    .mark = mark,
};
