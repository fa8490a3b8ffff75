/* The way in: gradients through feedback, select, quantize and pack into the bodies of frames.
 *
 * At most two passes over the gradient. The measuring pass, for parts that must see a whole unit before they can
 * choose, shares each unit among lanes. The writing pass takes chunk by chunk and block by block; a chunk's bytes
 * depend on nothing but its elements and the choice, so they are the same for any number of threads. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

#include <string.h>

/* ---- a block in ---------------------------------------------------------------------------------------------------- */

/* Applies the policy for NaN and Inf; false if they are refused. */
static bool admit(const tg_codec *c, float *u, size_t n)
{
    switch (c->nonfinite) {
    case TG_NONFINITE_ERROR: return tg_all_finite(u, n);
    case TG_NONFINITE_ZERO: tg_zero_nonfinite(u, n); return true;
    case TG_NONFINITE_PASS: return true;
    }
    return true;
}

/* Elements [at, at + n) of a unit, with what is remembered of them. Returns the first tensor that is refused, plus 1. */
static size_t load_block(float *u, const tg_codec *c, uint32_t unit_number, const tg_source *source, uint64_t at,
                         size_t n)
{
    const tg_unit *unit = &c->layout->units[unit_number];
    const tg_work *w = &c->works[unit_number];
    const tg_piece *piece = tg_unit_piece(unit, at);
    for (size_t done = 0; done < n; piece++) {
        uint64_t from = at + done - piece->at; /* in the tensor */
        size_t m = piece->n - from < n - done ? (size_t)(piece->n - from) : n - done;
        if (source->flat != NULL) {
            memcpy(u + done, source->flat + w->flat_at + (at + done - w->lo), m * sizeof *u);
        } else {
            tg_dtype dtype = c->layout->tensors[piece->tensor].dtype;
            const char *grad = source->grads[piece->tensor];
            tg_widen(u + done, grad + from * tg_dtype_len(dtype), dtype, m);
        }
        if (!admit(c, u + done, m)) {
            return piece->tensor + 1;
        }
        done += m;
    }
    if (w->remembers) {
        tg_recipe_feedback(unit->recipe)
            ->recall(u, unit->recipe->value[TG_STAGE_feedback], c->memory[0] + w->memory_at + (at - w->lo), n);
    }
    return 0;
}

static tg_status refuse(const tg_codec *c, size_t bad_tensor, const tg_source *source, tg_detail *why)
{
    return tg_fail(TG_E_NONFINITE, why, "%s of tensor '%.150s' holds NaN or Inf",
                   source->flat != NULL ? "the average" : "the gradient", c->layout->tensors[bad_tensor - 1].name);
}

/* ---- selecting ----------------------------------------------------------------------------------------------------- */

static void count_known(void *context, uint32_t worker, size_t chunk_number)
{
    tg_codec *c = context;
    const tg_chunk *chunk = &c->grid->chunks[chunk_number];
    tg_known known = tg_codec_known(c, chunk->unit, TG_HAS_VALUES);
    if (known == TG_KNOWN_DRAWN || (known == TG_KNOWN_LED && c->led_given)) {
        uint64_t *mask = c->desks[worker].mask;
        tg_codec_mark_known(mask, c, chunk->unit, known, chunk->at, chunk->n);
        c->known_count[chunk_number] = (uint32_t)tg_mask_count(mask, chunk->n);
    }
}

static void draw(tg_codec *c, uint64_t step, bool own_too)
{
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        bool shared = tg_codec_known(c, u, TG_HAS_VALUES) == TG_KNOWN_DRAWN;
        if (select->by == TG_BY_SEED && unit->n > 0 && (shared || own_too)) {
            tg_stream stream = tg_stream_of(c->layout->seed, step, u, shared ? 0 : c->rank + 1);
            select->draw(c->works[u].scratch, unit->recipe->value[TG_STAGE_select], unit->n, &stream);
        }
    }
    c->step = step;
    c->drawn = true;
    tg_pool_run(c->pool, c->grid->first[c->grid->slices], count_known, c);
}

void tg_codec_draw_shared(tg_codec *c, uint64_t step)
{
    if (!c->drawn || c->step != step) {
        draw(c, step, false);
    }
}

