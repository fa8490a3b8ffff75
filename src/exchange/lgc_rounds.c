/* LGC: what is sent and received in each round. lgc_message.c has the layout of messages. */
#include "exchange/lgc.h"

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

static const tg_lgc_passes *passes_of(const tg_lgc *l)
{
    return l->executor->lgc;
}

/* ---- indices ---------------------------------------------------------------------------------------------------------- */

static tg_status send_lead(tg_exchange *x)
{
    tg_lgc *l = tg_lgc_of(x);
    uint64_t code_len = 0;
    if (x->rank != x->lane->mail.root) {
        return TG_OK;
    }
    passes_of(l)->lead(out_of(x) + TG_LGC_HEADER, &l->sent.lead_len, &code_len, l);
    l->sent.coded_len += code_len;
    tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_LEAD, 0, l->sent.lead_len + code_len);
    tg_exchange_send_all(x, out_of(x), &framed);
    return TG_OK;
}

static tg_status receive_lead(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    tg_message body;
    TG_TRY(tg_lgc_open(&body, x, x->lane->mail.root, TG_LGC_LEAD, 0, why));
    return passes_of(l)->follow(l, body.data, body.len) ? TG_OK : refuse_message(x->lane->mail.root, why);
}

/* ---- sums by owners -------------------------------------------------------------------------------------------------- */

static uint64_t slice_at(const tg_lgc *l, uint32_t slice)
{
    return tg_slice_start(tg_lgc_vector_n(l), slice, l->world);
}

/* A message of elements [from, to) of this rank's vector, or of the average. */
static tg_framed write_part(const tg_exchange *x, uint8_t *message, tg_lgc_topic about, uint32_t slice, bool of_average,
                            uint64_t from, uint64_t to)
{
    const tg_lgc *l = tg_lgc_of(x);
    passes_of(l)->put(message + TG_LGC_HEADER, l, of_average, from, to);
    return tg_lgc_seal(x, message, about, slice, tg_lgc_bytes_of(l, from, to));
}

static tg_status send_slices(tg_exchange *x)
{
    const tg_lgc *l = tg_lgc_of(x);
    uint8_t *at = out_of(x);
    for (uint32_t s = 0; s < x->world; s++) {
        tg_framed framed = write_part(x, at, TG_LGC_SLICE, s, false, slice_at(l, s), slice_at(l, s + 1));
        tg_exchange_send(x, s, at, &framed);
        at += tg_lgc_padded(framed.len);
    }
    return TG_OK;
}

/* Averages elements [from, to) of all ranks' vectors. A report continues after these elements. */
static tg_status average_received(tg_exchange *x, tg_lgc_topic about, uint64_t from, uint64_t to, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    const uint8_t **bodies = ((const tg_lgc_exchange *)x->own)->bodies;
    for (uint32_t p = 0; p < x->world; p++) {
        tg_message body;
        TG_TRY(tg_lgc_open(&body, x, p, about, tg_lgc_bytes_of(l, from, to), why));
        bodies[p] = body.data;
    }
    passes_of(l)->average(l, bodies, from, to);
    return TG_OK;
}

static tg_status send_sum(tg_exchange *x)
{
    const tg_lgc *l = tg_lgc_of(x);
    tg_framed framed =
        write_part(x, out_of(x), TG_LGC_SUM, x->rank, true, slice_at(l, x->rank), slice_at(l, x->rank + 1));
    tg_exchange_send_all(x, out_of(x), &framed);
    return TG_OK;
}

/* Takes elements [from, to) of the average from a message. */
static tg_status take_part(tg_exchange *x, uint32_t p, tg_lgc_topic about, uint64_t from, uint64_t to, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    tg_message body;
    TG_TRY(tg_lgc_open(&body, x, p, about, tg_lgc_bytes_of(l, from, to), why));
    passes_of(l)->take(l, body.data, from, to);
    return TG_OK;
}

static tg_status receive_sums(tg_exchange *x, tg_detail *why)
{
    const tg_lgc *l = tg_lgc_of(x);
    for (uint32_t s = 0; s < x->world; s++) {
        TG_TRY(take_part(x, s, TG_LGC_SUM, slice_at(l, s), slice_at(l, s + 1), why));
    }
    return TG_OK;
}

