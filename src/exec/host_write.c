/* The write pass: all chunks through their routes, then what they need of each other, and their places in the body. */
#include "exec/host.h"

#include "base/bytes.h"
#include "base/half.h"
#include "base/hash.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* How chunks come to stand side by side. */
typedef enum placing {
    MOVED,   /* each has space for its bound; they are moved together in the end */
    IN_TURN, /* one thread encodes them all, each where the one before it ends */
    ASIDE    /* threads encode them in scratch, and copy each behind the one before it as soon as that has its place */
} placing;

typedef struct pass {
    tg_run *run;
    const tg_plan *plan;
    const tg_source *source;
    tg_body *bodies;
    uint32_t from;
    size_t first; /* chunk */
    placing places;
    size_t end;           /* of the last chunk that has its place ... */
    atomic_size_t placed; /* ... and how many have */
} pass;

static uint32_t slice_of(const pass *p, size_t number)
{
    uint32_t slice = p->from;
    while (p->plan->grid->first[slice + 1] <= number) {
        slice++;
    }
    return slice;
}

static uint8_t *chunk_start(const pass *p, size_t number)
{
    return p->bodies[slice_of(p, number) - p->from].bytes + p->run->work->written[number].at;
}

/* Where the chunk before it ends, in its slice. */
static size_t end_before(const pass *p, size_t number)
{
    return p->plan->grid->first[slice_of(p, number)] == number ? 0 : p->end;
}

/* Copies a chunk to its place once all before it have theirs. Those are being encoded by other threads, and chunks are taken
 * in order, so the wait is short. */
static void place_chunk(pass *p, size_t job, const uint8_t *encoded)
{
    size_t number = p->first + job;
    tg_written *written = &p->run->work->written[number];
    size_t len = tg_view_len(&written->view);
    while (atomic_load_explicit(&p->placed, memory_order_acquire) != job) {
        sched_yield();
    }
    written->at = end_before(p, number);
    p->end = written->at + len;
    atomic_store_explicit(&p->placed, job + 1, memory_order_release);
    memcpy(chunk_start(p, number), encoded, len);
}

static void encode_chunk(tg_written *written, const pass *p, const tg_chunk *chunk, uint32_t worker, uint8_t *out)
{
    const tg_route *route = tg_host_routes[p->plan->units[chunk->unit].route];
    if (route == NULL) { /* the frame holds nothing of it */
        *written = (tg_written){.at = written->at, .hash = tg_hash(out, 0)};
        return;
    }
    tg_encoding e = tg_host_encoding(p->run, p->plan, chunk->unit, p->source, worker);
    e.chunk = chunk;
    e.out = out;
    e.list = tg_host_list(&e.list_cap, p->run, chunk);
    route->encode(&e);
    if (e.overflows && e.bad_tensor == 0) {
        tg_settle_overflow(&e);
    }
    *written = (tg_written){.at = written->at,
                            .view = e.view,
                            .magnitudes = e.magnitudes,
                            .hash = e.hash,
                            .bad_tensor = e.bad_tensor,
                            .is_list_kept = e.is_list_kept};
    bool is_complete = e.unit->format.scale == TG_SCALE_NONE || e.unit->route == TG_ROUTE_LEADER;
    if (!route->hashes && is_complete) {
        written->hash = tg_hash(out, tg_view_len(&e.view));
    }
}

static void write_chunk(void *context, uint32_t worker, size_t job)
{
    pass *p = context;
    size_t number = p->first + job;
    tg_written *written = &p->run->work->written[number];
    const tg_chunk *chunk = &p->plan->grid->chunks[number];
    if (p->places == ASIDE) {
        uint8_t *encoded = p->run->work->scratch[worker].encoded;
        encode_chunk(written, p, chunk, worker, encoded);
        place_chunk(p, job, encoded);
        return;
    }
    if (p->places == IN_TURN) {
        written->at = end_before(p, number);
    }
    encode_chunk(written, p, chunk, worker, chunk_start(p, number));
    if (p->places == IN_TURN) {
        p->end = written->at + tg_view_len(&written->view);
    }
}

/* Coded chunks are long, but shorter than their bound, so that moving them would cost; few bytes are moved at no cost. */
static placing choose_placing(const pass *p, size_t chunk_n)
{
    if (tg_pool_workers(p->run->work->pool) == 1) {
        return IN_TURN;
    }
    for (size_t i = p->first; i < p->first + chunk_n; i++) {
        const tg_chunk *chunk = &p->plan->grid->chunks[i];
        const tg_format *f = &p->plan->units[chunk->unit].format;
        bool may_wait = f->coded && f->scale == TG_SCALE_NONE;
        if (!may_wait || tg_chunk_bound(p->plan, chunk) > sizeof p->run->work->scratch->encoded) {
            return MOVED;
        }
    }
    return ASIDE;
}

/* ---- scales of whole units ------------------------------------------------------------------------------------------- */

