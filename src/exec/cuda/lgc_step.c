/* LGC's passes on a GPU, in the order of a step. The host waits for lengths of messages and for verdicts alone. */
#include "exec/cuda/lgc_run.h"

static tg_gpu_lgc_run *run_of(const tg_lgc *l)
{
    tg_gpu_enter(l->run->gpu);
    return l->own;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------------------- */

static void clear_verdict(const tg_gpu_lgc_run *r)
{
    tg_gpu_fill(r->gpu, r->all.verdict, 0, sizeof *r->all.verdict);
    tg_gpu_fill(r->gpu, &r->all.verdict->refused, 0xff, sizeof r->all.verdict->refused);
}

/* Waits for the verdict. In passes that cannot fail, a failure is noted, and the next one reports it. */
static tg_status read_verdict(const tg_gpu_lgc_run *r, tg_detail *why)
{
    tg_gpu_copy(r->gpu, r->verdict_here, r->all.verdict, sizeof *r->verdict_here);
    TG_TRY(tg_gpu_wait(r->gpu, why));
    if (r->lgc->run->failed != TG_OK && why != NULL) {
        *why = r->lgc->run->failure;
    }
    return r->lgc->run->failed;
}

static bool has_verdict(const tg_gpu_lgc_run *r)
{
    tg_detail why = {""};
    tg_status status = read_verdict(r, &why);
    tg_gpu_note_failure(r->lgc->run, status, &why);
    return status == TG_OK;
}

/* ---- gradients ------------------------------------------------------------------------------------------------------------------ */

static tg_status load(tg_lgc *l, void *const *grads, tg_detail *why)
{
    tg_gpu_lgc_run *r = run_of(l);
    r->all.grads = (void *const *)tg_gpu_upload_pointers(l->run, 0, (const void *const *)grads);
    r->all.is_dense = l->progress.phase == TG_LGC_PHASE_DENSE;
    clear_verdict(r);
    tg_gpu_lgc_load(&r->all, r->clips);
    if (l->nonfinite != TG_NONFINITE_ERROR) {
        return TG_OK;
    }
    TG_TRY(read_verdict(r, why));
    uint64_t refused = r->verdict_here->refused;
    if (refused == UINT64_MAX) {
        return TG_OK;
    }
    const char *name = l->layout->tensors[refused / 2].name;
    return refused % 2 != 0 ? tg_refuse_overflow(name, "gradient", why)
                            : tg_fail(TG_E_NONFINITE, why, "the gradient of tensor '%.150s' holds NaN or Inf", name);
}

/* ---- the leader's indices ---------------------------------------------------------------------------------------------------------- */

static void select_largest(const tg_gpu_lgc_run *r, const tg_gpu_lgc_selecting *s, uint64_t *coordinates)
{
    tg_gpu_fill(r->gpu, s->selection.cells, 0, s->cell_len);
    tg_gpu_lgc_select(coordinates, &s->selection, r->gpu->stream);
}

static bool is_by_value(const tg_lgc *l)
{
    return l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE;
}

/* Whether the leader also sends its code. */
static bool has_code(const tg_lgc *l)
{
    return l->is_server && l->progress.phase == TG_LGC_PHASE_CODE;
}

static uint64_t code_len_of(const tg_lgc *l)
{
    return has_code(l) ? l->size.code_n * tg_dtype_len(tg_lgc_code_type(l)) : 0;
}

static void lead(uint8_t *body, uint64_t *lead_len, uint64_t *code_len, tg_lgc *l)
{
    tg_gpu_lgc_run *r = run_of(l);
    clear_verdict(r);
    select_largest(r, &r->lead, r->all.coordinates);
    tg_gpu_lgc_pick(&r->all);
    tg_gpu_lgc_write_mask(body, &r->lead_mask.mask, r->all.coordinates, r->all.verdict, r->gpu->stream);
    if (is_by_value(l)) {
        tg_gpu_lgc_choose_order(&r->all, &r->ordering);
        tg_gpu_lgc_write_order(&r->all, &r->ordering);
    }
    if (has_code(l)) {
        tg_gpu_lgc_to_sequences(&r->all, r->sequence, r->all.own, 0, 1);
        tg_gpu_learner_encode(r->code, &r->learner, r->sequence);
    }
    *lead_len = has_verdict(r) ? r->verdict_here->mask_len : 0;
    if (is_by_value(l)) {
        tg_gpu_copy(r->gpu, body + *lead_len, r->ordering.words, r->ordering.len);
        *lead_len += r->ordering.len;
    }
    *code_len = code_len_of(l);
    if (has_code(l)) {
        tg_gpu_lgc_put(body + *lead_len, r->code, l->size.code_n, (uint32_t)tg_lgc_code_type(l), r->gpu->stream);
    }
}

static bool follow(tg_lgc *l, const uint8_t *body, uint64_t len)
{
    tg_gpu_lgc_run *r = run_of(l);
    uint64_t order_len = is_by_value(l) ? r->ordering.len : 0;
    clear_verdict(r);
    tg_gpu_fill(r->gpu, r->chunk_verdict, 0, sizeof *r->chunk_verdict);
    tg_gpu_lgc_read_mask(r->all.coordinates, &r->lead_mask.mask, body, len, order_len + code_len_of(l), r->all.verdict,
                         r->gpu->stream);
    tg_gpu_lgc_check_entries(&r->all);
    if (is_by_value(l)) {
        tg_gpu_lgc_read_order(&r->all, &r->ordering, body);
    }
    if (has_code(l)) {
        tg_gpu_lgc_get(r->code, body + order_len, l->size.code_n, (uint32_t)tg_lgc_code_type(l), r->all.verdict,
                       r->gpu->stream);
    }
    tg_gpu_lgc_pick(&r->all);
    return has_verdict(r) && r->verdict_here->is_bad == 0;
}

/* ---- the vector ------------------------------------------------------------------------------------------------------------------ */

static void copy_floats(const tg_gpu_lgc_run *r, float *to, const float *from, uint64_t n)
{
    tg_gpu_copy(r->gpu, to, from, n * sizeof *to);
}

static void fill(tg_lgc *l)
{
    tg_gpu_lgc_run *r = run_of(l);
    float *picked = r->vector + l->size.whole_n, *coded = picked + l->size.picked_n;
    if (l->progress.phase == TG_LGC_PHASE_DENSE) {
        copy_floats(r, r->vector, r->all.u, l->size.n);
        return;
    }
    tg_gpu_lgc_gather_whole(&r->all, r->vector);
    copy_floats(r, picked, r->all.own + l->size.coded_n, l->size.picked_n);
    if (l->progress.phase == TG_LGC_PHASE_LEARN) {
        copy_floats(r, coded, r->all.own, l->size.coded_n);
    } else if (!l->is_server) {
        tg_gpu_lgc_to_sequences(&r->all, r->sequence, r->all.own, 0, 1);
        tg_gpu_learner_encode(coded, &r->learner, r->sequence);
    }
}

static void put(uint8_t *out, const tg_lgc *l, bool of_average, uint64_t from, uint64_t to)
{
    const tg_gpu_lgc_run *r = run_of(l);
    const float *values = (of_average ? r->average : r->vector) + from;
    tg_lgc_span spans[TG_LGC_SPANS];
    tg_lgc_spans(spans, l, from, to);
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        uint64_t n = spans[i].n, len = n * tg_dtype_len(spans[i].type);
        if (spans[i].type == TG_FP32) {
            tg_gpu_copy(r->gpu, out, values, len);
        } else if (n > 0) {
            tg_gpu_lgc_put(out, values, n, (uint32_t)spans[i].type, r->gpu->stream);
        }
        values += n;
        out += len;
    }
}

