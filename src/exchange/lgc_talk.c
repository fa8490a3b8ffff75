/* LGC: what ranks tell each other. Every message is
 *
 *     "TGLG", u8 topic, u8 phase, u16 zero, u32 rank, u32 slice, u64 step, u64 bytes of the body; body; XXH64 of it all
 *
 * and bodies, all little-endian:
 *
 *     LEAD      the leader's coordinates among all elements of sparse tensors, in chunks as in frames; with order=value the
 *               order of the coded ones; of a server's leader in the last phase its code
 *     SLICE     of the vector, to its owner            SUM       its mean, from the owner
 *     VALUES    the whole vector
 *     REPORT    the vector; places of the innovation in the sequence, in chunks; their values
 *     ANSWER    the averages, from rank 0
 *
 * What the vector is lgc_vector.c tells. */
#include "exchange/lgc.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "base/hash.h"
#include "exchange/ordering.h"
#include "kernels/kernels.h"

#include <string.h>

typedef enum topic { LEAD = 1, SLICE, SUM, VALUES, REPORT, ANSWER } topic;

enum { HEADER = 32, HASH = 8, ROUNDS_MAX = 3 };

/* What is talked about in each round: of phase 1, 2, 3 by a ring, 3 by a server. */
static const topic scripts[4][ROUNDS_MAX] = {{SLICE, SUM}, {LEAD, VALUES}, {LEAD, SLICE, SUM}, {LEAD, REPORT, ANSWER}};

static const topic *script_of(const tg_lgc *l)
{
    bool by_server = l->is_server && l->progress.phase == TG_LGC_PHASE_CODE;
    return scripts[l->progress.phase - 1 + (by_server ? 1 : 0)];
}

uint32_t tg_lgc_rounds(const tg_exchange *x)
{
    const topic *script = script_of(x->lgc);
    uint32_t n = 0;
    while (n < ROUNDS_MAX && script[n] != 0) {
        n++;
    }
    return n;
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

uint64_t tg_lgc_message_max(const tg_lgc *l)
{
    uint64_t chunks = (l->sparse_n + TG_CHUNK - 1) / TG_CHUNK;
    uint64_t lead =
        chunks * (TG_CHUNK_HEADER + 1) + l->sparse_n / 8 + tg_ordering_len((size_t)l->coded_n) + 4 * l->code_n;
    uint64_t values = 4 * (l->whole_n + l->picked_n + l->coded_n + l->code_n);
    uint64_t innovation = (l->coded_n / TG_CHUNK + 1) * (TG_CHUNK_HEADER + 1) + l->coded_n / 8 + 4 * l->innovation_n;
    uint64_t slice = 4 * (l->n / l->world + 1);
    uint64_t most = lead > values + innovation ? lead : values + innovation;
    return HEADER + HASH + (most > slice ? most : slice);
}

/* Puts header and hash around a body that is there already. */
static tg_framed seal(const tg_exchange *x, uint8_t *message, topic about, uint32_t slice, uint64_t body_len)
{
    memcpy(message, "TGLG", 4);
    message[4] = (uint8_t)about;
    message[5] = (uint8_t)x->lgc->progress.phase;
    tg_put16(message + 6, 0);
    tg_put32(message + 8, x->rank);
    tg_put32(message + 12, slice);
    tg_put64(message + 16, x->step);
    tg_put64(message + 24, body_len);
    tg_put64(message + HEADER + body_len, tg_hash(message, (size_t)(HEADER + body_len)));
    return (tg_framed){.len = (size_t)(HEADER + body_len + HASH), .payload_len = (size_t)body_len};
}

/* The body of what rank p has said; NULL and a sentence if it is not what is expected. */
static const uint8_t *open_message(uint64_t *body_len, const tg_exchange *x, uint32_t p, topic about, uint32_t slice,
                                   tg_detail *why)
{
    tg_message m = tg_exchange_heard(x, p);
    uint8_t wanted[HEADER];
    memcpy(wanted, "TGLG", 4);
    wanted[4] = (uint8_t)about;
    wanted[5] = (uint8_t)x->lgc->progress.phase;
    tg_put16(wanted + 6, 0);
    tg_put32(wanted + 8, p);
    tg_put32(wanted + 12, slice);
    tg_put64(wanted + 16, x->step);
    if (m.len < HEADER + HASH || memcmp(m.data, wanted, 24) != 0 || tg_get64(m.data + 24) != m.len - HEADER - HASH ||
        tg_get64(m.data + m.len - HASH) != tg_hash(m.data, m.len - HASH)) {
        (void)tg_fail(TG_E_FRAME, why, "from rank %u: the message is damaged, or not the one that is due", p);
        return NULL;
    }
    *body_len = m.len - HEADER - HASH;
    return m.data + HEADER;
}

static tg_status makes_no_sense(uint32_t p, tg_detail *why)
{
    return tg_fail(TG_E_FRAME, why, "from rank %u: the message makes no sense", p);
}

/* ---- coordinates ----------------------------------------------------------------------------------------------------- */

/* A mask of n elements, in chunks as frames have them. */
static uint8_t *put_mask(uint8_t *out, const uint64_t *mask, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += TG_CHUNK) {
        size_t here = n - at < TG_CHUNK ? (size_t)(n - at) : TG_CHUNK;
        uint32_t count = (uint32_t)tg_mask_count(mask + at / 64, here);
        uint8_t mode = 0;
        size_t len =
            count == 0 ? 0 : tg_index_gaps.write_rans(out + TG_CHUNK_HEADER, &mode, mask + at / 64, NULL, here, count);
        tg_put32(out, count | (uint32_t)mode << 24);
        tg_put16(out + 4, (uint16_t)len);
        out += TG_CHUNK_HEADER + len;
    }
    return out;
}

