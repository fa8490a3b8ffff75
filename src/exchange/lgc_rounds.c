/* LGC: what is sent and received in each round. lgc_message.c has the layout of messages. */
#include "exchange/lgc.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "exchange/ordering.h"
#include "kernels/hash.h"
#include "kernels/kernels.h"

#include <string.h>

enum { ROUNDS_MAX = 3 };

static uint8_t *out_of(const tg_exchange *x)
{
    return ((const tg_lgc_exchange *)x->own)->out;
}

/* The message of each round: of phase 1, phase 2, phase 3 in a ring, phase 3 with a server. */
static const tg_lgc_topic scripts[4][ROUNDS_MAX] = {{TG_LGC_SLICE, TG_LGC_SUM},
                                                    {TG_LGC_LEAD, TG_LGC_VALUES},
                                                    {TG_LGC_LEAD, TG_LGC_SLICE, TG_LGC_SUM},
                                                    {TG_LGC_LEAD, TG_LGC_REPORT, TG_LGC_ANSWER}};

static const tg_lgc_topic *script_of(const tg_lgc *l)
{
    bool by_server = l->is_server && l->progress.phase == TG_LGC_PHASE_CODE;
    return scripts[l->progress.phase - 1 + (by_server ? 1 : 0)];
}

uint32_t tg_lgc_rounds(const tg_exchange *x)
{
    const tg_lgc_topic *script = script_of(tg_lgc_of(x));
    uint32_t n = 0;
    while (n < ROUNDS_MAX && script[n] != 0) {
        n++;
    }
    return n;
}

static tg_status refuse_message(uint32_t p, tg_detail *why)
{
    return tg_fail(TG_E_FRAME, why, "from rank %u: the message is invalid", p);
}

/* ---- indices ---------------------------------------------------------------------------------------------------------- */

/* Selects the largest magnitudes of each tensor. */
static void select_indices(const tg_lgc *l)
{
    memset(l->lead.mask, 0, tg_words(l->size.sparse_n) * sizeof *l->lead.mask);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE && tensor->n > 0) {
            memset(l->lead.part, 0, tg_words(tensor->n) * sizeof *l->lead.part);
            tg_lgc_mark_largest(l->lead.part, l, l->input.u + tensor->at, tensor->n, tensor->select_params);
            tg_mask_insert(l->lead.mask, tensor->sparse_at, l->lead.part, (size_t)tensor->n);
        }
    }
}

static tg_status send_lead(tg_exchange *x)
{
    tg_lgc *l = tg_lgc_of(x);
    if (x->rank != x->lane->mail.root) {
        return TG_OK;
    }
    select_indices(l);
    tg_lgc_pick_values(l);
    uint8_t *body = out_of(x) + TG_LGC_HEADER, *at = tg_lgc_put_mask(body, l->lead.mask, l->size.sparse_n);
    if (l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE) {
        tg_lgc_choose_order(l, tg_lgc_own_values(l));
        tg_ordering_write(at, l->lead.order, (size_t)l->size.coded_n, l->lead.order_scratch);
        at += tg_ordering_len((size_t)l->size.coded_n);
    }
    l->sent.lead_len = (uint64_t)(at - body);
    if (l->is_server && l->progress.phase == TG_LGC_PHASE_CODE) {
        tg_lgc_to_sequence(l->of.sequences, l, tg_lgc_own_values(l));
        tg_autoencoder_encode(l->of.code, l->autoencoder, l->of.sequences);
        for (uint64_t i = 0; i < l->size.code_n; i++) {
            at = tg_lgc_put_code(at, tg_lgc_code_type(l), l->of.code[i]);
        }
        l->sent.coded_len += (uint64_t)(at - body) - l->sent.lead_len;
    }
    tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_LEAD, 0, (uint64_t)(at - body));
    tg_exchange_send_all(x, out_of(x), &framed);
    return TG_OK;
}

/* Whether each tensor has the right number of indices. */
static bool counts_are_right(const tg_lgc *l)
{
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            tg_mask_extract(l->lead.part, l->lead.mask, tensor->sparse_at, (size_t)tensor->n);
            if (tg_mask_count(l->lead.part, tensor->n) != tensor->k) {
                return false;
            }
        }
    }
    return true;
}

