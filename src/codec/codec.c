/* Makes codecs: works out what each unit needs and takes all the memory that encoding and decoding will use. */
#include "codec/codec.h"

#include "base/bits.h"

#include <inttypes.h>
#include <string.h>

/* ---- grid ---------------------------------------------------------------------------------------------------------- */

/* Lays the chunks of all slices into the grid, or only counts them if there is no room yet. */
static uint64_t lay_chunks(tg_grid *g, const tg_layout *l)
{
    uint64_t count = 0;
    for (uint32_t s = 0; s < g->slices; s++) {
        if (g->chunks != NULL) {
            g->first[s] = (size_t)count;
        }
        for (size_t u = 0; u < l->unit_n; u++) {
            uint64_t hi = tg_slice_start(l->units[u].n, s + 1, g->slices);
            uint64_t at = tg_slice_start(l->units[u].n, s, g->slices);
            if (g->chunks == NULL) {
                count += (hi - at + TG_CHUNK - 1) / TG_CHUNK;
                continue;
            }
            for (; at < hi; at += TG_CHUNK) {
                uint64_t n = hi - at < TG_CHUNK ? hi - at : TG_CHUNK;
                g->chunks[count++] = (tg_chunk){.unit = (uint32_t)u, .n = (uint32_t)n, .at = at};
            }
        }
    }
    return count;
}

tg_status tg_grid_new(tg_grid **out, const tg_layout *layout, uint32_t slices, const tg_allocator *a, tg_detail *why)
{
    tg_grid *g = NULL;
    TG_TRY(tg_acquire(&g, a, 1, sizeof *g, why));
    g->slices = slices;
    uint64_t count = lay_chunks(g, layout);
    tg_status status = tg_acquire(&g->first, a, (uint64_t)slices + 1, sizeof *g->first, why);
    if (status == TG_OK) {
        status = tg_acquire(&g->chunks, a, count + 1, sizeof *g->chunks, why); /* + 1: never NULL */
    }
    if (status != TG_OK) {
        tg_grid_free(g, a);
        return status;
    }
    g->first[slices] = (size_t)lay_chunks(g, layout);
    *out = g;
    return TG_OK;
}

void tg_grid_free(tg_grid *g, const tg_allocator *a)
{
    if (g != NULL) {
        tg_release(a, g->chunks);
        tg_release(a, g->first);
        tg_release(a, g);
    }
}

/* ---- codec ----------------------------------------------------------------------------------------------------------- */

static bool is_measured(const tg_codec *c, const tg_unit *unit)
{
    return !c->only_decodes && tg_recipe_select(unit->recipe)->measure != NULL;
}

/* The feedback of a unit; of an answer, where a part says so, another at its standards. */
static void set_feedback(tg_work *w, const tg_codec *c, const tg_recipe *recipe)
{
    static const double standards[TG_PARAM_CAP] = {1};
    w->feedback = tg_recipe_feedback(recipe);
    w->feedback_params = recipe->value[TG_STAGE_feedback];
    if (c->parent != NULL && w->feedback->answers_as != NULL) {
        w->feedback = w->feedback->answers_as;
        w->feedback_params = standards; /* of ef: a decay of 1 */
    }
}

/* The part of each unit that is in the domain, and how many threads measure it. */
static void plan_works(tg_codec *c, bool remembers)
{
    uint32_t workers = tg_pool_workers(c->pool);
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        tg_work *w = &c->works[u];
        w->lo = tg_slice_start(unit->n, c->slice, c->slices);
        w->hi = tg_slice_start(unit->n, c->slice + 1, c->slices);
        uint64_t n = w->hi - w->lo;
        w->bin = tg_recipe_bin(unit->recipe);
        w->shrink = 1.0f;
        w->flat_at = c->flat_n;
        c->flat_n += n;
        set_feedback(w, c, unit->recipe);
        w->remembers = remembers && w->feedback->planes > 0;
        w->memory_at = c->memory_n;
        c->memory_n += w->remembers ? n * w->feedback->planes : 0;
        c->any_scale = c->any_scale || tg_recipe_quantize(unit->recipe)->has_scale;
        w->gain = 1.0f;
        if (c->parent == NULL && select->gain != NULL) {
            w->gain = (float)select->gain(unit->recipe->value[TG_STAGE_select], unit->n);
        }
        uint64_t chunks = (n + TG_CHUNK - 1) / TG_CHUNK;
        w->lanes = chunks < workers ? (uint32_t)chunks : workers;
        w->lane_n = w->lanes == 0 ? 0 : (chunks + w->lanes - 1) / w->lanes * TG_CHUNK;
        c->lane_job_n += is_measured(c, unit) ? w->lanes : 0;
    }
}