static const uint8_t *get_mask(uint64_t *mask, uint64_t n, const uint8_t *bytes, const uint8_t *end)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (uint64_t at = 0; at < n; at += TG_CHUNK) {
        size_t here = n - at < TG_CHUNK ? (size_t)(n - at) : TG_CHUNK;
        if (end - bytes < (ptrdiff_t)TG_CHUNK_HEADER) {
            return NULL;
        }
        uint32_t word = tg_get32(bytes), count = word & 0xffffff, len = tg_get16(bytes + 4);
        bytes += TG_CHUNK_HEADER;
        if (count > here || end - bytes < (ptrdiff_t)len || (count == 0 && (word != 0 || len != 0)) ||
            (count > 0 && !tg_index_gaps.read_rans(mask + at / 64, (uint8_t)(word >> 24), bytes, len, here, count))) {
            return NULL;
        }
        bytes += len;
    }
    return bytes;
}

/* The largest magnitudes of each tensor. */
static void choose(const tg_lgc *l)
{
    memset(l->mask, 0, tg_words(l->sparse_n) * sizeof *l->mask);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE && tensor->n > 0) {
            memset(l->part, 0, tg_words(tensor->n) * sizeof *l->part);
            tg_lgc_mark_largest(l->part, l, l->u + tensor->at, tensor->n, tensor->select_params);
            tg_mask_insert(l->mask, tensor->sparse_at, l->part, (size_t)tensor->n);
        }
    }
}

static tg_status say_lead(tg_exchange *x)
{
    tg_lgc *l = x->lgc;
    x->op_kind = TG_BROADCAST;
    x->root = (uint32_t)(x->step % x->world);
    if (x->rank != x->root) {
        return TG_OK;
    }
    choose(l);
    tg_lgc_pick_values(l);
    uint8_t *body = x->out + HEADER, *at = put_mask(body, l->mask, l->sparse_n);
    if (l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE) {
        tg_lgc_choose_order(l, tg_lgc_own_values(l));
        tg_ordering_write(at, l->order, (size_t)l->coded_n, l->room);
        at += tg_ordering_len((size_t)l->coded_n);
    }
    l->lead_len = (uint64_t)(at - body);
    if (l->is_server && l->progress.phase == TG_LGC_PHASE_CODE) {
        tg_lgc_to_sequence(l->sequences, l, tg_lgc_own_values(l));
        tg_autoencoder_encode(l->code, l->autoencoder, l->sequences);
        for (uint64_t i = 0; i < l->code_n; i++) {
            at = tg_lgc_put_code(at, tg_lgc_code_type(l), l->code[i]);
        }
        l->coded_len += (uint64_t)(at - body) - l->lead_len;
    }
    tg_framed framed = seal(x, x->out, LEAD, 0, (uint64_t)(at - body));
    tg_exchange_send_all(x, x->out, &framed);
    return TG_OK;
}