static void take(tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to)
{
    const tg_gpu_lgc_run *r = run_of(l);
    float *values = r->average + from;
    tg_lgc_span spans[TG_LGC_SPANS];
    tg_lgc_spans(spans, l, from, to);
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        uint64_t n = spans[i].n, len = n * tg_dtype_len(spans[i].type);
        if (spans[i].type == TG_FP32) {
            tg_gpu_copy(r->gpu, values, bytes, len);
        } else if (n > 0) {
            tg_gpu_lgc_get(values, bytes, n, (uint32_t)spans[i].type, NULL, r->gpu->stream);
        }
        values += n;
        bytes += len;
    }
}

/* What kernels are told of the types of elements [from, to). */
static tg_gpu_lgc_spans spans_of(const tg_lgc *l, uint64_t from, uint64_t to)
{
    tg_gpu_lgc_spans out;
    tg_lgc_span spans[TG_LGC_SPANS];
    tg_lgc_spans(spans, l, from, to);
    for (int i = 0; i < TG_LGC_SPANS; i++) {
        out.n[i] = spans[i].n;
        out.dtype[i] = (uint32_t)spans[i].type;
    }
    return out;
}

static void average(tg_lgc *l, const uint8_t *const *bodies, uint64_t from, uint64_t to)
{
    const tg_gpu_lgc_run *r = run_of(l);
    uint64_t entry_n = r->all.entry_n, coded_at = tg_lgc_bytes_of(l, 0, l->size.whole_n + l->size.picked_n);
    tg_gpu_copy(r->gpu, r->bodies, bodies, l->world * sizeof *bodies);
    for (uint32_t p = 0; l->progress.phase == TG_LGC_PHASE_LEARN && p < l->world; p++) {
        tg_gpu_copy(r->gpu, r->values + p * entry_n, bodies[p] + coded_at, l->size.coded_n * sizeof *r->values);
    }
    if (to > from) {
        clear_verdict(r);
        const tg_gpu_lgc_spans spans = spans_of(l, from, to);
        tg_gpu_lgc_average(&r->all, r->average + from, r->bodies, l->world, to - from, &spans);
    }
}

