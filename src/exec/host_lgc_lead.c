/* LGC on the host: indices as bytes. The leader's, with the order of coded values, and innovations. docs/format.md, section 10,
 * gives the bodies of these messages. */
#include "exec/host_lgc.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "exec/ordering.h"

#include <string.h>

/* ---- masks ------------------------------------------------------------------------------------------------------------- */

/* Writes or reads a mask of n elements, in chunks as in a frame. Both return the position after it. Reading validates its input:
 * NULL if the bytes are not a valid mask. */
static uint8_t *put_mask(uint8_t *out, const uint64_t *mask, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += TG_CHUNK) {
        size_t here = n - at < TG_CHUNK ? (size_t)(n - at) : TG_CHUNK;
        uint32_t count = (uint32_t)tg_mask_count(mask + at / 64, here);
        uint8_t mode = 0;
        size_t len =
            count == 0 ? 0 : tg_index_gaps.write_rans(out + TG_INDEX_HEADER, &mode, mask + at / 64, NULL, here, count);
        tg_put32(out, count | (uint32_t)mode << 24);
        tg_put16(out + 4, (uint16_t)len);
        out += TG_INDEX_HEADER + len;
    }
    return out;
}

static const uint8_t *get_mask(uint64_t *mask, uint64_t n, const uint8_t *bytes, const uint8_t *end)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (uint64_t at = 0; at < n; at += TG_CHUNK) {
        size_t here = n - at < TG_CHUNK ? (size_t)(n - at) : TG_CHUNK;
        if (end - bytes < (ptrdiff_t)TG_INDEX_HEADER) {
            return NULL;
        }
        uint32_t word = tg_get32(bytes), count = word & 0xffffff, len = tg_get16(bytes + 4);
        bytes += TG_INDEX_HEADER;
        if (count > here || end - bytes < (ptrdiff_t)len || (count == 0 && (word != 0 || len != 0)) ||
            (count > 0 && !tg_index_gaps.read_rans(mask + at / 64, (uint8_t)(word >> 24), bytes, len, here, count))) {
            return NULL;
        }
        bytes += len;
    }
    return bytes;
}

/* ---- the leader -------------------------------------------------------------------------------------------------------- */

/* Selects the largest magnitudes of each tensor. */
static void select_indices(const tg_host_lgc *h)
{
    const tg_lgc *l = h->lgc;
    memset(h->lead.mask, 0, tg_words(l->size.sparse_n) * sizeof *h->lead.mask);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE && tensor->n > 0) {
            memset(h->lead.part, 0, tg_words(tensor->n) * sizeof *h->lead.part);
            tg_host_lgc_mark_largest(h->lead.part, h, h->input.u + tensor->at, tensor->n, tensor->select_params);
            tg_mask_insert(h->lead.mask, tensor->sparse_at, h->lead.part, (size_t)tensor->n);
        }
    }
}

/* Whether the leader also sends its code. */
static bool has_code(const tg_lgc *l)
{
    return l->is_server && l->progress.phase == TG_LGC_PHASE_CODE;
}

void tg_host_lgc_write_lead(uint8_t *body, uint64_t *lead_len, uint64_t *code_len, tg_lgc *l)
{
    tg_host_lgc *h = l->own;
    select_indices(h);
    tg_host_lgc_pick(h);
    uint8_t *at = put_mask(body, h->lead.mask, l->size.sparse_n);
    if (l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE) {
        tg_host_lgc_choose_order(h, tg_host_lgc_own(h));
        tg_ordering_write(at, h->lead.order, (size_t)l->size.coded_n, h->lead.order_scratch);
        at += tg_ordering_len((size_t)l->size.coded_n);
    }
    *lead_len = (uint64_t)(at - body);
    if (has_code(l)) {
        tg_host_lgc_to_sequence(h->of.sequences, h, tg_host_lgc_own(h));
        tg_host_lgc_encode(h->of.code, h, h->of.sequences);
        at = tg_host_lgc_put_values(at, tg_lgc_code_type(l), h->of.code, l->size.code_n);
    }
    *code_len = (uint64_t)(at - body) - *lead_len;
}

/* Whether each tensor has the right number of indices. */
static bool counts_are_right(const tg_host_lgc *h)
{
    const tg_lgc *l = h->lgc;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            tg_mask_extract(h->lead.part, h->lead.mask, tensor->sparse_at, (size_t)tensor->n);
            if (tg_mask_count(h->lead.part, tensor->n) != tensor->k) {
                return false;
            }
        }
    }
    return true;
}

bool tg_host_lgc_follow(tg_lgc *l, const uint8_t *body, uint64_t len)
{
    const tg_host_lgc *h = l->own;
    const uint8_t *end = body + len, *at = get_mask(h->lead.mask, l->size.sparse_n, body, end);
    if (at == NULL || !counts_are_right(h)) {
        return false;
    }
    if (l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE) {
        size_t order_len = tg_ordering_len((size_t)l->size.coded_n);
        if ((uint64_t)(end - at) < order_len ||
            !tg_ordering_read(h->lead.order, at, (size_t)l->size.coded_n, h->lead.order_scratch)) {
            return false;
        }
        at += order_len;
    }
    if (has_code(l)) {
        tg_dtype type = tg_lgc_code_type(l);
        if ((uint64_t)(end - at) < l->size.code_n * tg_dtype_len(type)) {
            return false;
        }
        at = tg_host_lgc_get_values(h->of.mean_code, type, at, l->size.code_n);
    }
    if (at != end) {
        return false;
    }
    tg_host_lgc_pick(h);
    return true;
}

/* ---- innovations ------------------------------------------------------------------------------------------------------- */

uint64_t tg_host_lgc_innovate(uint8_t *out, tg_lgc *l)
{
    const tg_host_lgc *h = l->own;
    tg_host_lgc_to_sequence(h->of.sequences, h, tg_host_lgc_own(h));
    tg_host_lgc_keep_largest(h->of.innovations, h->lead.part, h, h->of.sequences);
    uint8_t *at = put_mask(out, h->lead.part, l->size.coded_n);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        if (h->lead.part[i / 64] >> i % 64 & 1) {
            tg_put32(at, tg_float_bits(h->of.innovations[i]));
            at += 4;
        }
    }
    return (uint64_t)(at - out);
}

bool tg_host_lgc_add_innovation(tg_lgc *l, uint32_t p, const uint8_t *bytes, uint64_t len)
{
    const tg_host_lgc *h = l->own;
    const uint8_t *end = bytes + len, *at = get_mask(h->lead.part, l->size.coded_n, bytes, end);
    if (at == NULL || tg_mask_count(h->lead.part, l->size.coded_n) != l->size.innovation_n ||
        (uint64_t)(end - at) != 4 * l->size.innovation_n) {
        return false;
    }
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        bool known = h->lead.part[i / 64] >> i % 64 & 1;
        h->of.innovations[i] = known ? tg_bits_float(tg_get32(at)) : 0.0f;
        at += known ? 4 : 0;
    }
    float *sum = h->sum.average + tg_lgc_vector_n(l);
    tg_host_lgc_decode(h->of.sequences, h, p, h->of.mean_code, h->of.innovations);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        sum[i] = (p == 0 ? 0.0f : sum[i]) + h->of.sequences[i];
    }
    return true;
}

void tg_host_lgc_end_innovations(tg_lgc *l)
{
    const tg_host_lgc *h = l->own;
    float *mean = h->sum.average + tg_lgc_vector_n(l);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        h->of.sequences[i] = mean[i] / (float)l->world;
    }
    tg_host_lgc_from_sequence(mean, h, h->of.sequences);
}