void tg_codec_take_led(tg_codec *c, const tg_grid *grid, const tg_view *views)
{
    for (size_t i = 0; i < tg_grid_chunks(grid, 0); i++) {
        const tg_chunk *chunk = &grid->chunks[i];
        const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
        if (!tg_recipe_is_led(recipe)) {
            continue;
        }
        uint64_t *led = c->works[chunk->unit].led + chunk->at / 64; /* chunks of one slice start at whole words */
        memset(led, 0, tg_words(chunk->n) * sizeof *led);
        if (views[i].count > 0) {
            (void)tg_recipe_index(recipe)->read(led, views[i].mode, views[i].indices, views[i].index_len, chunk->n,
                                                views[i].count); /* was checked when it was read */
        }
    }
    c->led_given = true;
    tg_pool_run(c->pool, c->grid->first[c->grid->slices], count_known, c);
}

typedef struct pass {
    tg_codec *c;
    const tg_source *source;
    const tg_grid *grid;
    tg_body *bodies;
    uint32_t from;
    unsigned holds;
} pass;

static bool is_given(const tg_codec *c, uint32_t unit)
{
    const tg_codec *knows = c->parent != NULL ? c->parent : c;
    return knows->led_given && tg_recipe_is_led(c->layout->units[unit].recipe);
}

static void measure_lane(void *context, uint32_t worker, size_t job_number)
{
    const pass *p = context;
    const tg_lane_job *job = &p->c->lane_jobs[job_number];
    const tg_work *w = &p->c->works[job->unit];
    float *u = p->c->desks[worker].u;
    p->c->lane_bad[job_number] = 0;
    if (is_given(p->c, job->unit)) {
        return;
    }
    uint64_t at = w->lo + job->lane * w->lane_n;
    uint64_t end = w->hi - w->lo > (job->lane + 1) * w->lane_n ? at + w->lane_n : w->hi;
    while (at < end) {
        size_t n = end - at < TG_BLOCK ? (size_t)(end - at) : TG_BLOCK;
        size_t bad = load_block(u, p->c, job->unit, p->source, at, n);
        if (bad != 0) {
            p->c->lane_bad[job_number] = bad;
            return;
        }
        tg_recipe_select(p->c->layout->units[job->unit].recipe)->measure(w->scratch, job->lane, at, u, n);
        at += n;
    }
}

static void settle_unit(void *context, uint32_t worker, size_t u)
{
    const pass *p = context;
    (void)worker;
    const tg_select_part *select = tg_recipe_select(p->c->layout->units[u].recipe);
    if (select->settle != NULL && p->c->works[u].lanes > 0 && !is_given(p->c, (uint32_t)u)) {
        select->settle(p->c->works[u].scratch);
    }
}

