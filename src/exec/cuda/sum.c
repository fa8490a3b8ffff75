/* The sum pass: adds the values of frames, body by body in order, so that a value is the same on every rank. */
#include "exec/cuda/run.h"

#include "base/bytes.h"
#include "kernels/range.h"

/* What a sum is made of. */
typedef struct adding {
    tg_run *run;
    tg_gpu_pass pass;
    const tg_body_view *bodies;
    size_t body_n;
    size_t first, end; /* chunks */
    uint32_t cell;
} adding;

static adding adding_of(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n)
{
    const tg_grid *grid = run->plan->grid;
    size_t first = grid->first[cell], end = grid->first[cell + 1];
    return (adding){.run = run,
                    .pass = tg_gpu_pass_of(run, run->plan, first, end),
                    .bodies = bodies,
                    .body_n = body_n,
                    .first = first,
                    .end = end,
                    .cell = cell};
}

/* Sums of elements that no body sends are 0; with `all`, those of all. Chunks side by side are cleared at once, with chunks between
 * them that the first body sets. */
static void clear_sums(const adding *a, bool all)
{
    const tg_grid *grid = a->run->plan->grid;
    float *sums = a->pass.space.sums;
    uint64_t from = 0, to = 0; /* what is to be cleared */
    uint64_t end = 0;          /* chunks are side by side from there to here */
    for (size_t i = a->first; i < a->end; i++) {
        const tg_chunk *chunk = &grid->chunks[i];
        const tg_unit_plan *u = &a->run->plan->units[chunk->unit];
        uint64_t at = u->flat_at + (chunk->at - u->lo);
        bool is_set = u->coordinates == TG_AT_EVERY && u->route != TG_ROUTE_NONE && !all;
        if (!is_set && (from == to || at != end)) {
            tg_gpu_fill(a->run->gpu, sums + from, 0, (to - from) * sizeof *sums);
            from = at;
        }
        if (!is_set || at == end) {
            end = at + chunk->n;
        }
        to = is_set ? to : end;
    }
    tg_gpu_fill(a->run->gpu, sums + from, 0, (to - from) * sizeof *sums);
}

/* Adds the values of a body that was read or written. */
static void add_values(const adding *a, const uint8_t *body, float weight, bool sets)
{
    const tg_gpu_uses *uses = &a->run->uses;
    if (uses->plain) {
        tg_gpu_pass plain = tg_gpu_plain_pass(&a->pass, a->run);
        tg_gpu_add_dense(&plain, body, weight, sets);
    }
    if (uses->dense_symbols) {
        tg_gpu_pass symbols = tg_gpu_symbols_pass(&a->pass);
        tg_gpu_add_dense(&symbols, body, weight, sets);
    }
    if (uses->sparse) {
        tg_gpu_add_sparse(&a->pass, body, weight, sets);
    }
}

/* Adds a body; the first one sets, so that a -0 arrives as it was. */
static void add_body(const adding *a, size_t b, float weight, bool sets, bool hashes)
{
    const tg_body_view *body = &a->bodies[b];
    tg_gpu_workspace *w = a->run->work;
    bool is_held = w->held == body->bytes && w->held_cell == a->cell && a->body_n == 1;
    if (!is_held) {
        tg_gpu_ready_views(&a->pass, a->run, a->cell, body);
        if (!a->run->uses.fixed) {
            tg_gpu_read_body(&a->pass, a->run, body->bytes);
        } else if (hashes) {
            const tg_gpu_bodies one = {.at = {body->bytes}, .n = 1};
            tg_gpu_check_leaves(&a->pass, &one, w->leaves, a->run->leaf_cap);
        }
        w->held = NULL;
    }
    add_values(a, body->bytes, weight, sets);
}

/* The hashes of a body's chunks, which were uploaded. */
static void hash_body(const adding *a, size_t b)
{
    tg_detail why;
    if (a->run->uses.fixed) { /* leaves are hashed */
        tg_gpu_ending e = tg_gpu_ending_of(a->run, a->cell, a->bodies[b].bytes, 0, a->first);
        e.sides = NULL;
        const tg_gpu_front none = {.len = 0};
        tg_gpu_end_check(&a->pass, &e, &none, NULL, tg_gpu_hashes_of(a->run, a->cell));
    } else {
        tg_gpu_span *spans = a->run->work->spans;
        tg_gpu_spans_of(&a->pass, tg_gpu_spans_at(spans, a->run, a->cell), a->bodies[b].bytes,
                        a->run->plan->headers_len[a->cell]);
        tg_gpu_hash_chunks(a->run, a->cell, spans);
        tg_gpu_download_hashes(a->run, a->cell);
    }
    tg_gpu_note_failure(a->run, tg_gpu_wait(a->run->gpu, &why), &why);
    tg_gpu_take_hashes(a->bodies[b].hashes + 1, a->run, a->cell);
}

static uint32_t group_of(const adding *a)
{
    return a->cell / a->run->plan->grid->slices;
}