static tg_status send_values(tg_exchange *x)
{
    tg_framed framed = write_part(x, out_of(x), TG_LGC_VALUES, 0, false, 0, tg_lgc_vector_n(tg_lgc_of(x)));
    tg_exchange_send_all(x, out_of(x), &framed);
    return TG_OK;
}

/* ---- the server ------------------------------------------------------------------------------------------------------ */

/* Bytes of a report before the innovation, which begins at a multiple of 4. */
static uint64_t reported_len(const tg_lgc *l)
{
    return (tg_lgc_bytes_of(l, 0, tg_lgc_vector_n(l)) + 3) / 4 * 4;
}

static tg_status send_report(tg_exchange *x)
{
    tg_lgc *l = tg_lgc_of(x);
    uint64_t n = tg_lgc_vector_n(l), vector_len = tg_lgc_bytes_of(l, 0, n), from = reported_len(l);
    uint8_t *body = out_of(x) + TG_LGC_HEADER;
    passes_of(l)->put(body, l, false, 0, n);
    x->codec->executor->store(x->codec->device, body + vector_len, "\0\0", (size_t)(from - vector_len));
    uint64_t len = passes_of(l)->innovate(body + from, l);
    l->sent.coded_len += len;
    tg_framed framed = tg_lgc_seal(x, out_of(x), TG_LGC_REPORT, 0, from + len);
    tg_exchange_send(x, 0, out_of(x), &framed);
    return TG_OK;
}

static tg_status receive_reports(tg_exchange *x, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    uint64_t from = reported_len(l);
    if (x->rank != 0) {
        return TG_OK;
    }
    TG_TRY(average_received(x, TG_LGC_REPORT, 0, tg_lgc_vector_n(l), why));
    const uint8_t *const *bodies = ((const tg_lgc_exchange *)x->own)->bodies;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = tg_exchange_received(x, p).len - tg_lgc_around();
        if (len < from || !passes_of(l)->add_innovation(l, p, bodies[p] + from, len - from)) {
            return refuse_message(p, why);
        }
    }
    passes_of(l)->end_innovations(l);
    return TG_OK;
}

static uint64_t answer_n(const tg_lgc *l)
{
    return tg_lgc_vector_n(l) + l->size.coded_n;
}

static tg_status send_answer(tg_exchange *x)
{
    if (x->rank == 0) {
        tg_framed framed = write_part(x, out_of(x), TG_LGC_ANSWER, 0, true, 0, answer_n(tg_lgc_of(x)));
        tg_exchange_send_all(x, out_of(x), &framed);
    }
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
    x->lane->mail.root = about == TG_LGC_LEAD ? tg_lgc_leader(tg_lgc_of(x), x->step.number) : 0;
}

tg_status tg_lgc_send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_lgc *l = tg_lgc_of(x);
    if (round == 0) {
        l->sent.lead_len = l->sent.coded_len = 0;
        TG_TRY(tg_check_grads(x->codec, (const void *const *)x->step.grads, NULL, why));
        TG_TRY(passes_of(l)->load(l, x->step.grads, why));
    }
    tg_lgc_topic about = script_of(l)[round];
    if (about == TG_LGC_SLICE || about == TG_LGC_VALUES || about == TG_LGC_REPORT) {
        passes_of(l)->fill(l);
        bool has_coded = l->progress.phase != TG_LGC_PHASE_DENSE;
        l->sent.coded_len += has_coded ? tg_lgc_bytes_of(l, l->size.whole_n + l->size.picked_n, tg_lgc_vector_n(l)) : 0;
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
    case TG_LGC_ANSWER: return take_part(x, 0, TG_LGC_ANSWER, 0, answer_n(l), why);
    }
    return TG_OK;
}

tg_status tg_lgc_receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    TG_TRY(receive_about(x, round, why));
    return round + 1 == tg_lgc_rounds(x) ? passes_of(tg_lgc_of(x))->check(tg_lgc_of(x), why) : TG_OK;
}