tg_status tg_codec_select(tg_codec *c, uint64_t step, const tg_source *source, tg_detail *why)
{
    if (c->parent == NULL) {
        draw(c, step, true);
    }
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        const tg_work *w = &c->works[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        if (select->start != NULL && w->lanes > 0 && !is_given(c, u)) {
            select->start(w->scratch, unit->recipe->value[TG_STAGE_select], w->hi - w->lo, w->lanes, w->lane_n);
        }
    }
    pass p = {.c = c, .source = source};
    tg_pool_run(c->pool, c->lane_job_n, measure_lane, &p);
    for (size_t j = 0; j < c->lane_job_n; j++) {
        if (c->lane_bad[j] != 0) {
            return refuse(c, c->lane_bad[j], source, why);
        }
    }
    tg_pool_run(c->pool, c->lane_job_n > 0 ? c->layout->unit_n : 0, settle_unit, &p);
    return TG_OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

static uint64_t chunk_bound(const tg_codec *c, const tg_chunk *chunk, unsigned holds)
{
    if (!tg_codec_carries(c, chunk->unit, holds)) {
        return 0;
    }
    const tg_unit *unit = &c->layout->units[chunk->unit];
    const tg_select_part *select = tg_recipe_select(unit->recipe);
    /* What is chosen in the domain alone is bounded by it; what is drawn or led may all fall into one slice. */
    bool chosen_here = select->by == TG_BY_DATA && !tg_recipe_is_led(unit->recipe);
    uint64_t n = chosen_here ? c->works[chunk->unit].hi - c->works[chunk->unit].lo : unit->n;
    uint64_t most = select->most(unit->recipe->value[TG_STAGE_select], n);
    uint64_t count = most < chunk->n ? most : chunk->n;
    uint64_t len = 0;
    if ((holds & TG_HAS_VALUES) != 0) {
        len += tg_recipe_symbol(unit->recipe)->len(count, tg_recipe_quantize(unit->recipe)->symbol_len);
    }
    if (tg_codec_known(c, chunk->unit, holds) == TG_KNOWN_TOLD) {
        len += TG_CHUNK_HEADER + tg_bitmap_len(chunk->n);
    }
    return len;
}

uint64_t tg_body_bound(const tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds)
{
    uint64_t len = 0;
    for (size_t i = grid->first[slice]; i < grid->first[slice + 1]; i++) {
        len += chunk_bound(c, &grid->chunks[i], holds);
    }
    return len;
}

uint64_t tg_body_limit(const tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds)
{
    uint64_t len = 0;
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        uint64_t n = tg_slice_start(unit->n, slice + 1, grid->slices) - tg_slice_start(unit->n, slice, grid->slices);
        if (n == 0 || !tg_codec_carries(c, u, holds)) {
            continue;
        }
        uint64_t most = tg_recipe_select(unit->recipe)->most(unit->recipe->value[TG_STAGE_select], unit->n);
        uint64_t count = most < n ? most : n;
        uint64_t chunks = (n + TG_CHUNK - 1) / TG_CHUNK;
        if ((holds & TG_HAS_VALUES) != 0) {
            len += tg_recipe_symbol(unit->recipe)->len(count, tg_recipe_quantize(unit->recipe)->symbol_len);
        }
        if (tg_codec_known(c, u, holds) == TG_KNOWN_TOLD) {
            /* + 1: each chunk's indices are rounded up to a byte */
            len += chunks * (TG_CHUNK_HEADER + 1) + tg_recipe_index(unit->recipe)->limit(n, count);
        }
    }
    return len;
}

/* Marks a block's coordinates; u may be NULL where the part does not look at it. */
static void mark_block(uint64_t *mask, const tg_codec *c, uint32_t unit, uint64_t at, const float *u, size_t n)
{
    if (is_given(c, unit)) {
        tg_codec_mark_known(mask, c, unit, TG_KNOWN_LED, at, n);
        return;
    }
    const tg_recipe *recipe = c->layout->units[unit].recipe;
    memset(mask, 0, tg_words(n) * sizeof *mask);
    tg_recipe_select(recipe)->mark(mask, c->works[unit].scratch, recipe->value[TG_STAGE_select], at, u, n);
}

typedef struct progress {
    uint8_t *out; /* where the next symbols go */
    size_t count; /* entries so far */
    size_t bad_tensor;
} progress;

/* What a block becomes once its coordinates are marked (NULL: all): symbols behind progress->out, and the memory. */
static void write_values(progress *to, const tg_codec *c, uint32_t unit, tg_desk *desk, const uint64_t *mask,
                         uint64_t at, size_t n)
{
    const tg_recipe *recipe = c->layout->units[unit].recipe;
    const tg_work *w = &c->works[unit];
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    const tg_symbol_part *symbol = tg_recipe_symbol(recipe);
    const float *values = desk->u;
    size_t count = n;
    if (mask != NULL) {
        count = tg_compress(desk->values, desk->u, mask, n);
        values = desk->values;
    }
    if (w->gain != 1.0f) {
        tg_scale(desk->values, values, w->gain, count);
        values = desk->values;
    }
    quantize->encode(desk->symbols, desk->decoded, values, count);
    symbol->write(to->out, desk->symbols, count, quantize->symbol_len);
    to->out += symbol->len(count, quantize->symbol_len);
    to->count += count;
    if (w->remembers) {
        float *next = c->memory[1] + w->memory_at + (at - w->lo);
        tg_recipe_feedback(recipe)->keep(next, desk->u, mask, desk->decoded, n);
        if (c->nonfinite == TG_NONFINITE_PASS) {
            tg_zero_nonfinite(next, n); /* what can not be made good later is forgotten */
        }
    }
}