static tg_status receive_lead(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    uint64_t len = 0;
    const uint8_t *at = tg_lgc_open(&len, x, x->lane->mail.root, TG_LGC_LEAD, 0, why);
    if (at == NULL) {
        return TG_E_FRAME;
    }
    const uint8_t *end = at + len;
    at = tg_lgc_get_mask(l->lead.mask, l->size.sparse_n, at, end);
    if (at == NULL || !counts_are_right(l)) {
        return refuse_message(x->lane->mail.root, why);
    }
    if (l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE) {
        size_t order_len = tg_ordering_len((size_t)l->size.coded_n);
        if ((uint64_t)(end - at) < order_len ||
            !tg_ordering_read(l->lead.order, at, (size_t)l->size.coded_n, l->lead.order_scratch)) {
            return refuse_message(x->lane->mail.root, why);
        }
        at += order_len;
    }
    if (l->is_server && l->progress.phase == TG_LGC_PHASE_CODE) {
        tg_dtype type = tg_lgc_code_type(l);
        if ((uint64_t)(end - at) < l->size.code_n * tg_dtype_len(type)) {
            return refuse_message(x->lane->mail.root, why);
        }
        for (uint64_t i = 0; i < l->size.code_n; i++) {
            at = tg_lgc_get_code(&l->of.mean_code[i], type, at);
        }
    }
    if (at != end) {
        return refuse_message(x->lane->mail.root, why);
    }
    tg_lgc_pick_values(l);
    return TG_OK;
}

/* ---- sums by owners -------------------------------------------------------------------------------------------------- */

static uint64_t slice_at(const tg_lgc *l, uint32_t slice)
{
    return tg_slice_start(tg_lgc_vector_n(l), slice, l->world);
}

static tg_status send_slices(tg_exchange *x)
{
    const tg_lgc *l = tg_lgc_of(x);
    uint8_t *at = out_of(x);
    for (uint32_t s = 0; s < x->world; s++) {
        uint64_t from = slice_at(l, s), to = slice_at(l, s + 1);
        (void)tg_lgc_put_stretch(at + TG_LGC_HEADER, l, l->sum.vector, from, to);
        tg_framed framed = tg_lgc_seal(x, at, TG_LGC_SLICE, s, tg_lgc_stretch_len(l, from, to));
        tg_exchange_send(x, s, at, &framed);
        at += framed.len;
    }
    return TG_OK;
}

/* Sums elements [from, to) of all ranks' vectors, multiplied by `share`, in rank order into l->sum.average. A report continues
 * after these elements. */
static tg_status add_received(tg_exchange *x, tg_lgc_topic about, uint64_t from, uint64_t to, float share,
                              tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    uint32_t slice = about == TG_LGC_SLICE ? x->rank : 0;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = 0;
        const uint8_t *body = tg_lgc_open(&len, x, p, about, slice, why);
        if (body == NULL) {
            return TG_E_FRAME;
        }
        uint64_t own_len = tg_lgc_stretch_len(l, from, to);
        if (len < own_len || (about != TG_LGC_REPORT && len != own_len)) {
            return refuse_message(p, why);
        }
        float *into = p == 0 ? l->sum.average : l->sum.vector;
        tg_lgc_get_stretch(into, l, body, from, to);
        if (about == TG_LGC_VALUES) {
            memcpy(l->of.values + p * (l->size.coded_n + l->size.picked_n), into + l->size.whole_n + l->size.picked_n,
                   l->size.coded_n * sizeof *into);
        }
        for (uint64_t i = from; i < to; i++) {
            l->sum.average[i] = p == 0 ? share * l->sum.average[i] : l->sum.average[i] + share * l->sum.vector[i];
        }
    }
    return TG_OK;
}

/* Averages elements [from, to) of all ranks' vectors. If the sum overflows, sums again with values scaled down first: the average
 * of finite values is finite. */
static tg_status average_received(tg_exchange *x, tg_lgc_topic about, uint64_t from, uint64_t to, tg_detail *why)
{
    float *average = tg_lgc_of(x)->sum.average, share = 1.0f;
    TG_TRY(add_received(x, about, from, to, share, why));
    if (!tg_all_finite(average + from, (size_t)(to - from))) {
        share = tg_average_share(x->world);
        TG_TRY(add_received(x, about, from, to, share, why));
    }
    tg_average_shared(average + from, share, x->world, (size_t)(to - from));
    return TG_OK;
}

