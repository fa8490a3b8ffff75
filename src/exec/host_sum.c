/* The sum pass: adds the values of frames, chunk by chunk over all frames in order, so that a value is the same on every rank.
 * Frames were checked, or are checked and hashed here, while a chunk is in the caches. */
#include "exec/host.h"

#include <stdatomic.h>
#include <string.h>

typedef struct pass {
    tg_run *run;
    const tg_body_view *bodies;
    size_t body_n;
    const tg_chunk *chunks; /* of the slice */
    const tg_sink *sink;
    bool is_long;       /* averages outgrow the caches */
    bool hashes;        /* bodies were not checked: their chunks are hashed, too */
    atomic_bool is_bad; /* a chunk is not sound */
} pass;

static tg_decoding decoding_of(const pass *p, size_t i, size_t b, uint32_t worker)
{
    const tg_chunk *chunk = &p->chunks[i];
    const tg_view *view = &p->bodies[b].chunks[i];
    return (tg_decoding){.unit = &p->run->plan->units[chunk->unit],
                         .work = &p->run->units[chunk->unit],
                         .chunk = chunk,
                         .view = view,
                         .body = p->bodies[b].bytes,
                         .kept = tg_host_kept(p->run, p->run->plan, chunk, p->bodies[b].keeps),
                         .scratch = &p->run->work->scratch[worker]};
}

/* Averages to their place: sums over the divisor; or, if `mends`, averages that replace those that are NaN or Inf there. Returns whether
 * all are finite. */
static bool store(void *out, tg_dtype dtype, const pass *p, const float *sums, size_t n, bool mends)
{
    if (mends) {
        tg_replace_nonfinite(out, dtype, sums, n);
        return true;
    }
    return tg_store(out, dtype, sums, p->sink->divisor, n, p->is_long && p->sink->flat == NULL);
}

/* The parts of a chunk's sum to the tensors that they belong to. Returns whether all averages are finite. */
static bool deliver(const pass *p, const tg_chunk *chunk, const float *sum, bool mends)
{
    bool finite = true;
    const tg_plan *plan = p->run->plan;
    const tg_unit_plan *u = &plan->units[chunk->unit];
    const tg_sink *sink = p->sink;
    if (sink->flat != NULL) {
        return store(sink->flat + u->flat_at + (chunk->at - u->lo), TG_FP32, p, sum, chunk->n, mends);
    }
    const tg_piece *piece = u->unit->piece_n == 1 ? u->unit->pieces : tg_unit_piece(u->unit, chunk->at);
    for (uint32_t done = 0; done < chunk->n; piece++) {
        uint64_t from = chunk->at + done - piece->at; /* in the tensor */
        uint64_t left = chunk->n - done;
        size_t m = (size_t)(piece->n - from < left ? piece->n - from : left);
        if (sink->added != NULL) {
            tg_expand_add(sink->added[piece->tensor] + from, NULL, sum + done, sink->weight, m);
        } else {
            tg_dtype dtype = plan->layout->tensors[piece->tensor].dtype;
            char *out = sink->averages[piece->tensor];
            finite = store(out + from * tg_dtype_len(dtype), dtype, p, sum + done, m, mends) && finite;
        }
        done += (uint32_t)m;
    }
    tg_store_fence();
    return finite;
}

/* Averages of a chunk that are NaN or Inf, once more, of values that are scaled down: their sum has overflowed, or some value is NaN or
 * Inf. Others stay as they are: values that are scaled down may lose bits, and a sum that begins with 0 is never -0. */
static void average_scaled(const pass *p, size_t i, uint32_t worker)
{
    const tg_chunk *chunk = &p->chunks[i];
    const tg_route *route = tg_host_routes[p->run->plan->units[chunk->unit].route];
    float *sum = p->run->work->scratch[worker].sum, share = tg_average_share(p->body_n);
    memset(sum, 0, chunk->n * sizeof *sum);
    for (size_t b = 0; b < p->body_n; b++) {
        tg_decoding d = decoding_of(p, i, b, worker);
        (void)route->add(sum, &d, share); /* was sound before */
    }
    tg_average_shared(sum, share, p->body_n, chunk->n);
    (void)deliver(p, chunk, sum, true);
}

/* Adds the chunk of body b to `out`, or sets it there. False: it is damaged. */
static bool read_chunk(float *out, const pass *p, size_t i, size_t b, uint32_t worker, bool sets, float weight)
{
    const tg_body_view *body = &p->bodies[b];
    const tg_route *route = tg_host_routes[p->run->plan->units[p->chunks[i].unit].route];
    tg_decoding d = decoding_of(p, i, b, worker);
    if (p->hashes) {
        body->hashes[2 + i] = tg_host_hash_chunk(body->bytes, &body->chunks[i]);
    }
    return sets ? route->set(out, &d) : route->add(out, &d, weight);
}

