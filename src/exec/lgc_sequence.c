/* LGC: converts coded values to the autoencoder's sequences, and back: normalised by tensor, in the leader's order. */
#include "exec/lgc.h"

#include "base/bits.h"
#include "base/half.h"
#include "base/sort.h"

#include <string.h>

void tg_lgc_mark_largest(uint64_t *mask, const tg_lgc *l, const float *values, uint64_t n, const double *params)
{
    uint64_t lane_n = n == 0 ? 1 : n;
    tg_select_topk.start(l->lead.scratch, params, n, 1, lane_n);
    for (uint64_t at = 0; at < n; at += TG_BLOCK) {
        size_t block = n - at < TG_BLOCK ? (size_t)(n - at) : TG_BLOCK;
        tg_select_topk.measure(l->lead.scratch, 0, at, values + at, block);
    }
    (void)tg_select_topk.finish(l->lead.scratch); /* there was no estimate */
    for (uint64_t at = 0; at < n; at += TG_BLOCK) {
        size_t block = n - at < TG_BLOCK ? (size_t)(n - at) : TG_BLOCK;
        tg_select_topk.mark(mask + at / 64, l->lead.scratch, params, at, values + at, block);
    }
}

/* Divides coded values, in index order, by the scales of their tensors; `back`: multiplies them. */
static void normalise(float *out, const tg_lgc *l, const float *values, bool back)
{
    uint64_t i = 0;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        float scale = l->state.scales[t] > 0 ? l->state.scales[t] : 1.0f;
        for (uint64_t end = i + tg_lgc_coded(l, t); i < end; i++) {
            out[i] = back ? values[i] * scale : values[i] / scale;
        }
    }
}

void tg_lgc_choose_order(tg_lgc *l, const float *values)
{
    normalise(l->of.decoded, l, values, false);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        uint32_t bits = tg_float_bits(l->of.decoded[i]);
        uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u; /* grows with the value */
        l->lead.keys[i] = (uint64_t)key << 32 | i;
    }
    tg_sort(l->lead.keys, (size_t)l->size.coded_n);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        l->lead.order[i] = (uint32_t)l->lead.keys[i];
    }
}

void tg_lgc_to_sequence(float *sequence, const tg_lgc *l, const float *values)
{
    normalise(l->of.decoded, l, values, false);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        sequence[i] = l->of.decoded[l->lead.order[i]];
    }
}

void tg_lgc_from_sequence(float *values, const tg_lgc *l, const float *sequence)
{
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        values[l->lead.order[i]] = sequence[i];
    }
    normalise(values, l, values, true);
}

void tg_lgc_innovate(float *innovation, uint64_t *mask, const tg_lgc *l, const float *sequence)
{
    const double params[TG_PARAM_CAP] = {[TG_SELECT_RATIO] = l->params[TG_LGC_SHARE]};
    memset(mask, 0, tg_words(l->size.coded_n) * sizeof *mask);
    tg_lgc_mark_largest(mask, l, sequence, l->size.coded_n, params);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        innovation[i] = mask[i / 64] >> i % 64 & 1 ? sequence[i] : 0.0f;
    }
}