static tg_status send_sum(tg_exchange *x)
{
    const tg_lgc *l = tg_lgc_of(x);
    uint64_t from = slice_at(l, x->rank), to = slice_at(l, x->rank + 1);
    (void)tg_lgc_put_stretch(out_of(x) + TG_LGC_HEADER, l, l->sum.average, from, to);
    tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_SUM, x->rank, tg_lgc_stretch_len(l, from, to));
    tg_exchange_send_all(x, out_of(x), &framed);
    return TG_OK;
}

static tg_status receive_sums(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    for (uint32_t s = 0; s < x->world; s++) {
        uint64_t len = 0, from = slice_at(l, s), to = slice_at(l, s + 1);
        const uint8_t *body = tg_lgc_open(&len, x, s, TG_LGC_SUM, s, why);
        if (body == NULL) {
            return TG_E_FRAME;
        }
        if (len != tg_lgc_stretch_len(l, from, to)) {
            return refuse_message(s, why);
        }
        tg_lgc_get_stretch(l->sum.average, l, body, from, to);
    }
    return TG_OK;
}

static tg_status send_values(tg_exchange *x)
{
    const tg_lgc *l = tg_lgc_of(x);
    (void)tg_lgc_put_stretch(out_of(x) + TG_LGC_HEADER, l, l->sum.vector, 0, tg_lgc_vector_n(l));
    tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_VALUES, 0, tg_lgc_stretch_len(l, 0, tg_lgc_vector_n(l)));
    tg_exchange_send_all(x, out_of(x), &framed);
    return TG_OK;
}

/* ---- the server ------------------------------------------------------------------------------------------------------ */

static tg_status send_report(tg_exchange *x)
{
    tg_lgc *l = tg_lgc_of(x);
    uint8_t *at = tg_lgc_put_stretch(out_of(x) + TG_LGC_HEADER, l, l->sum.vector, 0, tg_lgc_vector_n(l)),
            *vector_end = at;
    tg_lgc_to_sequence(l->of.sequences, l, tg_lgc_own_values(l));
    tg_lgc_innovate(l->of.innovations, l->lead.part, l, l->of.sequences);
    at = tg_lgc_put_mask(at, l->lead.part, l->size.coded_n);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        if (l->lead.part[i / 64] >> i % 64 & 1) {
            tg_put32(at, tg_float_bits(l->of.innovations[i]));
            at += 4;
        }
    }
    l->sent.coded_len += (uint64_t)(at - vector_end);
    tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_REPORT, 0, (uint64_t)(at - (out_of(x) + TG_LGC_HEADER)));
    tg_exchange_send(x, 0, out_of(x), &framed);
    return TG_OK;
}

/* Decodes the values of rank p from its innovation, and adds them to the coded part of the average. */
static tg_status add_innovation(tg_exchange *x, uint32_t p, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    uint64_t len = 0;
    const uint8_t *body = tg_lgc_open(&len, x, p, TG_LGC_REPORT, 0, why);
    if (body == NULL) {
        return TG_E_FRAME;
    }
    const uint8_t *end = body + len;
    const uint8_t *at =
        tg_lgc_get_mask(l->lead.part, l->size.coded_n, body + tg_lgc_stretch_len(l, 0, tg_lgc_vector_n(l)), end);
    if (at == NULL || tg_mask_count(l->lead.part, l->size.coded_n) != l->size.innovation_n ||
        (uint64_t)(end - at) != 4 * l->size.innovation_n) {
        return refuse_message(p, why);
    }
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        bool known = l->lead.part[i / 64] >> i % 64 & 1;
        l->of.innovations[i] = known ? tg_bits_float(tg_get32(at)) : 0.0f;
        at += known ? 4 : 0;
    }
    float *sum = l->sum.average + tg_lgc_vector_n(l);
    tg_autoencoder_decode(l->of.sequences, l->autoencoder, p, l->of.mean_code, l->of.innovations);
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        sum[i] = (p == 0 ? 0.0f : sum[i]) + l->of.sequences[i];
    }
    return TG_OK;
}

