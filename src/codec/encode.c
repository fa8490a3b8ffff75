/* The way in: gradients through feedback, select, quantize and pack into the bodies of frames.
 *
 * The writing pass takes chunk by chunk and block by block; a chunk's bytes depend on nothing but its elements and what
 * was chosen before, so they are the same for any number of threads. A quantizer with a scale that only the whole unit
 * tells is closed behind the pass, at the cost of what was sent. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
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

size_t tg_codec_load_gradient(tg_desk *desk, const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at,
                              size_t n)
{
    const tg_work *w = &c->works[unit];
    const tg_piece *piece = tg_unit_piece(&c->layout->units[unit], at);
    float *u = desk->u;
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
    return 0;
}

/* Where a block of a gradient can be taken from as it lies, because it is remembered with anyway and is fp32, of one tensor
 * and not to be changed: saves a copy. NULL: it can not. */
static const float *in_place(const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at, size_t n)
{
    const tg_work *w = &c->works[unit];
    const tg_piece *piece = tg_unit_piece(&c->layout->units[unit], at);
    bool whole = n > 0 && at + n <= piece->at + piece->n;
    if (!w->remembers || !whole || source->flat != NULL || w->shrink != 1.0f || c->nonfinite == TG_NONFINITE_ZERO ||
        c->layout->tensors[piece->tensor].dtype != TG_FP32) {
        return NULL;
    }
    const float *grad = source->grads[piece->tensor];
    return (uintptr_t)grad % sizeof *grad == 0 ? grad + (at - piece->at) : NULL;
}

size_t tg_codec_load(tg_desk *desk, const tg_codec *c, uint32_t unit, const tg_source *source, uint64_t at, size_t n)
{
    const tg_work *w = &c->works[unit];
    const float *g = in_place(c, unit, source, at, n);
    if (g != NULL && c->nonfinite == TG_NONFINITE_ERROR && !tg_all_finite(g, n)) {
        return tg_unit_piece(&c->layout->units[unit], at)->tensor + 1;
    }
    if (g == NULL) {
        size_t bad_tensor = tg_codec_load_gradient(desk, c, unit, source, at, n);
        if (bad_tensor != 0) {
            return bad_tensor;
        }
        if (w->shrink != 1.0f) {
            tg_scale(desk->u, desk->u, w->shrink, n);
        }
        g = desk->u;
    }
    desk->gradient = g;
    if (w->wants_gradient && g == desk->u) {
        memcpy(desk->g, g, n * sizeof *g);
        desk->gradient = desk->g;
    }
    if (w->remembers) {
        tg_memory memory = tg_work_memory(w, c->memory, at);
        w->feedback->recall(desk->u, g, &memory, w->feedback_params, n);
    }
    return 0;
}

