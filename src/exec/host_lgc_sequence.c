/* LGC on the host: converts coded values to the autoencoder's sequences, and back: normalised by tensor, in the leader's order. */
#include "exec/host_lgc.h"

#include "base/bits.h"
#include "base/half.h"
#include "base/sort.h"

#include <math.h>
#include <string.h>

void tg_host_lgc_mark_largest(uint64_t *mask, const tg_host_lgc *h, const float *values, uint64_t n,
                              const double *params)
{
    uint64_t lane_n = n == 0 ? 1 : n;
    tg_select_topk.start(h->lead.scratch, params, n, 1, lane_n);
    for (uint64_t at = 0; at < n; at += TG_BLOCK) {
        size_t block = n - at < TG_BLOCK ? (size_t)(n - at) : TG_BLOCK;
        tg_select_topk.measure(h->lead.scratch, 0, at, values + at, block);
    }
    (void)tg_select_topk.finish(h->lead.scratch); /* there was no estimate */
    for (uint64_t at = 0; at < n; at += TG_BLOCK) {
        size_t block = n - at < TG_BLOCK ? (size_t)(n - at) : TG_BLOCK;
        tg_select_topk.mark(mask + at / 64, h->lead.scratch, params, at, values + at, block);
    }
}

/* Divides coded values, in index order, by the scales of their tensors; `back`: multiplies them. */
static void normalise(float *out, const tg_host_lgc *h, const float *values, bool back)
{
    uint64_t i = 0;
    for (size_t t = 0; t < h->lgc->layout->tensor_n; t++) {
        float scale = h->state.scales[t] > 0 ? h->state.scales[t] : 1.0f;
        for (uint64_t end = i + tg_lgc_coded(h->lgc, t); i < end; i++) {
            out[i] = back ? values[i] * scale : values[i] / scale;
        }
    }
}

void tg_host_lgc_choose_order(tg_host_lgc *h, const float *values)
{
    normalise(h->of.decoded, h, values, false);
    for (uint64_t i = 0; i < h->lgc->size.coded_n; i++) {
        uint32_t bits = tg_float_bits(h->of.decoded[i]);
        uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u; /* grows with the value */
        h->lead.keys[i] = (uint64_t)key << 32 | i;
    }
    tg_sort(h->lead.keys, (size_t)h->lgc->size.coded_n);
    for (uint64_t i = 0; i < h->lgc->size.coded_n; i++) {
        h->lead.order[i] = (uint32_t)h->lead.keys[i];
    }
}

void tg_host_lgc_to_sequence(float *sequence, const tg_host_lgc *h, const float *values)
{
    normalise(h->of.decoded, h, values, false);
    for (uint64_t i = 0; i < h->lgc->size.coded_n; i++) {
        sequence[i] = h->of.decoded[h->lead.order[i]];
    }
}

void tg_host_lgc_from_sequence(float *values, const tg_host_lgc *h, const float *sequence)
{
    for (uint64_t i = 0; i < h->lgc->size.coded_n; i++) {
        values[h->lead.order[i]] = sequence[i];
    }
    normalise(values, h, values, true);
}

void tg_host_lgc_keep_largest(float *innovation, uint64_t *mask, const tg_host_lgc *h, const float *sequence)
{
    const double params[TG_PARAM_CAP] = {[TG_SELECT_RATIO] = h->lgc->params[TG_LGC_SHARE]};
    memset(mask, 0, tg_words(h->lgc->size.coded_n) * sizeof *mask);
    tg_host_lgc_mark_largest(mask, h, sequence, h->lgc->size.coded_n, params);
    for (uint64_t i = 0; i < h->lgc->size.coded_n; i++) {
        innovation[i] = mask[i / 64] >> i % 64 & 1 ? sequence[i] : 0.0f;
    }
}

static void unify_nans(float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        values[i] = isnan(values[i]) ? tg_bits_float(0x7fc00000u) : values[i];
    }
}

void tg_host_lgc_encode(float *code, const tg_host_lgc *h, const float *sequence)
{
    tg_autoencoder_encode(code, h->autoencoder, sequence);
    unify_nans(code, h->lgc->size.code_n);
}

void tg_host_lgc_decode(float *sequence, const tg_host_lgc *h, uint32_t decoder, const float *code,
                        const float *innovation)
{
    tg_autoencoder_decode(sequence, h->autoencoder, decoder, code, innovation);
    unify_nans(sequence, h->lgc->size.coded_n);
}