static void deliver(const adding *a, const tg_sink *sink, float share)
{
    void *const *averages =
        (void *const *)tg_gpu_upload_pointers(a->run, group_of(a), (const void *const *)sink->averages);
    tg_gpu_deliver(&a->pass, averages, sink->flat, sink->divisor, share, (uint32_t)a->body_n);
}

/* Averages of all bodies. Returns whether all chunks are sound. */
static bool average(const adding *a, const tg_sink *sink, bool hashes)
{
    tg_gpu_verdict verdict = {0};
    tg_detail why;
    clear_sums(a, false);
    tg_gpu_fill(a->run->gpu, a->pass.space.overflows + a->first, 0, (a->end - a->first) * sizeof(uint32_t));
    for (size_t b = 0; b < a->body_n; b++) {
        add_body(a, b, 1.0f, b == 0, hashes);
        if (hashes) {
            hash_body(a, b);
        }
    }
    deliver(a, sink, 0);
    if (a->body_n == 1 && !hashes) {
        return true;
    }
    tg_status status = tg_gpu_read_verdict(&verdict, a->run, &why);
    tg_gpu_note_failure(a->run, status, &why);
    if (verdict.overflows != 0 && a->body_n > 1) { /* once more, of values that are scaled down */
        float share = tg_average_share(a->body_n);
        clear_sums(a, true);
        for (size_t b = 0; b < a->body_n; b++) {
            add_body(a, b, share, false, false);
        }
        deliver(a, sink, share);
    }
    return status == TG_OK && verdict.bad_chunk == 0;
}

/* One body into the caller's sums, at the cost of what was sent. */
static bool add_to_tensors(adding *a, const tg_sink *sink, bool hashes)
{
    tg_gpu_verdict verdict = {0};
    tg_detail why;
    (void)tg_gpu_give_sums(&a->pass, a->run, group_of(a), sink->added, true);
    add_body(a, 0, sink->weight, false, hashes);
    if (!hashes) {
        return true;
    }
    hash_body(a, 0);
    tg_status status = tg_gpu_read_verdict(&verdict, a->run, &why);
    tg_gpu_note_failure(a->run, status, &why);
    return status == TG_OK && verdict.bad_chunk == 0;
}

static bool sum(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink, bool hashes)
{
    adding a = adding_of(run, cell, bodies, body_n);
    tg_gpu_clear_verdict(run);
    return sink->added != NULL ? add_to_tensors(&a, sink, hashes) : average(&a, sink, hashes);
}

void tg_gpu_sum(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    (void)sum(run, cell, bodies, body_n, sink, false);
}

bool tg_gpu_sum_unchecked(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    run->work->held = NULL;
    return sum(run, cell, bodies, body_n, sink, true);
}

/* ---- in two parts -------------------------------------------------------------------------------------------------------- */

void tg_gpu_add(tg_run *run, uint32_t cell, const tg_body_view *body, bool is_first)
{
    adding a = adding_of(run, cell, body, 1);
    if (is_first) {
        clear_sums(&a, false);
    }
    add_body(&a, 0, 1.0f, is_first, false);
}

void tg_gpu_add_written(tg_run *run, uint32_t cell, const uint8_t *body)
{
    tg_gpu_workspace *w = run->work;
    uint64_t known_len = 0;
    tg_body_view view = {.bytes = body, .chunks = w->host_views + run->plan->grid->first[cell]};
    adding a = adding_of(run, cell, &view, 1);
    if (!tg_body_len(&known_len, run->plan, cell, w->known_n)) {
        a.pass.space.views = w->written.device;
    } else if (run->uses.fixed) {
        tg_gpu_ready_views(&a.pass, run, cell, &view);
    } else {
        tg_gpu_recall(&view, run, cell);
        tg_gpu_ready_views(&a.pass, run, cell, &view);
    }
    clear_sums(&a, false);
    add_values(&a, body, 1.0f, true);
}

/* Whether an average of these cells is not finite though all values are. */
static bool has_overflow(tg_run *run)
{
    tg_gpu_verdict verdict = {0};
    tg_detail why;
    tg_gpu_note_failure(run, tg_gpu_read_verdict(&verdict, run, &why), &why);
    return verdict.overflows != 0;
}

void tg_gpu_deliver_sums(tg_run *run, uint32_t from, uint32_t to, const tg_body_view *bodies, size_t stride,
                         size_t body_n, const tg_sink *sink)
{
    const tg_grid *grid = run->plan->grid;
    size_t first = grid->first[from], end = grid->first[to];
    tg_gpu_pass p = tg_gpu_pass_of(run, run->plan, first, end);
    const void *averages = NULL;
    for (uint32_t cell = from; cell < to; cell++) {
        averages = tg_gpu_upload_pointers(run, cell / grid->slices, (const void *const *)sink->averages);
    }
    tg_gpu_clear_verdict(run);
    if (body_n > 1) {
        tg_gpu_fill(run->gpu, p.space.overflows + first, 0, (end - first) * sizeof(uint32_t));
    }
    tg_gpu_deliver(&p, (void *const *)averages, sink->flat, sink->divisor, 0, (uint32_t)body_n);
    bool again = body_n > 1 && has_overflow(run);
    for (uint32_t cell = from; again && cell < to; cell++) { /* of values that are scaled down */
        tg_gpu_sum(run, cell, bodies + cell * stride, body_n, sink);
    }
}