static tg_status receive_reports(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    if (x->rank != 0) {
        return TG_OK;
    }
    TG_TRY(average_received(x, TG_LGC_REPORT, 0, tg_lgc_vector_n(l), why));
    float *mean = l->sum.average + tg_lgc_vector_n(l);
    for (uint32_t p = 0; p < x->world; p++) {
        TG_TRY(add_innovation(x, p, why));
    }
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        l->of.sequences[i] = mean[i] / (float)x->world;
    }
    tg_lgc_from_sequence(mean, l, l->of.sequences);
    return TG_OK;
}

static uint64_t answer_n(const tg_lgc *l)
{
    return tg_lgc_vector_n(l) + l->size.coded_n;
}

static tg_status send_answer(tg_exchange *x)
{
    const tg_lgc *l = tg_lgc_of(x);
    if (x->rank == 0) {
        (void)tg_lgc_put_stretch(out_of(x) + TG_LGC_HEADER, l, l->sum.average, 0, answer_n(l));
        tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_ANSWER, 0, tg_lgc_stretch_len(l, 0, answer_n(l)));
        tg_exchange_send_all(x, out_of(x), &framed);
    }
    return TG_OK;
}

static tg_status receive_answer(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    uint64_t len = 0;
    const uint8_t *body = tg_lgc_open(&len, x, 0, TG_LGC_ANSWER, 0, why);
    if (body == NULL) {
        return TG_E_FRAME;
    }
    if (len != tg_lgc_stretch_len(l, 0, answer_n(l))) {
        return refuse_message(0, why);
    }
    tg_lgc_get_stretch(l->sum.average, l, body, 0, answer_n(l));
    return TG_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------- */

void tg_lgc_shape(tg_exchange *x, uint32_t round)
{
    static const tg_op_kind kinds[] = {
        [TG_LGC_LEAD] = TG_BROADCAST,    [TG_LGC_SLICE] = TG_ALLTOALLV, [TG_LGC_SUM] = TG_ALLGATHERV,
        [TG_LGC_VALUES] = TG_ALLGATHERV, [TG_LGC_REPORT] = TG_GATHERV,  [TG_LGC_ANSWER] = TG_BROADCAST};
    tg_lgc_topic about = script_of(tg_lgc_of(x))[round];
    x->lane->mail.kind = kinds[about];
    x->lane->mail.root = about == TG_LGC_LEAD ? (uint32_t)(x->step.number % x->world) : 0;
}

tg_status tg_lgc_send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    if (round == 0) {
        l->sent.lead_len = l->sent.coded_len = 0;
        TG_TRY(tg_check_grads(x->codec, (const void *const *)x->step.grads, NULL, why));
        TG_TRY(tg_lgc_load(tg_lgc_of(x), x->step.grads, why));
    }
    tg_lgc_topic about = script_of(l)[round];
    if (about == TG_LGC_SLICE || about == TG_LGC_VALUES || about == TG_LGC_REPORT) {
        tg_lgc_fill_vector(l);
        bool has_coded = l->progress.phase != TG_LGC_PHASE_DENSE;
        l->sent.coded_len +=
            has_coded ? tg_lgc_stretch_len(l, l->size.whole_n + l->size.picked_n, tg_lgc_vector_n(l)) : 0;
    }
    switch (about) {
    case TG_LGC_LEAD: return send_lead(x);
    case TG_LGC_SLICE: return send_slices(x);
    case TG_LGC_SUM: return send_sum(x);
    case TG_LGC_VALUES: return send_values(x);
    case TG_LGC_REPORT: return send_report(x);
    case TG_LGC_ANSWER: return send_answer(x);
    }
    return TG_OK;
}

static tg_status receive_about(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const tg_lgc *l = tg_lgc_of(x);
    switch (script_of(l)[round]) {
    case TG_LGC_LEAD: return receive_lead(x, why);
    case TG_LGC_SLICE: return average_received(x, TG_LGC_SLICE, slice_at(l, x->rank), slice_at(l, x->rank + 1), why);
    case TG_LGC_SUM: return receive_sums(x, why);
    case TG_LGC_VALUES: return average_received(x, TG_LGC_VALUES, 0, tg_lgc_vector_n(l), why);
    case TG_LGC_REPORT: return receive_reports(x, why);
    case TG_LGC_ANSWER: return receive_answer(x, why);
    }
    return TG_OK;
}

tg_status tg_lgc_receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    TG_TRY(receive_about(x, round, why));
    return round + 1 == tg_lgc_rounds(x) ? tg_lgc_check_averages(tg_lgc_of(x), why) : TG_OK;
}
