/* The end of the way in: all chunks of a body, what they need of each other, and their places.
 *
 * A quantizer with a scale that only the whole unit tells is closed behind the pass, at the cost of what was sent. */
#include "base/bytes.h"
#include "base/half.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* How chunks come to stand one behind the other. */
typedef enum placing {
    MOVED,   /* each has room for the most that it may take; they are moved together in the end */
    IN_TURN, /* one thread writes them all, each where the one before it ends */
    ASIDE    /* threads write them aside, and put each where the one before it ends as soon as that is known */
} placing;

typedef struct pass {
    tg_codec *c;
    const tg_source *source;
    const tg_grid *grid;
    tg_body *bodies;
    uint32_t from;
    unsigned holds;
    placing places;
    size_t end;           /* of the last that has its place ... */
    atomic_size_t placed; /* ... and how many have */
} pass;

static uint32_t slice_of(const pass *p, size_t number)
{
    uint32_t slice = p->from;
    while (p->grid->first[slice + 1] <= number) {
        slice++;
    }
    return slice;
}

static uint8_t *chunk_start(const pass *p, size_t number)
{
    return p->bodies[slice_of(p, number) - p->from].dst + p->c->written[number].at;
}

/* Where the chunk before it ends, in its slice. */
static size_t end_before(const pass *p, size_t number)
{
    return p->grid->first[slice_of(p, number)] == number ? 0 : p->end;
}

/* A chunk that was written aside, to its place, once all before it have theirs. They are on the desks of other threads, and
 * chunks are taken in order, so this does not take long. */
static void place_chunk(pass *p, size_t job, const uint8_t *aside)
{
    size_t number = p->grid->first[p->from] + job;
    tg_written *written = &p->c->written[number];
    while (atomic_load_explicit(&p->placed, memory_order_acquire) != job) {
        sched_yield();
    }
    written->at = end_before(p, number);
    p->end = written->at + written->len;
    atomic_store_explicit(&p->placed, job + 1, memory_order_release);
    if (written->len == 0) {
        return;
    }
    uint8_t *start = chunk_start(p, number);
    memcpy(start, aside, written->len);
    tg_view *view = &written->view;
    view->side = start + (view->side - aside);
    view->symbols = start + (view->symbols - aside);
    view->indices = start + (view->indices - aside);
    view->start = start;
}

static void write_chunk(void *context, uint32_t worker, size_t job)
{
    pass *p = context;
    tg_desk *desk = &p->c->desks[worker];
    size_t number = p->grid->first[p->from] + job;
    tg_written *written = &p->c->written[number];
    if (p->places == IN_TURN) {
        written->at = end_before(p, number);
    }
    uint8_t *start = p->places == ASIDE ? (uint8_t *)desk->sum : chunk_start(p, number);
    tg_chunk_write(written, p->c, desk, &p->grid->chunks[number], p->holds, p->source, start);
    if (p->places == ASIDE) {
        place_chunk(p, job, start);
    } else if (p->places == IN_TURN) {
        p->end = written->at + written->len;
    }
}

/* What suits: to move little is nothing, but chunks of coded values are long, and shorter than what they may be. */
static placing choose_placing(const tg_codec *c, const tg_grid *grid, uint32_t from, uint32_t to, unsigned holds)
{
    if (tg_pool_workers(c->pool) == 1) {
        return IN_TURN;
    }
    for (size_t i = grid->first[from]; i < grid->first[to]; i++) {
        const tg_chunk *chunk = &grid->chunks[i];
        const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
        if (!tg_recipe_is_coded(recipe) || tg_recipe_quantize(recipe)->has_scale ||
            tg_chunk_bound(c, chunk, holds) > sizeof c->desks->sum) {
            return MOVED;
        }
    }
    return ASIDE;
}

