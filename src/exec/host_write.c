/* The write pass: all chunks through their routes, then what they need of each other, and their places in the body. */
#include "exec/host.h"

#include "base/bytes.h"
#include "base/fields.h"
#include "kernels/hash.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

typedef struct pass {
    tg_run *run;
    const tg_plan *plan;
    const tg_source *source;
    tg_body *bodies;
    uint32_t from, to;    /* slices */
    size_t first;         /* chunk */
    atomic_bool refused;  /* a chunk holds NaN or Inf */
    atomic_bool waits;    /* a chunk waits for the scale of its unit */
    atomic_size_t placed; /* chunks that have their place, and where the last of them ends */
    uint8_t *end;
} pass;

/* Where the first chunk of a slice begins: after all headers. */
static uint8_t *contents_of(const pass *p, uint32_t slice)
{
    return p->bodies[slice - p->from].bytes + p->plan->headers_len[slice];
}

/* ---- scales of whole units ------------------------------------------------------------------------------------------- */

static float scale_of(const tg_run *run, uint32_t i)
{
    const tg_unit_plan *u = &run->plan->units[i];
    const tg_unit_work *w = &run->units[i];
    double sum = 0, n = 0;
    switch (u->format.scale) {
    case TG_SCALE_MEAN:
        sum = tg_tree_sum(w->magnitudes);
        n = (double)w->sent;
        break;
    case TG_SCALE_BINS:
        n = (double)((u->hi - u->lo + u->format.bin - 1) / u->format.bin);
        sum = tg_sum_magnitudes(w->maxima, (size_t)n);
        break;
    case TG_SCALE_ONE: return 1.0f;
    case TG_SCALE_NONE: break;
    }
    return n > 0 ? (float)(sum / n) : 0.0f;
}

/* Whether a chunk is all that there is of its unit. */
static bool is_alone(const tg_unit_plan *u, const tg_chunk *chunk)
{
    return chunk->n == u->hi - u->lo;
}

/* Where a chunk's coordinates are kept: for the closing pass, and for sums of this rank's own frame. */
static uint64_t *kept_at(const pass *p, const tg_unit_plan *u, const tg_chunk *chunk)
{
    bool closes = u->values == TG_VALUES_SIGNS && u->planes > 0;
    bool is_summed = p->run->work->kept.places > 1;
    return closes || is_summed ? tg_host_kept(p->run, p->plan, chunk, 1) : NULL;
}

/* Fills the scale into a chunk, and subtracts what the decoder will make of it from the next residual. */
static void close_chunk(tg_written *written, const pass *p, const tg_chunk *chunk, uint32_t worker)
{
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    uint8_t *start = written->bytes;
    if (written->as.view.count > 0) {
        uint32_t bits;
        memcpy(&bits, &p->run->units[chunk->unit].scale, sizeof bits);
        tg_put_field(start + written->as.view.side, sizeof bits, bits);
    }
    if (u->planes > 0) {
        tg_decoding d = {.unit = u,
                         .work = &p->run->units[chunk->unit],
                         .chunk = chunk,
                         .view = &written->as.view,
                         .body = start,
                         .kept = kept_at(p, u, chunk),
                         .scratch = &p->run->work->scratch[worker]};
        float *next = p->run->residuals.next + u->residual_at + (chunk->at - u->lo);
        (void)tg_host_routes[u->route]->add(next, &d, -1.0f); /* what was written is sound */
        if (p->plan->nonfinite == TG_NONFINITE_PASS) {
            tg_zero_nonfinite(next, chunk->n);
        }
    }
    written->as.hash = tg_hash(start, written->as.view.len);
}

/* The scale of a unit of one chunk, which is known at once, while the chunk is in the caches. */
static void close_alone(tg_written *written, const pass *p, const tg_chunk *chunk, uint32_t worker)
{
    tg_unit_work *w = &p->run->units[chunk->unit];
    if (w->magnitudes != NULL) {
        w->magnitudes->n = 0;
        tg_tree_add(w->magnitudes, written->as.magnitudes);
        w->sent = written->as.view.count;
    }
    w->scale = scale_of(p->run, chunk->unit);
    close_chunk(written, p, chunk, worker);
}