/* ---- innovations ----------------------------------------------------------------------------------------------------------------- */

static uint64_t innovate(uint8_t *out, tg_lgc *l)
{
    tg_gpu_lgc_run *r = run_of(l);
    clear_verdict(r);
    tg_gpu_lgc_to_sequences(&r->all, r->sequence, r->all.own, 0, 1);
    select_largest(r, &r->largest, r->kept_at);
    tg_gpu_lgc_write_mask(out, &r->innovation_mask.mask, r->kept_at, r->all.verdict, r->gpu->stream);
    uint64_t len = has_verdict(r) ? r->verdict_here->mask_len : 0;
    tg_gpu_lgc_keep(r->innovations, out + len, r->sequence, l->size.coded_n, r->kept_at, l->size.innovation_n,
                    r->gpu->stream);
    return len + 4 * l->size.innovation_n;
}

static bool add_innovation(tg_lgc *l, uint32_t p, const uint8_t *bytes, uint64_t len)
{
    tg_gpu_lgc_run *r = run_of(l);
    void *stream = r->gpu->stream;
    uint64_t n = l->size.coded_n, k = l->size.innovation_n;
    clear_verdict(r);
    tg_gpu_fill(r->gpu, r->chunk_verdict, 0, sizeof *r->chunk_verdict);
    tg_gpu_lgc_read_mask(r->kept_at, &r->innovation_mask.mask, bytes, len, 4 * k, r->all.verdict, stream);
    tg_gpu_lgc_take_kept(r->innovations, bytes, n, r->kept_at, k, r->all.verdict, stream);
    tg_gpu_learner_decode(r->sequence, &r->learner, p, r->code, r->innovations);
    tg_gpu_learn_add(r->average + tg_lgc_vector_n(l), r->sequence, 0, n, 1, 1.0f, p == 0, stream);
    return has_verdict(r) && r->verdict_here->is_bad == 0;
}

static void end_innovations(tg_lgc *l)
{
    const tg_gpu_lgc_run *r = run_of(l);
    float *mean = r->average + tg_lgc_vector_n(l);
    tg_gpu_lgc_divide(r->sequence, mean, (float)l->world, l->size.coded_n, r->gpu->stream);
    tg_gpu_lgc_from_sequence(&r->all, mean, r->sequence);
}

/* ---- the end of a step --------------------------------------------------------------------------------------------------------------- */