/* Scratch of select parts, and masks for what a leader gives; an answer uses those that its parent has filled. */
static tg_status acquire_scratch(tg_codec *c, tg_detail *why)
{
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        tg_work *w = &c->works[u];
        if (c->parent != NULL) {
            w->led = c->parent->works[u].led;
        } else if (tg_recipe_is_led(unit->recipe)) {
            TG_TRY(tg_acquire(&w->led, &c->allocator, tg_words(unit->n), sizeof *w->led, why));
        }
        if (!c->only_decodes && tg_recipe_scale_is(unit->recipe, TG_SCALE_BINS)) {
            TG_TRY(tg_acquire(&w->maxima, &c->allocator, tg_work_bins(w), sizeof *w->maxima, why));
        }
        if (select->scratch_len == NULL || (c->only_decodes && select->by == TG_BY_DATA)) {
            continue;
        }
        if (c->parent != NULL && select->by == TG_BY_SEED) {
            w->scratch = c->parent->works[u].scratch;
            continue;
        }
        uint64_t n = select->by == TG_BY_SEED ? unit->n : w->hi - w->lo;
        uint64_t len = select->scratch_len(unit->recipe->value[TG_STAGE_select], n, w->lanes, w->lane_n);
        TG_TRY(tg_acquire_room(&w->scratch, &c->allocator, len, why));
    }
    return TG_OK;
}

static tg_status acquire_lanes(tg_codec *c, tg_detail *why)
{
    TG_TRY(tg_acquire(&c->lane_jobs, &c->allocator, c->lane_job_n, sizeof *c->lane_jobs, why));
    TG_TRY(tg_acquire(&c->lane_bad, &c->allocator, c->lane_job_n, sizeof *c->lane_bad, why));
    tg_lane_job *job = c->lane_jobs;
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        for (uint32_t lane = 0; is_measured(c, &c->layout->units[u]) && lane < c->works[u].lanes; lane++) {
            *job++ = (tg_lane_job){(uint32_t)u, lane};
        }
    }
    return TG_OK;
}

/* Bytes that a worker needs for quantizers with buckets and for coded values, beside its desk: values and symbols of a
 * chunk, random words, and what the parts themselves ask for. */
enum {
    SENT_LEN = TG_CHUNK * sizeof(float),
    SYMBOLS_LEN = TG_CHUNK * sizeof(uint16_t),
    DRAWS_LEN = TG_BUCKET_MAX * sizeof(uint32_t),
    CLIPPED_LEN = TG_BUCKET_MAX * sizeof(float)
};

typedef struct room {
    uint64_t quantize_len, pack_len; /* of the parts themselves */
    uint64_t len;                    /* of all; 0: nothing is needed */
} room;

static uint64_t larger_room(uint64_t len, uint64_t other)
{
    return len > other ? len : (other + 63) / 64 * 64;
}

static room plan_room(const tg_codec *c)
{
    room r = {0};
    bool any = false;
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        const tg_recipe *recipe = c->layout->units[u].recipe;
        const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
        const tg_symbol_part *pack = tg_recipe_symbol(recipe);
        any = any || quantize->plain_len == 0 || tg_recipe_is_coded(recipe);
        if (quantize->room_len != NULL && !c->only_decodes) {
            r.quantize_len = larger_room(r.quantize_len, quantize->room_len(recipe->value[TG_STAGE_quantize]));
        }
        if (pack->room_len != NULL) {
            r.pack_len = larger_room(r.pack_len, pack->room_len(recipe->value[TG_STAGE_symbol]));
        }
    }
    r.len = any ? SENT_LEN + SYMBOLS_LEN + DRAWS_LEN + CLIPPED_LEN + r.quantize_len + r.pack_len : 0;
    return r;
}

/* Large, and written before it is read: nothing that needs clearing. */
static tg_status acquire_desks(tg_codec *c, tg_detail *why)
{
    uint64_t workers = tg_pool_workers(c->pool);
    room r = plan_room(c);
    TG_TRY(tg_acquire_room(&c->desks, &c->allocator, workers * sizeof *c->desks, why));
    TG_TRY(tg_acquire_room(&c->room, &c->allocator, workers * r.len, why));
    for (uint64_t w = 0; r.len > 0 && w < workers; w++) {
        char *at = (char *)c->room + w * r.len;
        c->desks[w].sent = (float *)(void *)at;
        c->desks[w].held = (uint8_t *)at;
        c->desks[w].symbols = (uint16_t *)(void *)(at + SENT_LEN);
        c->desks[w].draws = (uint32_t *)(void *)(at + SENT_LEN + SYMBOLS_LEN);
        c->desks[w].clipped = (float *)(void *)(at + SENT_LEN + SYMBOLS_LEN + DRAWS_LEN);
        c->desks[w].room = at + SENT_LEN + SYMBOLS_LEN + DRAWS_LEN + CLIPPED_LEN;
        c->desks[w].pack_room = (char *)c->desks[w].room + r.quantize_len;
    }
    return TG_OK;
}