/* As many coordinates in each tensor as there must be. */
static bool counts_are_right(const tg_lgc *l)
{
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            tg_mask_extract(l->part, l->mask, tensor->sparse_at, (size_t)tensor->n);
            if (tg_mask_count(l->part, tensor->n) != tensor->k) {
                return false;
            }
        }
    }
    return true;
}

static tg_status hear_lead(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    uint64_t len = 0;
    const uint8_t *at = open_message(&len, x, x->root, LEAD, 0, why);
    if (at == NULL) {
        return TG_E_FRAME;
    }
    const uint8_t *end = at + len;
    at = get_mask(l->mask, l->sparse_n, at, end);
    if (at == NULL || !counts_are_right(l)) {
        return makes_no_sense(x->root, why);
    }
    if (l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE) {
        size_t order_len = tg_ordering_len((size_t)l->coded_n);
        if ((uint64_t)(end - at) < order_len || !tg_ordering_read(l->order, at, (size_t)l->coded_n, l->room)) {
            return makes_no_sense(x->root, why);
        }
        at += order_len;
    }
    if (l->is_server && l->progress.phase == TG_LGC_PHASE_CODE) {
        tg_dtype type = tg_lgc_code_type(l);
        if ((uint64_t)(end - at) < l->code_n * tg_dtype_len(type)) {
            return makes_no_sense(x->root, why);
        }
        for (uint64_t i = 0; i < l->code_n; i++) {
            at = tg_lgc_get_code(&l->mean_code[i], type, at);
        }
    }
    if (at != end) {
        return makes_no_sense(x->root, why);
    }
    tg_lgc_pick_values(l);
    return TG_OK;
}

/* ---- sums by owners -------------------------------------------------------------------------------------------------- */

static uint64_t slice_at(const tg_lgc *l, uint32_t slice)
{
    return tg_slice_start(tg_lgc_vector_n(l), slice, l->world);
}

static tg_status say_slices(tg_exchange *x)
{
    const tg_lgc *l = x->lgc;
    uint8_t *at = x->out;
    x->op_kind = TG_ALLTOALLV;
    for (uint32_t s = 0; s < x->world; s++) {
        uint64_t from = slice_at(l, s), to = slice_at(l, s + 1);
        (void)tg_lgc_put_stretch(at + HEADER, l, l->vector, from, to);
        tg_framed framed = seal(x, at, SLICE, s, tg_lgc_stretch_len(l, from, to));
        tg_exchange_send(x, s, at, &framed);
        at += framed.len;
    }
    return TG_OK;
}

/* The sum of elements [from, to) of all ranks' vectors times `share`, in rank order, into l->average. A report has more
 * behind them. */
static tg_status add_heard(tg_exchange *x, topic about, uint64_t from, uint64_t to, float share, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    uint32_t slice = about == SLICE ? x->rank : 0;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = 0;
        const uint8_t *body = open_message(&len, x, p, about, slice, why);
        if (body == NULL) {
            return TG_E_FRAME;
        }
        uint64_t own_len = tg_lgc_stretch_len(l, from, to);
        if (len < own_len || (about != REPORT && len != own_len)) {
            return makes_no_sense(p, why);
        }
        float *into = p == 0 ? l->average : l->vector;
        tg_lgc_get_stretch(into, l, body, from, to);
        if (about == VALUES) {
            memcpy(l->values + p * (l->coded_n + l->picked_n), into + l->whole_n + l->picked_n,
                   l->coded_n * sizeof *into);
        }
        for (uint64_t i = from; i < to; i++) {
            l->average[i] = p == 0 ? share * l->average[i] : l->average[i] + share * l->vector[i];
        }
    }
    return TG_OK;
}

