/* ORQ (arXiv 2002.11082): S levels placed optimally for each bucket; values round to a neighbouring level at random without
 * bias. */
#include "kernels/kernels.h"
#include "quantize/bucket.h"
#include "quantize/levels.h"

#include <math.h>
#include <string.h>

enum { S, BUCKET, LEVELS, HALF, CLIP };
enum { LEVELS_GREEDY = 0, S_MAX = 17 };

static const char *const levels_choices[] = {"greedy", "exact", NULL};
static const char *const half_choices[] = {"no", "yes", NULL};

static const tg_param params[] = {
    {.name = "S",
     .summary = "number of levels; with levels=greedy 3, 5, 9 or 17",
     .lowest = 2,
     .highest = S_MAX,
     .is_whole = true,
     .is_main = true,
     .standard = 9},
    TG_BUCKET_PARAM,
    {.name = "levels",
     .summary = "greedy: the paper's rule, halving recursively; exact: the optimal levels",
     .choices = levels_choices,
     .standard = LEVELS_GREEDY},
    {.name = "half", .summary = "whether levels are sent as fp16", .choices = half_choices, .standard = 0},
    TG_CLIP_PARAM,
};

static uint32_t base(const double *p)
{
    return (uint32_t)p[S];
}

static uint32_t level_len(const double *p)
{
    return p[HALF] != 0 ? 2 : 4;
}

static uint32_t side_len(const double *p)
{
    return base(p) * level_len(p);
}

/* For levels=exact a copy of the values follows the scratch buffer of tg_levels_exact. */
static uint64_t scratch_len(const double *p)
{
    uint64_t values_len = (uint64_t)p[BUCKET] * sizeof(float);
    return p[LEVELS] == LEVELS_GREEDY ? 4 * values_len
                                      : tg_levels_scratch_len(base(p), (uint64_t)p[BUCKET]) + values_len;
}

static const char *refuses(const double *p)
{
    bool halves = p[S] == 3 || p[S] == 5 || p[S] == 9 || p[S] == 17;
    return p[LEVELS] != LEVELS_GREEDY || halves ? NULL
                                                : "levels=greedy needs S to be 3, 5, 9 or 17; levels=exact takes any S";
}

static void get_levels(float *levels, const uint8_t *side, const double *p)
{
    for (uint32_t i = 0; i < base(p); i++) {
        levels[i] = p[HALF] != 0 ? tg_fp16_to_float(tg_get16(side + 2 * i)) : tg_get_float(side + 4 * i);
    }
}

static uint32_t table(float *values, const uint8_t *side, const double *p)
{
    get_levels(values, side, p);
    return base(p);
}

/* Writes the levels as side data, and returns them as the decoder will see them. */
static void choose(float *levels, const tg_bucket *b, const double *p)
{
    if (p[LEVELS] == LEVELS_GREEDY) {
        tg_levels_greedy(levels, base(p), b->values, b->n, b->scratch);
    } else {
        float *copy = (float *)(void *)((char *)b->scratch + tg_levels_scratch_len(base(p), (uint64_t)p[BUCKET]));
        memcpy(copy, b->values, b->n * sizeof *copy);
        tg_levels_exact(levels, base(p), copy, b->n, b->scratch);
    }
    for (uint32_t i = 0; i < base(p); i++) {
        if (p[HALF] != 0) {
            uint16_t half = tg_float_to_fp16(levels[i]);
            tg_put16(b->side + 2 * i, half == 0x8000 ? 0 : half); /* no level is -0 */
        } else {
            tg_put_float(b->side + 4 * i, levels[i]);
        }
    }
    get_levels(levels, b->side, p);
}

static void encode_bucket(const tg_bucket *given, const double *p)
{
    float levels[S_MAX];
    if (!tg_bucket_check_finite(given, side_len(p), level_len(p))) {
        return;
    }
    tg_bucket clipped;
    const tg_bucket *b = tg_bucket_clip(&clipped, given, p[CLIP]);
    choose(levels, b, p);
    /* If the range overflows fp32, work with halved values. */
    float scale = isinf(levels[base(p) - 1] - levels[0]) ? 0.5f : 1.0f;
    for (uint32_t i = 0; i < base(p); i++) {
        levels[i] *= scale;
    }
    tg_kernels_best()->symbols.round_between(b->symbols, b->values, &b->draws, levels, base(p), scale, b->n);
}

static bool draws(const double *p)
{
    (void)p;
    return true;
}

const tg_quantize_part tg_quantize_orq = {
    .part = {.name = "orq",
             .summary = "ORQ: S levels placed optimally for each bucket, unbiased",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_param = BUCKET,
    .side_len = side_len,
    .scratch_len = scratch_len,
    .draws = draws,
    .refuses = refuses,
    .encode_bucket = encode_bucket,
    .table = table,
};