/* Lists have room for one entry in so many elements, of the first so many. */
enum { LIST_SHARE = 32, LIST_MOST = 1 << 24 };

static uint64_t lists_n(const tg_codec *c)
{
    bool any = false;
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        const tg_recipe *recipe = c->layout->units[u].recipe;
        any = any || (tg_recipe_select(recipe)->by != TG_BY_NOTHING && tg_recipe_index(recipe)->list != NULL);
    }
    uint64_t n = any ? c->layout->element_n / LIST_SHARE : 0;
    return n < LIST_MOST ? n : LIST_MOST;
}

uint32_t *tg_codec_list(const tg_codec *c, const tg_chunk *chunk, uint64_t count)
{
    uint64_t at = (c->layout->units[chunk->unit].at + chunk->at) / LIST_SHARE;
    return count <= chunk->n / LIST_SHARE && at + count <= c->list_n ? c->lists + at : NULL;
}

static tg_status acquire_all(tg_codec *c, bool remembers, tg_detail *why)
{
    const tg_allocator *a = &c->allocator;
    TG_TRY(tg_acquire(&c->works, a, c->layout->unit_n, sizeof *c->works, why));
    plan_works(c, remembers);
    c->streams = c->memory_n >= TG_STREAMS_FROM;
    TG_TRY(acquire_scratch(c, why));
    TG_TRY(acquire_lanes(c, why));
    for (int m = 0; m < 2; m++) {
        TG_TRY(tg_acquire(&c->memory[m], a, c->memory_n, sizeof(float), why));
    }
    if (c->parent != NULL) {
        c->written = c->parent->written;
        c->known_count = c->parent->known_count;
        c->bodies = c->parent->bodies;
        c->views = c->parent->views;
        c->view_hashes = c->parent->view_hashes;
        c->lists = c->parent->lists;
        c->list_n = c->parent->list_n;
        c->desks = c->parent->desks;
        return TG_OK;
    }
    size_t chunks = c->grid->first[c->grid->slices];
    TG_TRY(tg_acquire(&c->written, a, chunks, sizeof *c->written, why));
    TG_TRY(tg_acquire(&c->known_count, a, chunks, sizeof *c->known_count, why));
    TG_TRY(tg_acquire(&c->bodies, a, c->grid->slices, sizeof *c->bodies, why));
    TG_TRY(tg_acquire(&c->views, a, chunks, sizeof *c->views, why));
    TG_TRY(tg_acquire(&c->view_hashes, a, chunks, sizeof *c->view_hashes, why));
    c->list_n = lists_n(c);
    TG_TRY(tg_acquire_room(&c->lists, a, c->list_n * sizeof *c->lists, why));
    return acquire_desks(c, why);
}

static tg_status finish(tg_codec **out, tg_codec *c, tg_status status)
{
    if (status != TG_OK) {
        tg_codec_free(c);
        return status;
    }
    *out = c;
    return TG_OK;
}

tg_status tg_codec_make(tg_codec **out, tg_layout *layout, uint32_t slices, bool only_decodes, const tg_options *opt,
                        tg_detail *why)
{
    tg_allocator a = tg_allocator_or_standard(opt->allocator);
    tg_codec *c = NULL;
    tg_status status = tg_acquire(&c, &a, 1, sizeof *c, why);
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    c->allocator = a;
    c->layout = layout;
    c->only_decodes = only_decodes;
    c->nonfinite = opt->nonfinite;
    c->rank = opt->rank;
    c->describe = opt->describe;
    c->slices = 1;
    status = tg_pool_new(&c->pool, opt->threads, &a, why);
    if (status == TG_OK) {
        status = tg_grid_new(&c->grid, layout, slices, &a, why);
    }
    if (status == TG_OK) {
        status = acquire_all(c, !only_decodes, why);
    }
    return finish(out, c, status);
}