/* One block through the pipe; mask is the chunk's, at this block's place. */
static void write_block(progress *to, const pass *p, const tg_chunk *chunk, tg_desk *desk, uint64_t *mask, uint64_t at,
                        size_t n)
{
    const tg_codec *c = p->c;
    const tg_select_part *select = tg_recipe_select(c->layout->units[chunk->unit].recipe);
    bool every = select->by == TG_BY_NOTHING;
    bool looks = select->by == TG_BY_DATA && !is_given(c, chunk->unit);
    bool has_values = (p->holds & TG_HAS_VALUES) != 0;
    if (!every && !looks) {
        mark_block(mask, c, chunk->unit, at, NULL, n);
        bool empty = tg_mask_count(mask, n) == 0;
        if (empty && !c->works[chunk->unit].remembers && c->nonfinite != TG_NONFINITE_ERROR) {
            return; /* nothing here is sent, remembered or refused */
        }
    }
    to->bad_tensor = load_block(desk->u, c, chunk->unit, p->source, at, n);
    if (to->bad_tensor != 0) {
        return;
    }
    if (looks) {
        mark_block(mask, c, chunk->unit, at, desk->u, n);
    }
    if (has_values) {
        write_values(to, c, chunk->unit, desk, every ? NULL : mask, at, n);
    }
}

static void write_chunk(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    tg_codec *c = p->c;
    size_t number = p->grid->first[p->from] + job;
    const tg_chunk *chunk = &p->grid->chunks[number];
    tg_written *written = &c->written[number];
    uint32_t slice = p->from;
    while (p->grid->first[slice + 1] <= number) {
        slice++;
    }
    uint8_t *start = p->bodies[slice - p->from].dst + written->at;
    if (!tg_codec_carries(c, chunk->unit, p->holds)) {
        *written = (tg_written){.at = written->at, .hash = tg_hash(start, 0)};
        return;
    }
    bool told = tg_codec_known(c, chunk->unit, p->holds) == TG_KNOWN_TOLD;
    tg_desk *desk = &c->desks[worker];
    size_t header = told ? TG_CHUNK_HEADER : 0;
    progress to = {.out = start + header};
    for (uint32_t done = 0; done < chunk->n && to.bad_tensor == 0; done += TG_BLOCK) {
        size_t n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        write_block(&to, p, chunk, desk, desk->mask + done / 64, chunk->at + done, n);
    }
    if (told) {
        uint8_t mode = 0;
        size_t count = (size_t)tg_mask_count(desk->mask, chunk->n), index_len = 0;
        if (count > 0 && to.bad_tensor == 0) {
            index_len = tg_recipe_index(c->layout->units[chunk->unit].recipe)
                            ->write(to.out, &mode, desk->mask, chunk->n, count);
        }
        tg_put32(start, (uint32_t)count | (uint32_t)mode << 24);
        tg_put16(start + 4, (uint16_t)index_len);
        to.out += index_len;
    }
    written->len = (size_t)(to.out - start);
    written->payload_len = written->len - header;
    written->hash = tg_hash(start, written->len);
    written->bad_tensor = to.bad_tensor;
}

tg_status tg_codec_write(tg_codec *c, tg_body *bodies, const tg_grid *grid, uint32_t from, uint32_t to, unsigned holds,
                         const tg_source *source, tg_detail *why)
{
    /* Every chunk gets a place that is certainly large enough; then they are moved together. */
    for (uint32_t s = from; s < to; s++) {
        uint64_t at = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            c->written[i].at = (size_t)at;
            at += chunk_bound(c, &grid->chunks[i], holds);
        }
    }
    pass p = {.c = c, .source = source, .grid = grid, .bodies = bodies, .from = from, .holds = holds};
    tg_pool_run(c->pool, grid->first[to] - grid->first[from], write_chunk, &p);
    for (size_t i = grid->first[from]; i < grid->first[to]; i++) {
        if (c->written[i].bad_tensor != 0) {
            return refuse(c, c->written[i].bad_tensor, source, why);
        }
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