/* Extracts means from the averaged vector of this phase; decodes the average code where there is one. */
static void find_means(tg_gpu_lgc_run *r)
{
    const tg_lgc *l = r->lgc;
    const float *picked = r->average + l->size.whole_n, *coded = picked + l->size.picked_n;
    if (l->progress.phase == TG_LGC_PHASE_CODE && !l->is_server) {
        tg_gpu_learner_decode(r->sequence, &r->learner, 0, coded, NULL);
        tg_gpu_lgc_from_sequence(&r->all, r->means, r->sequence);
    } else {
        copy_floats(r, r->means, coded, l->size.coded_n);
    }
    copy_floats(r, r->means + l->size.coded_n, picked, l->size.picked_n);
}

static tg_status check(tg_lgc *l, tg_detail *why)
{
    tg_gpu_lgc_run *r = run_of(l);
    if (!r->all.is_dense) {
        find_means(r);
    }
    if (l->nonfinite == TG_NONFINITE_PASS) {
        return TG_OK;
    }
    clear_verdict(r);
    tg_gpu_lgc_check(&r->all, r->average, r->means, tg_lgc_subtracts_average(l));
    if (l->nonfinite == TG_NONFINITE_ZERO) {
        return TG_OK;
    }
    TG_TRY(read_verdict(r, why));
    uint64_t refused = r->verdict_here->refused;
    return refused == UINT64_MAX ? TG_OK : tg_lgc_refuse(l, (size_t)(refused / 2), refused % 2 != 0, why);
}

/* Trains the autoencoder for one step on the values of all ranks. If the loss is not finite, nothing changes. */
static void learn(tg_gpu_lgc_run *r, uint64_t step)
{
    tg_lgc *l = r->lgc;
    uint64_t n = l->size.coded_n;
    double error = 0;
    tg_detail why = {""};
    tg_gpu_lgc_to_sequences(&r->all, r->sequences, r->values, r->all.entry_n, l->world);
    for (uint32_t p = 0; l->is_server && p < l->world; p++) {
        copy_floats(r, r->sequence, r->sequences + p * n, n);
        select_largest(r, &r->largest, r->kept_at);
        tg_gpu_lgc_keep(r->innovations + p * n, NULL, r->sequence, n, r->kept_at, l->size.innovation_n, r->gpu->stream);
    }
    tg_status status = l->is_server
                           ? tg_gpu_learner_train_common(&error, &r->learner, r->sequences, r->innovations,
                                                         tg_lgc_leader(l, step), l->optimizer_steps + 1, &why)
                           : tg_gpu_learner_train_mean(&error, &r->learner, r->sequences, l->optimizer_steps + 1, &why);
    if (status == TG_OK) {
        l->optimizer_steps++;
        tg_lgc_note_error(l, error);
    } else if (status != TG_E_NONFINITE) {
        tg_gpu_note_failure(l->run, status, &why);
    }
}

static void finish(tg_lgc *l, void *const *grads, uint64_t step)
{
    tg_gpu_lgc_run *r = run_of(l);
    bool learns = l->progress.phase == TG_LGC_PHASE_LEARN;
    r->all.grads = (void *const *)tg_gpu_upload_pointers(l->run, 0, (const void *const *)grads);
    tg_gpu_lgc_settle(&r->all, r->average, r->means, tg_lgc_subtracts_average(l) ? r->means : r->all.own);
    if (learns && l->progress.error < 0) {
        tg_gpu_lgc_update_scales(&r->all, r->means); /* the first scales come from this step */
    }
    if (learns) {
        learn(r, step);
    }
    if (!r->all.is_dense) {
        tg_gpu_lgc_update_scales(&r->all, r->means);
    }
}

const tg_lgc_passes tg_gpu_lgc_passes = {
    .open = tg_gpu_lgc_open,
    .close = tg_gpu_lgc_close,
    .load = load,
    .lead = lead,
    .follow = follow,
    .fill = fill,
    .put = put,
    .average = average,
    .take = take,
    .innovate = innovate,
    .add_innovation = add_innovation,
    .end_innovations = end_innovations,
    .check = check,
    .finish = finish,
};