static void encode_chunk(tg_written *written, pass *p, const tg_chunk *chunk, uint32_t worker, uint8_t *out)
{
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    const tg_route *route = tg_host_routes[u->route];
    tg_encoded *as = &written->as;
    written->bytes = out;
    tg_encoded_start(as);
    if (route == NULL) { /* the frame holds nothing of it */
        as->view = (tg_view){0};
        as->hash = tg_hash(out, 0);
        return;
    }
    tg_encoding e = {.plan = p->plan,
                     .unit = u,
                     .work = &p->run->units[chunk->unit],
                     .chunk = chunk,
                     .source = p->source,
                     .residuals = p->run->residuals,
                     .scratch = &p->run->work->scratch[worker],
                     .step = p->run->work->step,
                     .out = out,
                     .kept = kept_at(p, u, chunk),
                     .result = as};
    tg_fit_carry(&e);
    route->encode(&e);
    if (as->overflows && as->bad_tensor == 0) {
        tg_settle_overflow(&e);
    }
    if (as->bad_tensor != 0) {
        atomic_store_explicit(&p->refused, true, memory_order_relaxed);
    }
    as->view.len = (uint32_t)(as->view.indices + as->view.index_len);
    if (u->format.scale != TG_SCALE_NONE && u->route != TG_ROUTE_LEADER) {
        if (!is_alone(u, chunk)) {
            atomic_store_explicit(&p->waits, true, memory_order_relaxed);
        } else if (as->bad_tensor == 0) {
            close_alone(written, p, chunk, worker);
        }
    } else if (!route->hashes) {
        as->hash = tg_hash(out, as->view.len);
    }
}

/* ---- one thread: each chunk is encoded where the one before it ends ----------------------------------------------------- */

/* Prefetches for a chunk that is encoded soon. */
static void prefetch_chunk(const pass *p, const tg_chunk *chunk)
{
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    const tg_route *route = tg_host_routes[u->route];
    if (route != NULL && route->prefetch != NULL) {
        route->prefetch(u, &p->run->units[chunk->unit], chunk, p->run->residuals.next);
    }
}

static void write_in_turn(pass *p)
{
    enum { SOON = 4, LATER = 12 };
    bool prefetches = p->run->lane_first[p->run->plan->grid->groups] > 0;
    const tg_grid *grid = p->plan->grid;
    for (uint32_t s = p->from; s < p->to; s++) {
        uint8_t *out = contents_of(p, s);
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            tg_written *written = &p->run->work->written[i];
            if (prefetches && grid->first[s + 1] - i > LATER) {
                tg_host_prefetch_select(&p->run->units[grid->chunks[i + LATER].unit]);
                prefetch_chunk(p, &grid->chunks[i + SOON]);
            }
            encode_chunk(written, p, &grid->chunks[i], 0, out);
            out += written->as.view.len;
        }
    }
}

/* ---- several threads ---------------------------------------------------------------------------------------------------- */

/* Each chunk has space for its bound; assemble moves them together. */
static void write_apart(void *context, uint32_t worker, size_t job)
{
    pass *p = context;
    tg_written *written = &p->run->work->written[p->first + job];
    encode_chunk(written, p, &p->plan->grid->chunks[p->first + job], worker, written->bytes);
}

static void lay_out(const pass *p)
{
    const tg_grid *grid = p->plan->grid;
    for (uint32_t s = p->from; s < p->to; s++) {
        uint8_t *at = contents_of(p, s);
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            p->run->work->written[i].bytes = at;
            at += tg_chunk_bound(p->plan, &grid->chunks[i]);
        }
    }
}

/* Where chunk `number` belongs: where the one before it ends, or where its slice begins. */
static uint8_t *place_of(const pass *p, size_t number)
{
    for (uint32_t s = p->from; s < p->to; s++) {
        if (p->plan->grid->first[s] == number) {
            return contents_of(p, s);
        }
    }
    return p->end;
}