/* The mean of the same; finite values have a finite one. */
static tg_status sum_heard(tg_exchange *x, topic about, uint64_t from, uint64_t to, tg_detail *why)
{
    float *average = x->lgc->average, share = 1.0f;
    TG_TRY(add_heard(x, about, from, to, share, why));
    if (!tg_all_finite(average + from, (size_t)(to - from))) {
        share = tg_average_share(x->world);
        TG_TRY(add_heard(x, about, from, to, share, why));
    }
    tg_average_shared(average + from, share, x->world, (size_t)(to - from));
    return TG_OK;
}

static tg_status say_sum(tg_exchange *x)
{
    const tg_lgc *l = x->lgc;
    uint64_t from = slice_at(l, x->rank), to = slice_at(l, x->rank + 1);
    x->op_kind = TG_ALLGATHERV;
    (void)tg_lgc_put_stretch(x->out + HEADER, l, l->average, from, to);
    tg_framed framed = seal(x, x->out, SUM, x->rank, tg_lgc_stretch_len(l, from, to));
    tg_exchange_send_all(x, x->out, &framed);
    return TG_OK;
}

static tg_status hear_sums(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    for (uint32_t s = 0; s < x->world; s++) {
        uint64_t len = 0, from = slice_at(l, s), to = slice_at(l, s + 1);
        const uint8_t *body = open_message(&len, x, s, SUM, s, why);
        if (body == NULL) {
            return TG_E_FRAME;
        }
        if (len != tg_lgc_stretch_len(l, from, to)) {
            return makes_no_sense(s, why);
        }
        tg_lgc_get_stretch(l->average, l, body, from, to);
    }
    return TG_OK;
}

static tg_status say_values(tg_exchange *x)
{
    const tg_lgc *l = x->lgc;
    x->op_kind = TG_ALLGATHERV;
    (void)tg_lgc_put_stretch(x->out + HEADER, l, l->vector, 0, tg_lgc_vector_n(l));
    tg_framed framed = seal(x, x->out, VALUES, 0, tg_lgc_stretch_len(l, 0, tg_lgc_vector_n(l)));
    tg_exchange_send_all(x, x->out, &framed);
    return TG_OK;
}

/* ---- the server ------------------------------------------------------------------------------------------------------ */

static tg_status say_report(tg_exchange *x)
{
    tg_lgc *l = x->lgc;
    x->op_kind = TG_GATHERV;
    x->root = 0;
    uint8_t *at = tg_lgc_put_stretch(x->out + HEADER, l, l->vector, 0, tg_lgc_vector_n(l)), *behind = at;
    tg_lgc_to_sequence(l->sequences, l, tg_lgc_own_values(l));
    tg_lgc_innovate(l->innovations, l->part, l, l->sequences);
    at = put_mask(at, l->part, l->coded_n);
    for (uint64_t i = 0; i < l->coded_n; i++) {
        if (l->part[i / 64] >> i % 64 & 1) {
            tg_put32(at, tg_float_bits(l->innovations[i]));
            at += 4;
        }
    }
    l->coded_len += (uint64_t)(at - behind);
    tg_framed framed = seal(x, x->out, REPORT, 0, (uint64_t)(at - (x->out + HEADER)));
    tg_exchange_send(x, 0, x->out, &framed);
    return TG_OK;
}

/* The values of worker p as the server sees them, added to the coded part of the average. */
static tg_status take_innovation(tg_exchange *x, uint32_t p, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    uint64_t len = 0;
    const uint8_t *body = open_message(&len, x, p, REPORT, 0, why);
    if (body == NULL) {
        return TG_E_FRAME;
    }
    const uint8_t *end = body + len;
    const uint8_t *at = get_mask(l->part, l->coded_n, body + tg_lgc_stretch_len(l, 0, tg_lgc_vector_n(l)), end);
    if (at == NULL || tg_mask_count(l->part, l->coded_n) != l->innovation_n ||
        (uint64_t)(end - at) != 4 * l->innovation_n) {
        return makes_no_sense(p, why);
    }
    for (uint64_t i = 0; i < l->coded_n; i++) {
        bool known = l->part[i / 64] >> i % 64 & 1;
        l->innovations[i] = known ? tg_bits_float(tg_get32(at)) : 0.0f;
        at += known ? 4 : 0;
    }
    float *sum = l->average + tg_lgc_vector_n(l);
    tg_autoencoder_decode(l->sequences, l->autoencoder, p, l->mean_code, l->innovations);
    for (uint64_t i = 0; i < l->coded_n; i++) {
        sum[i] = (p == 0 ? 0.0f : sum[i]) + l->sequences[i];
    }
    return TG_OK;
}