/* ---- without a wait ---------------------------------------------------------------------------------------------------------- */

/* The next bodies from `from` on, as many as a kernel takes, each of `len` bytes: how they are judged by the checksums after them. */
static tg_gpu_judging judging_of(const adding *a, size_t from, uint64_t len)
{
    const tg_gpu_workspace *w = a->run->work;
    size_t left = a->body_n - from;
    tg_gpu_judging j = {.bodies.n = (uint32_t)(left < TG_GPU_BODIES ? left : TG_GPU_BODIES),
                        .body_len = len,
                        .leaves = w->leaves,
                        .words = w->hashes.device,
                        .done = w->done + TG_GPU_SEALS,
                        .leaf_cap = a->run->leaf_cap,
                        .are_aligned = 1,
                        .number = (uint32_t)from,
                        .late = w->late.device,
                        .late_to = w->late.host};
    for (uint32_t b = 0; b < j.bodies.n; b++) {
        const tg_body_view *body = &a->bodies[from + b];
        j.bodies.at[b] = body->bytes;
        j.fronts[b] = TG_LITTLE64(body->hashes[0]);
        j.are_aligned = j.are_aligned && (uintptr_t)body->bytes % 16 == 0;
    }
    return j;
}

/* Where averages go; of few tensors with the pass. */
static void *const *averages_of(adding *a, const tg_sink *sink)
{
    const void *const *averages = (const void *const *)sink->averages;
    return tg_gpu_give_few(&a->pass, a->run, averages)
               ? NULL
               : (void *const *)tg_gpu_upload_pointers(a->run, group_of(a), averages);
}

/* Plain values of all bodies, as many at a time as a kernel takes. */
static void average_plain(adding *a, uint64_t len, const tg_sink *sink)
{
    tg_gpu_averaging to = {.averages = averages_of(a, sink), .divisor = sink->divisor};
    for (size_t from = 0; from < a->body_n; from += TG_GPU_BODIES) {
        tg_gpu_judging j = judging_of(a, from, len);
        to.is_first = from == 0;
        to.is_last = from + j.bodies.n == a->body_n;
        tg_gpu_average_plain(&a->pass, &j, &to);
    }
}

/* Values of all bodies, symbols among them, one after the other. */
static void average_any(adding *a, uint64_t len, const tg_sink *sink)
{
    tg_run *run = a->run;
    tg_gpu_clear_verdict(run);
    clear_sums(a, false);
    tg_gpu_ready_views(&a->pass, run, a->cell, &a->bodies[0]);
    for (size_t from = 0; from < a->body_n; from += TG_GPU_BODIES) {
        tg_gpu_judging j = judging_of(a, from, len);
        tg_gpu_check_leaves(&a->pass, &j.bodies, run->work->leaves, run->leaf_cap);
        for (uint32_t b = 0; b < j.bodies.n; b++) {
            add_values(a, j.bodies.at[b], 1.0f, from + b == 0);
        }
        if (from + j.bodies.n == a->body_n) {
            void *const *averages = averages_of(a, sink);
            tg_gpu_deliver(&a->pass, averages, NULL, sink->divisor, 0, (uint32_t)a->body_n);
        }
        tg_gpu_judge_bodies(&a->pass, &j);
    }
    run->work->is_verdict_clear = true; /* by the last judgement */
}

bool tg_gpu_sum_later(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    uint64_t len = 0;
    if (run->plan->has_draws || !run->uses.fixed || sink->averages == NULL ||
        !tg_body_len(&len, run->plan, cell, run->work->known_n)) {
        return false;
    }
    adding a = adding_of(run, cell, bodies, body_n);
    run->work->held = NULL;
    if (run->uses.only_plain) {
        average_plain(&a, len, sink);
    } else {
        average_any(&a, len, sink);
    }
    return true;
}

tg_status tg_gpu_late(tg_run *run, tg_detail *why)
{
    uint32_t late = *(const volatile uint32_t *)run->work->late.host;
    return late == 0 ? TG_OK
                     : tg_fail(TG_E_FRAME, why, "from rank %u: the frame of an earlier step was damaged, or none",
                               (unsigned)(UINT32_MAX - late));
}

void tg_gpu_copy_group(tg_run *run, uint32_t group, void *const *to, void *const *from)
{
    const tg_grid *grid = run->plan->grid;
    const tg_layout *l = run->plan->layout;
    tg_gpu_enter(run->gpu);
    for (size_t j = grid->unit_first[group]; j < grid->unit_first[group + 1]; j++) {
        const tg_unit *unit = &l->units[grid->units[j]];
        for (size_t i = 0; i < unit->piece_n; i++) {
            size_t t = unit->pieces[i].tensor;
            tg_gpu_copy(run->gpu, to[t], from[t], l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype));
        }
    }
}