/* Each chunk is encoded in scratch and copied to its place once all before it have theirs. Those are being encoded by other
 * threads, and chunks are taken in order, so the wait is short. */
static void write_aside(void *context, uint32_t worker, size_t job)
{
    pass *p = context;
    size_t number = p->first + job;
    tg_written *written = &p->run->work->written[number];
    uint8_t *encoded = p->run->work->scratch[worker].encoded;
    encode_chunk(written, p, &p->plan->grid->chunks[number], worker, encoded);
    while (atomic_load_explicit(&p->placed, memory_order_acquire) != job) {
        sched_yield();
    }
    written->bytes = place_of(p, number);
    p->end = written->bytes + written->as.view.len;
    atomic_store_explicit(&p->placed, job + 1, memory_order_release);
    memcpy(written->bytes, encoded, written->as.view.len);
}

/* Whether chunks are encoded aside. Coded chunks are long, but shorter than their bound, so that moving them would cost. */
static bool suits_aside(const pass *p, size_t chunk_n)
{
    bool suits = true;
    for (size_t i = p->first; i < p->first + chunk_n && suits; i++) {
        const tg_chunk *chunk = &p->plan->grid->chunks[i];
        const tg_format *f = &p->plan->units[chunk->unit].format;
        suits = f->coded && f->scale == TG_SCALE_NONE &&
                tg_chunk_bound(p->plan, chunk) <= sizeof p->run->work->scratch->encoded;
    }
    return suits;
}

static void write_by_many(pass *p, size_t chunk_n)
{
    if (suits_aside(p, chunk_n)) {
        tg_pool_run(p->run->work->pool, chunk_n, write_aside, p);
        return;
    }
    lay_out(p);
    tg_pool_run(p->run->work->pool, chunk_n, write_apart, p);
}

void tg_host_note_chunk(tg_run *run, uint32_t unit, const tg_view *view, const uint8_t *chunk)
{
    const tg_quantize_part *quantize = run->plan->units[unit].stages.quantize;
    tg_unit_stats *stats = &run->stats[unit];
    stats->len += run->plan->units[unit].header_len + view->len;
    stats->entries += view->count;
    if (quantize->fit != NULL && view->indices > view->symbols) {
        double shape = 0, scale = 0;
        quantize->fit(&shape, &scale, chunk + (view->side - view->start));
        stats->shape += shape;
        stats->scale += scale;
        stats->fit_n++;
    }
}

/* ---- scales of units of several chunks --------------------------------------------------------------------------------- */

/* Scales of all units of the group that have one. Chunks of a unit are in order, though not side by side. */
static void settle_scales(const pass *p, size_t chunk_n)
{
    tg_run *run = p->run;
    const tg_grid *grid = p->plan->grid;
    size_t from = grid->unit_first[p->from / grid->slices], to = grid->unit_first[p->from / grid->slices + 1];
    for (size_t j = from; j < to; j++) {
        tg_unit_work *w = &run->units[grid->units[j]];
        if (w->magnitudes != NULL) {
            w->magnitudes->n = w->sent = 0;
        }
    }
    for (size_t number = p->first; number < p->first + chunk_n; number++) {
        tg_unit_work *w = &run->units[p->plan->grid->chunks[number].unit];
        if (w->magnitudes != NULL) {
            tg_tree_add(w->magnitudes, run->work->written[number].as.magnitudes);
            w->sent += run->work->written[number].as.view.count;
        }
    }
    for (size_t j = from; j < to; j++) {
        run->units[grid->units[j]].scale = scale_of(run, grid->units[j]);
    }
}

static void close_waiting(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    size_t number = p->first + job;
    const tg_chunk *chunk = &p->plan->grid->chunks[number];
    const tg_unit_plan *u = &p->plan->units[chunk->unit];
    if (u->format.scale != TG_SCALE_NONE && !is_alone(u, chunk)) {
        close_chunk(&p->run->work->written[number], p, chunk, worker);
    }
}