static tg_status hear_reports(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    if (x->rank != 0) {
        return TG_OK;
    }
    TG_TRY(sum_heard(x, REPORT, 0, tg_lgc_vector_n(l), why));
    float *mean = l->average + tg_lgc_vector_n(l);
    for (uint32_t p = 0; p < x->world; p++) {
        TG_TRY(take_innovation(x, p, why));
    }
    for (uint64_t i = 0; i < l->coded_n; i++) {
        l->sequences[i] = mean[i] / (float)x->world;
    }
    tg_lgc_from_sequence(mean, l, l->sequences);
    return TG_OK;
}

static uint64_t answer_n(const tg_lgc *l)
{
    return tg_lgc_vector_n(l) + l->coded_n;
}

static tg_status say_answer(tg_exchange *x)
{
    const tg_lgc *l = x->lgc;
    x->op_kind = TG_BROADCAST;
    x->root = 0;
    if (x->rank == 0) {
        (void)tg_lgc_put_stretch(x->out + HEADER, l, l->average, 0, answer_n(l));
        tg_framed framed = seal(x, x->out, ANSWER, 0, tg_lgc_stretch_len(l, 0, answer_n(l)));
        tg_exchange_send_all(x, x->out, &framed);
    }
    return TG_OK;
}

static tg_status hear_answer(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    uint64_t len = 0;
    const uint8_t *body = open_message(&len, x, 0, ANSWER, 0, why);
    if (body == NULL) {
        return TG_E_FRAME;
    }
    if (len != tg_lgc_stretch_len(l, 0, answer_n(l))) {
        return makes_no_sense(0, why);
    }
    tg_lgc_get_stretch(l->average, l, body, 0, answer_n(l));
    return TG_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------- */

tg_status tg_lgc_say(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_lgc *l = x->lgc;
    if (round == 0) {
        l->lead_len = l->coded_len = 0;
        TG_TRY(tg_lgc_load(x, why));
    }
    topic about = script_of(l)[round];
    if (about == SLICE || about == VALUES || about == REPORT) {
        tg_lgc_fill_vector(l);
        bool has_coded = l->progress.phase != TG_LGC_PHASE_DENSE;
        l->coded_len += has_coded ? tg_lgc_stretch_len(l, l->whole_n + l->picked_n, tg_lgc_vector_n(l)) : 0;
    }
    switch (about) {
    case LEAD: return say_lead(x);
    case SLICE: return say_slices(x);
    case SUM: return say_sum(x);
    case VALUES: return say_values(x);
    case REPORT: return say_report(x);
    case ANSWER: return say_answer(x);
    }
    return TG_OK;
}

static tg_status hear_about(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const tg_lgc *l = x->lgc;
    switch (script_of(l)[round]) {
    case LEAD: return hear_lead(x, why);
    case SLICE: return sum_heard(x, SLICE, slice_at(l, x->rank), slice_at(l, x->rank + 1), why);
    case SUM: return hear_sums(x, why);
    case VALUES: return sum_heard(x, VALUES, 0, tg_lgc_vector_n(l), why);
    case REPORT: return hear_reports(x, why);
    case ANSWER: return hear_answer(x, why);
    }
    return TG_OK;
}

tg_status tg_lgc_hear(tg_exchange *x, uint32_t round, tg_detail *why)
{
    TG_TRY(hear_about(x, round, why));
    return round + 1 == tg_lgc_rounds(x) ? tg_lgc_check_averages(x->lgc, why) : TG_OK;
}