static void sum_chunk(void *context, uint32_t worker, size_t i)
{
    pass *p = context;
    const tg_chunk *chunk = &p->chunks[i];
    float *sum = p->run->work->scratch[worker].sum;
    memset(sum, 0, chunk->n * sizeof *sum);
    for (size_t b = 0; b < p->body_n; b++) {
        bool sets = b == 0; /* not added, so that a -0 arrives as it was */
        if (!read_chunk(sum, p, i, b, worker, sets, 1.0f)) {
            atomic_store_explicit(&p->is_bad, true, memory_order_relaxed);
            return;
        }
    }
    if (!deliver(p, chunk, sum, false) && p->body_n > 1 && p->sink->divisor == (float)p->body_n) {
        average_scaled(p, i, worker);
    }
}

/* One body into the caller's sums: a chunk inside one tensor is added in place, at the cost of what was sent. */
static void add_chunk(void *context, uint32_t worker, size_t i)
{
    pass *p = context;
    const tg_chunk *chunk = &p->chunks[i];
    const tg_unit_plan *u = &p->run->plan->units[chunk->unit];
    const tg_piece *piece = u->unit->piece_n == 1 ? u->unit->pieces : tg_unit_piece(u->unit, chunk->at);
    uint64_t from = chunk->at - piece->at;
    if (piece->n - from < chunk->n) {
        sum_chunk(context, worker, i);
        return;
    }
    if (!read_chunk(p->sink->added[piece->tensor] + from, p, i, 0, worker, false, p->sink->weight)) {
        atomic_store_explicit(&p->is_bad, true, memory_order_relaxed);
    }
}

static void sum_slice(pass *p, uint32_t slice)
{
    const tg_run *run = p->run;
    const tg_grid *grid = run->plan->grid;
    size_t first = grid->first[slice], chunk_n = grid->first[slice + 1] - first;
    p->is_long = run->plan->layout->element_n >= TG_NON_TEMPORAL_FROM;
    bool is_added = p->sink->added != NULL && p->body_n == 1;
    tg_job *job = is_added ? add_chunk : sum_chunk;
    p->chunks = grid->chunks + first;
    for (size_t i = 0; run->work->workers == 1 && i < chunk_n; i++) {
        job(p, 0, i);
    }
    if (run->work->workers > 1) {
        uint64_t time = is_added ? tg_host_time(run->plan, p->chunks, p->bodies[0].chunks, chunk_n) : UINT64_MAX;
        tg_pool_run_about(run->work->pool, time, chunk_n, job, p);
    }
}

void tg_host_sum(tg_run *run, uint32_t slice, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    pass p = {.run = run, .bodies = bodies, .body_n = body_n, .sink = sink};
    sum_slice(&p, slice);
}

bool tg_host_sum_unchecked(tg_run *run, uint32_t slice, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    pass p = {.run = run, .bodies = bodies, .body_n = body_n, .sink = sink, .hashes = true};
    for (size_t b = 0; b < body_n; b++) {
        bodies[b].hashes[1] = tg_host_hash_headers(bodies[b].bytes, run->plan, slice);
    }
    sum_slice(&p, slice);
    return !atomic_load_explicit(&p.is_bad, memory_order_relaxed);
}

/* ---- copies ---------------------------------------------------------------------------------------------------------- */

typedef struct copying {
    const tg_plan *plan;
    const tg_chunk *chunks; /* of the group */
    void *const *to, *const *from;
} copying;

static void copy_chunk(void *context, uint32_t worker, size_t i)
{
    const copying *c = context;
    const tg_chunk *chunk = &c->chunks[i];
    const tg_unit *unit = c->plan->units[chunk->unit].unit;
    const tg_piece *piece = tg_unit_piece(unit, chunk->at);
    (void)worker;
    for (uint32_t done = 0; done < chunk->n; piece++) {
        uint64_t from = chunk->at + done - piece->at, left = chunk->n - done;
        size_t m = (size_t)(piece->n - from < left ? piece->n - from : left);
        size_t len = tg_dtype_len(c->plan->layout->tensors[piece->tensor].dtype);
        memcpy((char *)c->to[piece->tensor] + from * len, (const char *)c->from[piece->tensor] + from * len, m * len);
        done += (uint32_t)m;
    }
}

void tg_host_copy(tg_run *run, uint32_t group, void *const *to, void *const *from)
{
    const tg_grid *grid = run->plan->grid;
    size_t first = grid->first[(size_t)group * grid->slices], end = grid->first[((size_t)group + 1) * grid->slices];
    copying c = {run->plan, grid->chunks + first, to, from};
    uint64_t element_n = 0;
    for (size_t i = first; i < end; i++) {
        element_n += grid->chunks[i].n;
    }
    tg_pool_run_about(run->work->pool, element_n, end - first, copy_chunk, &c);
}