/* ---- the pass -------------------------------------------------------------------------------------------------------- */

/* Writes the headers of a slice's chunks, moves chunks together, and notes what they took. */
static void assemble(tg_body *body, const pass *p, uint32_t slice)
{
    const tg_grid *grid = p->plan->grid;
    bool has_values = (p->plan->holds & TG_HAS_VALUES) != 0;
    body->len = p->plan->headers_len[slice];
    for (size_t i = grid->first[slice]; i < grid->first[slice + 1]; i++) {
        const tg_written *written = &p->run->work->written[i];
        uint8_t *place = body->bytes + body->len;
        if (written->bytes != place) {
            memmove(place, written->bytes, written->as.view.len);
        }
        if (has_values) {
            tg_host_note_chunk(p->run, grid->chunks[i].unit, &written->as.view, place);
        }
        body->len += written->as.view.len;
        body->hashes[2 + i - grid->first[slice]] = TG_LITTLE64(written->as.hash);
        const tg_unit_plan *u = &p->plan->units[grid->chunks[i].unit];
        if (u->header_len > 0) {
            tg_header_put(body->bytes + p->plan->header_at[i], u, &written->as.view);
        }
    }
    body->payload_len = body->len - p->plan->headers_len[slice];
    body->hashes[1] = tg_host_hash_headers(body->bytes, p->plan, slice);
}

tg_status tg_host_write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                        const tg_source *source, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    size_t first = grid->first[from], chunk_n = grid->first[to] - first;
    pass p = {.run = run, .plan = plan, .source = source, .bodies = bodies, .from = from, .to = to, .first = first};
    if (run->work->workers == 1) {
        write_in_turn(&p);
    } else {
        write_by_many(&p, chunk_n);
    }
    for (size_t i = first; atomic_load_explicit(&p.refused, memory_order_relaxed) && i < first + chunk_n; i++) {
        if (run->work->written[i].as.bad_tensor != 0) {
            return tg_host_refuse(run, run->work->written[i].as.bad_tensor, source, why);
        }
    }
    if (atomic_load_explicit(&p.waits, memory_order_relaxed)) {
        settle_scales(&p, chunk_n);
        for (size_t i = 0; run->work->workers == 1 && i < chunk_n; i++) {
            close_waiting(&p, 0, i);
        }
        if (run->work->workers > 1) {
            tg_pool_run(run->work->pool, chunk_n, close_waiting, &p);
        }
    }
    size_t unit = grid->unit_first[from / grid->slices], unit_end = grid->unit_first[from / grid->slices + 1];
    for (; (plan->holds & TG_HAS_VALUES) != 0 && unit < unit_end; unit++) {
        run->stats[grid->units[unit]] = (tg_unit_stats){0};
    }
    for (uint32_t s = from; s < to; s++) {
        assemble(&bodies[s - from], &p, s);
    }
    return TG_OK;
}

void tg_host_recall(tg_body_view *view, tg_run *run, uint32_t cell)
{
    const tg_grid *grid = run->plan->grid;
    uint64_t start = run->plan->headers_len[cell];
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        tg_view *v = &view->chunks[i - grid->first[cell]];
        *v = run->work->written[i].as.view; /* offsets from the chunk's start */
        v->start += start;
        v->side += start;
        v->symbols += start;
        v->indices += start;
        start += v->len;
    }
    view->keeps = run->work->kept.places > 1 ? 1 : 0;
}

/* The checksum is the hash of the hashes of what stands before the body, of headers, and of all chunks. */
void tg_host_seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                  const uint8_t *front, size_t front_len)
{
    const tg_grid *grid = plan->grid;
    (void)run;
    body->hashes[0] = TG_LITTLE64(tg_hash(front, front_len));
    uint64_t checksum = tg_hash(body->hashes, (2 + grid->first[cell + 1] - grid->first[cell]) * sizeof *body->hashes);
    memcpy(frame, front, front_len);
    tg_put_field(frame + front_len + body->len, sizeof checksum, checksum);
}