tg_status tg_codec_make_answer(tg_codec **out, tg_codec *parent, uint32_t slice, bool remembers, tg_detail *why)
{
    tg_codec *c = NULL;
    TG_TRY(tg_acquire(&c, &parent->allocator, 1, sizeof *c, why));
    c->allocator = parent->allocator;
    c->parent = parent;
    c->layout = parent->layout;
    c->grid = parent->grid;
    c->pool = parent->pool;
    c->nonfinite = parent->nonfinite;
    c->rank = parent->rank;
    c->slice = slice;
    c->slices = parent->grid->slices;
    return finish(out, c, acquire_all(c, remembers, why));
}

/* What is decoded may be longer than what a part can choose from. */
static tg_status check_lengths(const tg_layout *l, tg_detail *why)
{
    for (size_t u = 0; u < l->unit_n; u++) {
        const tg_unit *unit = &l->units[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        if (select->n_max != 0 && unit->n > select->n_max) {
            return tg_fail(TG_E_ARGUMENT, why,
                           "'%s' spans %" PRIu64 " elements from tensor '%.60s' on; %" PRIu64 " are the most",
                           select->part.name, unit->n, l->tensors[unit->pieces[0].tensor].name, select->n_max);
        }
    }
    return TG_OK;
}

static tg_status check_options(const tg_options *opt, tg_detail *why)
{
    if (opt->rule_n > 0 && opt->rules == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no rules are given, though rule_n says %zu", opt->rule_n);
    }
    if (opt->rank == UINT32_MAX) {
        return tg_fail(TG_E_ARGUMENT, why, "a rank is at most 2^32 - 2");
    }
    if (opt->nonfinite < TG_NONFINITE_ERROR || opt->nonfinite > TG_NONFINITE_PASS) {
        return tg_fail(TG_E_ARGUMENT, why, "unknown policy for NaN and Inf");
    }
    return TG_OK;
}

tg_status tg_codec_layout(tg_layout **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why)
{
    TG_TRY(check_options(opt, why));
    if (tensor_n > 0 && tensors == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no tensors are given");
    }
    tg_allocator a = tg_allocator_or_standard(opt->allocator);
    tg_recipe *recipes = NULL;
    TG_TRY(tg_acquire(&recipes, &a, tensor_n, sizeof *recipes, why));
    tg_status status = tg_policy_apply(recipes, recipe, tensors, tensor_n, opt, why);
    if (status == TG_OK) {
        status = tg_layout_new(out, tensors, tensor_n, recipes, opt->has_seed != 0, opt->seed, &a, why);
    }
    tg_release(&a, recipes);
    if (status == TG_OK) {
        status = check_lengths(*out, why);
        if (status != TG_OK) {
            tg_layout_free(*out);
            *out = NULL;
        }
    }
    return status;
}

tg_status tg_codec_new(tg_codec **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                       const tg_options *opt, tg_detail *why)
{
    tg_options options;
    tg_layout *layout = NULL;
    TG_NEED(out, why);
    TG_TRY(tg_options_read(&options, opt, why));
    TG_TRY(tg_codec_layout(&layout, recipe, tensors, tensor_n, &options, why));
    const char *own = tg_layout_exchange(layout);
    if (own != NULL) {
        tg_layout_free(layout);
        return tg_fail(TG_E_RECIPE, why, "'%.100s' travels by an exchange of its own, %s, and has no frame to write to",
                       recipe, own);
    }
    return tg_codec_make(out, layout, 1, false, &options, why);
}

void tg_codec_free(tg_codec *c)
{
    if (c == NULL) {
        return;
    }
    tg_allocator a = c->allocator;
    bool owns = c->parent == NULL;
    for (int m = 0; m < 2; m++) {
        tg_release(&a, c->memory[m]);
    }
    for (size_t u = 0; c->works != NULL && u < c->layout->unit_n; u++) {
        const tg_work *w = &c->works[u];
        tg_release(&a, w->maxima);
        if (owns || w->scratch != c->parent->works[u].scratch) {
            tg_release(&a, w->scratch);
        }
        if (owns) {
            tg_release(&a, w->led);
        }
    }
    tg_release(&a, c->works);
    tg_release(&a, c->lane_jobs);
    tg_release(&a, c->lane_bad);
    if (owns) {
        tg_release(&a, c->room);
        tg_release(&a, c->desks);
        tg_release(&a, c->lists);
        tg_release(&a, c->view_hashes);
        tg_release(&a, c->views);
        tg_release(&a, c->bodies);
        tg_release(&a, c->known_count);
        tg_release(&a, c->written);
        tg_grid_free(c->grid, &a);
        tg_pool_free(c->pool);
        tg_layout_free(c->layout);
    }
    tg_release(&a, c);
}