static float scale_of(const tg_run *run, uint32_t i, double magnitudes)
{
    const tg_unit_plan *u = &run->plan->units[i];
    const float *maxima = run->units[i].maxima;
    double sum = magnitudes, n = (double)run->stats[i].entries;
    if (u->format.scale == TG_SCALE_ONE) {
        return 1.0f;
    }
    if (maxima != NULL) {
        uint64_t bins = (u->hi - u->lo + u->format.bin - 1) / u->format.bin;
        sum = 0;
        for (uint64_t b = 0; b < bins; b++) {
            sum += (double)maxima[b];
        }
        n = (double)bins;
    }
    return n > 0 ? (float)(sum / n) : 0.0f;
}

/* Statistics of all units, and scales where they have one. Chunks of a unit are in order, though not side by side. */
static void settle_units(const pass *p, size_t chunk_n)
{
    tg_run *run = p->run;
    tg_host_clear_stats(run);
    for (uint32_t i = 0; i < run->plan->layout->unit_n; i++) {
        run->units[i].magnitudes = 0;
    }
    for (size_t number = p->first; number < p->first + chunk_n; number++) {
        const tg_written *written = &run->work->written[number];
        uint32_t unit = p->plan->grid->chunks[number].unit;
        tg_host_note_chunk(run, unit, &written->view, chunk_start(p, number));
        run->units[unit].magnitudes += written->magnitudes;
    }
    for (uint32_t i = 0; run->plan->has_scale && i < run->plan->layout->unit_n; i++) {
        if (run->plan->units[i].format.scale != TG_SCALE_NONE) {
            run->units[i].scale = scale_of(run, i, run->units[i].magnitudes);
        }
    }
}

/* Fills the scale into a chunk, and subtracts what the decoder will make of it from the next residual. */
static void close_chunk(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    size_t number = p->first + job;
    const tg_chunk *chunk = &p->plan->grid->chunks[number];
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    tg_written *written = &p->run->work->written[number];
    if (u->format.scale == TG_SCALE_NONE) {
        return;
    }
    uint8_t *start = chunk_start(p, number);
    if (written->view.count > 0) {
        tg_put32(start + written->view.side, tg_float_bits(p->run->units[chunk->unit].scale));
    }
    if (u->planes > 0) {
        uint64_t cap = 0;
        tg_decoding d = {.unit = u,
                         .work = &p->run->units[chunk->unit],
                         .chunk = chunk,
                         .view = &written->view,
                         .body = start,
                         .list = written->is_list_kept ? tg_host_list(&cap, p->run, chunk) : NULL,
                         .scratch = &p->run->work->scratch[worker]};
        float *next = p->run->residuals.next + u->residual_at + (chunk->at - u->lo);
        tg_host_routes[u->route]->add(next, &d, -1.0f);
        if (p->plan->nonfinite == TG_NONFINITE_PASS) {
            tg_zero_nonfinite(next, chunk->n);
        }
    }
    written->hash = tg_hash(start, tg_view_len(&written->view));
}

/* ---- the pass -------------------------------------------------------------------------------------------------------- */

/* Moves the chunks of a slice together. */
static void assemble(tg_body *body, uint64_t *hashes, const pass *p, uint32_t slice)
{
    const tg_grid *grid = p->plan->grid;
    body->len = body->payload_len = 0;
    for (size_t i = grid->first[slice]; i < grid->first[slice + 1]; i++) {
        const tg_written *written = &p->run->work->written[i];
        size_t len = tg_view_len(&written->view);
        if (written->at != body->len) {
            memmove(body->bytes + body->len, body->bytes + written->at, len);
        }
        body->len += len;
        body->payload_len += len - (size_t)written->view.side;
        hashes[i] = written->hash;
    }
}

static void lay_out(const pass *p, uint32_t to)
{
    const tg_grid *grid = p->plan->grid;
    for (uint32_t s = p->from; s < to; s++) {
        uint64_t at = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            p->run->work->written[i].at = (size_t)at;
            at += tg_chunk_bound(p->plan, &grid->chunks[i]);
        }
    }
}

tg_status tg_host_write(tg_body *bodies, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                        const tg_source *source, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    size_t chunk_n = grid->first[to] - grid->first[from];
    pass p = {.run = run, .plan = plan, .source = source, .bodies = bodies, .from = from, .first = grid->first[from]};
    p.places = choose_placing(&p, chunk_n);
    if (p.places == MOVED) {
        lay_out(&p, to);
    }
    tg_pool_run(run->work->pool, chunk_n, write_chunk, &p);
    for (size_t i = grid->first[from]; i < grid->first[to]; i++) {
        if (run->work->written[i].bad_tensor != 0) {
            return tg_host_refuse(run, run->work->written[i].bad_tensor, source, why);
        }
    }
    if ((plan->holds & TG_HAS_VALUES) != 0) {
        settle_units(&p, chunk_n);
        tg_pool_run(run->work->pool, plan->has_scale ? chunk_n : 0, close_chunk, &p);
    }
    for (uint32_t s = from; s < to; s++) {
        assemble(&bodies[s - from], hashes, &p, s);
    }
    return TG_OK;
}