/* What was sent of each unit, and the scale that it tells. */
static void settle_units(tg_codec *c, const tg_grid *grid, size_t first, size_t end)
{
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        tg_work_note_nothing(&c->works[u]);
        c->works[u].magnitudes = 0;
    }
    for (size_t i = first; i < end; i++) {
        tg_work *w = &c->works[grid->chunks[i].unit];
        tg_work_note_fit(w, c->layout->units[grid->chunks[i].unit].recipe, &c->written[i].view);
        w->sent_len += c->written[i].len;
        w->sent_n += c->written[i].view.count;
        w->magnitudes += c->written[i].magnitudes;
    }
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        tg_work *w = &c->works[u];
        double sum = w->magnitudes, n = (double)w->sent_n;
        if (w->maxima != NULL) {
            uint64_t bins = tg_work_bins(w);
            sum = 0;
            for (uint64_t b = 0; b < bins; b++) {
                sum += (double)w->maxima[b];
            }
            n = (double)bins;
        }
        w->scale = n > 0 ? (float)(sum / n) : 0.0f;
        w->scale = tg_recipe_scale_is(c->layout->units[u].recipe, TG_SCALE_ONE) ? 1.0f : w->scale;
    }
}

/* Puts the scale into a chunk, and takes what the decoder will see of it out of the memory, which has all of it so far. */
static void close_chunk(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    tg_codec *c = p->c;
    size_t number = p->grid->first[p->from] + job;
    const tg_chunk *chunk = &p->grid->chunks[number];
    const tg_work *w = &c->works[chunk->unit];
    tg_written *written = &c->written[number];
    if (!tg_recipe_quantize(c->layout->units[chunk->unit].recipe)->has_scale) {
        return;
    }
    uint8_t *start = chunk_start(p, number);
    if (written->view.count > 0) {
        tg_put32(start + (written->len - written->payload_len), tg_float_bits(w->scale));
    }
    if (w->remembers) {
        float *memory = c->memory[1] + w->memory_at + (chunk->at - w->lo);
        tg_codec_unpack(memory, c, chunk, &written->view, &c->desks[worker], false, -1.0f);
        if (c->nonfinite == TG_NONFINITE_PASS) {
            tg_zero_nonfinite(memory, chunk->n);
        }
    }
    written->hash = tg_hash(start, written->len);
}

tg_status tg_codec_write(tg_codec *c, tg_body *bodies, const tg_grid *grid, uint32_t from, uint32_t to, unsigned holds,
                         const tg_source *source, tg_detail *why)
{
    for (uint32_t s = from; s < to; s++) {
        uint64_t at = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            c->written[i].at = (size_t)at;
            at += tg_chunk_bound(c, &grid->chunks[i], holds);
        }
    }
    pass p = {.c = c, .source = source, .grid = grid, .bodies = bodies, .from = from, .holds = holds};
    p.places = choose_placing(c, grid, from, to, holds);
    size_t chunk_n = grid->first[to] - grid->first[from];
    tg_pool_run(c->pool, chunk_n, write_chunk, &p);
    for (size_t i = grid->first[from]; i < grid->first[to]; i++) {
        if (c->written[i].bad_tensor != 0) {
            return tg_codec_refuse(c, c->written[i].bad_tensor, source, why);
        }
    }
    if ((holds & TG_HAS_VALUES) != 0) {
        settle_units(c, grid, grid->first[from], grid->first[to]);
        tg_pool_run(c->pool, c->any_scale ? chunk_n : 0, close_chunk, &p);
    }
    for (uint32_t s = from; s < to; s++) {
        tg_body *body = &bodies[s - from];
        body->len = body->payload_len = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            if (c->written[i].at != body->len) {
                memmove(body->dst + body->len, body->dst + c->written[i].at, c->written[i].len);
            }
            body->len += c->written[i].len;
            body->payload_len += c->written[i].payload_len;
        }
    }
    return TG_OK;
}

void tg_codec_commit(tg_codec *c)
{
    float *swap = c->memory[0];
    c->memory[0] = c->memory[1];
    c->memory[1] = swap;
}