tg_status tg_codec_refuse(const tg_codec *c, size_t bad_tensor, const tg_source *source, tg_detail *why)
{
    return tg_fail(TG_E_NONFINITE, why, "%s of tensor '%.150s' holds NaN or Inf",
                   source->flat != NULL ? "the average" : "the gradient", c->layout->tensors[bad_tensor - 1].name);
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

typedef struct pass {
    tg_codec *c;
    const tg_source *source;
    const tg_grid *grid;
    tg_body *bodies;
    uint32_t from;
    unsigned holds;
} pass;

/* A chunk while it is written. */
typedef struct progress {
    const tg_chunk *chunk;
    tg_desk *desk;
    uint8_t *out;   /* where values go */
    uint64_t count; /* entries so far */
    double magnitudes;
    size_t bad_tensor;
} progress;

/* What a block, [at, at + n), becomes once its coordinates are marked (NULL: all): values that are written, or that wait
 * in desk->sent, or as words in desk->held, until the whole chunk is there; and the memory. What was loaded begins `skip` elements before it. */
static void write_values(progress *to, const tg_codec *c, size_t skip, const uint64_t *mask, uint64_t at, size_t n)
{
    const tg_recipe *recipe = c->layout->units[to->chunk->unit].recipe;
    const tg_work *w = &c->works[to->chunk->unit];
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    tg_desk *desk = to->desk;
    const float *u = desk->u + skip;
    bool waits = quantize->plain_len == 0;
    float *gathered = waits ? desk->sent + to->count : desk->values;
    const float *values = u;
    size_t count = n;
    if (mask != NULL) {
        count = tg_compress(gathered, u, mask, n);
        values = gathered;
    }
    if (w->gain != 1.0f || (waits && mask == NULL)) {
        tg_scale(gathered, values, w->gain, count);
        values = gathered;
    }
    if (waits) {
        to->magnitudes += quantize->has_scale && w->maxima == NULL ? tg_sum_magnitudes(values, count) : 0;
        memset(desk->decoded, 0, count * sizeof *desk->decoded); /* nothing yet */
    } else {
        bool coded = tg_recipe_is_coded(recipe);
        uint32_t *words = coded ? desk->held + to->count : desk->words;
        quantize->encode(words, desk->decoded, values, count);
        if (!coded) {
            tg_coding coding = {.word_len = quantize->plain_len};
            tg_plain_write(to->out + to->count * quantize->plain_len, words, count, &coding);
        }
    }
    to->count += count;
    if (w->remembers) {
        tg_memory memory = tg_work_memory(w, c->memory, at);
        const float *g = w->wants_gradient ? desk->gradient + skip : NULL;
        w->feedback->keep(&memory, w->feedback_params, u, g, mask, desk->decoded, n);
        for (uint32_t p = 0; c->nonfinite == TG_NONFINITE_PASS && p < w->feedback->planes; p++) {
            if (p > 0 || !waits) {
                tg_zero_nonfinite(memory.next + p * memory.stride, n); /* what can not be made good is forgotten */
            }
        }
    }
}

/* Takes what the decoder will see of a chunk, in desk->sent, out of the memory, which has all of it so far. */
static void settle_memory(const progress *to, const tg_codec *c)
{
    const tg_chunk *chunk = to->chunk;
    const tg_work *w = &c->works[chunk->unit];
    bool every = tg_recipe_select(c->layout->units[chunk->unit].recipe)->by == TG_BY_NOTHING;
    float *memory = c->memory[1] + w->memory_at + (chunk->at - w->lo);
    const float *sent = to->desk->sent;
    for (uint32_t done = 0; done < chunk->n; done += TG_BLOCK) {
        size_t n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        const uint64_t *mask = every ? NULL : to->desk->mask + done / 64;
        tg_expand_add(memory + done, mask, sent, -1.0f, n);
        sent += every ? n : (size_t)tg_mask_count(mask, n);
    }
    if (c->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(memory, chunk->n);
    }
}

/* The values that wait, as buckets. */
static void write_buckets(const progress *to, const tg_codec *c)
{
    const tg_recipe *recipe = c->layout->units[to->chunk->unit].recipe;
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    const double *params = recipe->value[TG_STAGE_quantize];
    const tg_codec *drawing = c->parent != NULL ? c->parent : c;
    tg_stream stream = tg_stream_of(c->layout->seed, drawing->step, to->chunk->unit, c->rank + 1);
    uint64_t bucket_n = tg_bucket_n(recipe, to->count);
    uint32_t side_len = quantize->side_len(params);
    tg_desk *desk = to->desk;
    tg_bucket bucket = {.side = to->out, .draws = desk->draws, .room = desk->room};
    for (uint64_t at = 0; at < to->count; at += bucket_n) {
        bucket.symbols = desk->symbols + at;
        bucket.values = desk->sent + at;
        bucket.n = (size_t)(to->count - at < bucket_n ? to->count - at : bucket_n);
        if (quantize->draws) {
            tg_stream_words(desk->draws, &stream, to->chunk->at + at, bucket.n, c->parent != NULL);
        }
        quantize->encode_bucket(&bucket, params);
        bucket.side += side_len;
    }
    if (c->works[to->chunk->unit].remembers && !quantize->has_scale) {
        settle_memory(to, c);
    }
}

/* The symbols or words that wait, behind what travels with them; returns their length. */
static size_t write_symbols(const progress *to, const tg_recipe *recipe)
{
    tg_desk *desk = to->desk;
    uint8_t *out = to->out + tg_side_len(recipe, to->count);
    tg_coding coding = tg_coding_of(recipe, desk, to->out);
    const void *symbols = coding.base != 0 ? (const void *)desk->symbols : (const void *)desk->held;
    if (tg_recipe_is_coded(recipe)) {
        return tg_coded_write(out, symbols, (size_t)to->count, tg_recipe_symbol(recipe), &coding);
    }
    if (coding.base != 0) {
        tg_bits_write(out, desk->symbols, (size_t)to->count, coding.base);
    }
    return (size_t)tg_plain_len(to->count, &coding);
}

/* A block whose coordinates are known, or found element by element. Returns its length. */
static size_t write_block(progress *to, const pass *p, uint64_t at)
{
    const tg_codec *c = p->c;
    const tg_chunk *chunk = to->chunk;
    tg_desk *desk = to->desk;
    const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
    const tg_select_part *select = tg_recipe_select(recipe);
    uint64_t left = chunk->at + chunk->n - at;
    size_t n = left < TG_BLOCK ? (size_t)left : TG_BLOCK;
    bool every = select->by == TG_BY_NOTHING;
    bool looks = select->by == TG_BY_DATA && !tg_codec_is_given(c, chunk->unit);
    uint64_t *mask = desk->mask + (at - chunk->at) / 64; /* blocks start at whole words */
    if (!every && !looks) {
        tg_known known = tg_codec_is_given(c, chunk->unit) ? TG_KNOWN_LED : TG_KNOWN_DRAWN;
        tg_codec_mark_known(mask, c, chunk->unit, known, at, n);
        bool empty = tg_mask_count(mask, n) == 0;
        if (empty && !c->works[chunk->unit].remembers && c->nonfinite != TG_NONFINITE_ERROR) {
            return n; /* nothing here is sent, remembered or refused */
        }
    }
    to->bad_tensor = tg_codec_load(desk, c, chunk->unit, p->source, at, n);
    if (to->bad_tensor != 0) {
        return n;
    }
    if (looks) {
        memset(mask, 0, tg_words(n) * sizeof *mask);
        select->mark(mask, c->works[chunk->unit].scratch, recipe->value[TG_STAGE_select], at, desk->u, n);
    }
    if ((p->holds & TG_HAS_VALUES) != 0) {
        write_values(to, c, 0, every ? NULL : mask, at, n);
    }
    return n;
}

/* A block of whole bins, of which the first and the last may lie outside of the chunk in part. Whoever has a bin's first
 * element notes its maximum. Returns how much of the chunk that was. */
static size_t write_bins(progress *to, const pass *p, uint64_t at)
{
    const tg_codec *c = p->c;
    const tg_chunk *chunk = to->chunk;
    tg_desk *desk = to->desk;
    const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
    const tg_work *w = &c->works[chunk->unit];
    uint64_t bin = (at - w->lo) / w->bin; /* the first */
    uint64_t lo = w->lo + bin * w->bin, wanted = w->bin > TG_BLOCK ? w->bin : TG_BLOCK / w->bin * w->bin;
    size_t n = w->hi - lo < wanted ? (size_t)(w->hi - lo) : (size_t)wanted;
    size_t skip = (size_t)(at - lo);
    uint64_t left = chunk->at + chunk->n - at;
    size_t here = left < n - skip ? (size_t)left : n - skip;
    to->bad_tensor = tg_codec_load(desk, c, chunk->unit, p->source, lo, n);
    if (to->bad_tensor != 0) {
        return here;
    }
    memset(desk->bin_mask, 0, tg_words(n) * sizeof *desk->bin_mask);
    tg_recipe_select(recipe)->mark_bins(desk->bin_mask, desk->values, recipe->value[TG_STAGE_select], desk->u,
                                        desk->gradient, n);
    for (uint64_t b = skip > 0 ? 1 : 0; w->maxima != NULL && b * w->bin < skip + here; b++) {
        w->maxima[bin + b] = desk->values[b];
    }
    tg_mask_extract(desk->block_mask, desk->bin_mask, skip, here);
    tg_mask_insert(desk->mask, at - chunk->at, desk->block_mask, here);
    if ((p->holds & TG_HAS_VALUES) != 0) {
        write_values(to, c, skip, desk->block_mask, at, here);
    }
    return here;
}

/* The indices behind the values, or symbols and indices as one. */
static void write_indices(tg_view *view, const progress *to, const tg_recipe *recipe)
{
    const tg_index_part *index = tg_recipe_index(recipe);
    const tg_chunk *chunk = to->chunk;
    const uint64_t *mask = to->desk->mask;
    view->count = (uint32_t)tg_mask_count(mask, chunk->n);
    if (view->count == 0) {
        return;
    }
    uint8_t *symbols = to->out + (view->symbols - view->side);
    if (index->cell_max != 0 && view->symbol_len > 0) {
        view->index_len = (uint16_t)index->write_joint(symbols, &view->mode, mask, to->desk->symbols, chunk->n,
                                                       view->count, tg_recipe_bin(recipe));
        if (view->index_len > 0) {
            view->symbol_len = 0;
            view->indices = symbols;
            return;
        }
    }
    view->index_len =
        (uint16_t)tg_recipe_index_write(recipe)(symbols + view->symbol_len, &view->mode, mask, chunk->n, view->count);
}

static uint8_t *chunk_start(const pass *p, size_t number)
{
    uint32_t slice = p->from;
    while (p->grid->first[slice + 1] <= number) {
        slice++;
    }
    return p->bodies[slice - p->from].dst + p->c->written[number].at;
}

static void write_chunk(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    tg_codec *c = p->c;
    size_t number = p->grid->first[p->from] + job;
    const tg_chunk *chunk = &p->grid->chunks[number];
    tg_written *written = &c->written[number];
    uint8_t *start = chunk_start(p, number);
    if (!tg_codec_carries(c, chunk->unit, p->holds)) {
        *written = (tg_written){.at = written->at, .hash = tg_hash(start, 0)};
        return;
    }
    const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
    bool told = tg_codec_known(c, chunk->unit, p->holds) == TG_KNOWN_TOLD;
    bool in_bins = c->works[chunk->unit].bin > 0 && !tg_codec_is_given(c, chunk->unit);
    tg_desk *desk = &c->desks[worker];
    progress to = {.chunk = chunk, .desk = desk, .out = start + tg_header_len(recipe, told, p->holds, 1)};
    if (in_bins) {
        memset(desk->mask, 0, tg_words(chunk->n) * sizeof *desk->mask);
    }
    for (uint32_t done = 0; done < chunk->n && to.bad_tensor == 0;) {
        done += (uint32_t)(in_bins ? write_bins : write_block)(&to, p, chunk->at + done);
    }
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    tg_view view = {.start = start, .side = to.out, .symbols = to.out, .told = told, .count = (uint32_t)to.count};
    if (to.count > 0 && to.bad_tensor == 0) {
        if (quantize->plain_len == 0) {
            write_buckets(&to, c);
        }
        view.symbols += tg_side_len(recipe, to.count);
        view.symbol_len = (uint32_t)write_symbols(&to, recipe);
    }
    view.indices = view.symbols + view.symbol_len;
    if (told && to.bad_tensor == 0) {
        write_indices(&view, &to, recipe);
    }
    size_t header_len = tg_header_len(recipe, told, p->holds, view.count);
    size_t payload_len = (size_t)(view.indices - view.side) + view.index_len;
    if (told) {
        tg_put32(start, view.count | (uint32_t)view.mode << 24);
        tg_put16(start + 4, view.index_len);
    }
    if (header_len > (told ? TG_CHUNK_HEADER : 0)) {
        tg_put32(start + header_len - TG_CODED_HEADER, view.symbol_len);
    }
    *written = (tg_written){.at = written->at,
                            .len = header_len + payload_len,
                            .payload_len = payload_len,
                            .view = view,
                            .magnitudes = to.magnitudes,
                            .bad_tensor = to.bad_tensor};
    if (!quantize->has_scale || (p->holds & TG_HAS_VALUES) == 0) {
        written->hash = tg_hash(start, written->len); /* otherwise not all is there yet */
    }
}

/* ---- closing ------------------------------------------------------------------------------------------------------- */

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
    /* Every chunk gets a place that is certainly large enough; then they are moved together. */
    for (uint32_t s = from; s < to; s++) {
        uint64_t at = 0;
        for (size_t i = grid->first[s]; i < grid->first[s + 1]; i++) {
            c->written[i].at = (size_t)at;
            at += tg_chunk_bound(c, &grid->chunks[i], holds);
        }
    }
    pass p = {.c = c, .source = source, .grid = grid, .bodies = bodies, .from = from, .holds = holds};
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
