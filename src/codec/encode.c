/* The way in: chunks of gradients, block by block through all stages.
 *
 * A chunk's bytes depend on nothing but its elements and what was chosen before, so they are the same for any number of
 * threads. load.c brings a block in, values.c turns it into bytes, body.c puts chunks together. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "base/hash.h"
#include "codec/writing.h"
#include "kernels/kernels.h"

#include <string.h>

/* A block as its coordinates have it. */
typedef struct block {
    uint64_t at;
    size_t n;
    uint64_t *mask; /* NULL: every element is sent */
    bool is_empty;  /* for certain, before anything was loaded */
    bool measured;  /* as is_measured says; marked already */
    bool looks;     /* what is sent is found by looking at it */
} block;

/* Whether what is sent was found by the measuring pass. */
static bool is_measured(const tg_progress *to)
{
    return tg_recipe_select(to->recipe)->list != NULL && !tg_codec_is_given(to->c, to->chunk->unit);
}

/* Whether a chunk, of which so many values are sent, is one block because the measuring pass has left little to do in it:
 * nothing is to be loaded, and they are few. */
static bool is_one_block(const tg_progress *to, const tg_source *source, uint64_t count)
{
    const tg_chunk *chunk = to->chunk;
    bool lies = to->w->recalled ||
                (!to->w->remembers && tg_codec_in_place(to->c, chunk->unit, source, chunk->at, chunk->n) != NULL);
    return lies && count <= TG_BIN_MAX;
}

/* Marks all that is sent of a chunk whose coordinates the measuring pass has found. */
static void mark_measured(tg_progress *to, const tg_source *source)
{
    const tg_chunk *chunk = to->chunk;
    const tg_select_part *select = tg_recipe_select(to->recipe);
    uint64_t *mask = to->desk->mask;
    uint64_t count = select->list(to->desk->list, TG_BIN_MAX, to->w->scratch, chunk->at, chunk->n);
    to->few = is_one_block(to, source, count);
    to->few_n = (size_t)count;
    if (count > TG_BIN_MAX) {
        select->mark(mask, to->w->scratch, to->recipe->value[TG_STAGE_select], chunk->at, NULL, chunk->n);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t at = to->desk->list[i];
        mask[at / 64] |= UINT64_C(1) << at % 64;
    }
}

/* Marks what can be told without a look at the values. */
static block mark_block(const tg_progress *to, uint64_t at)
{
    const tg_codec *c = to->c;
    const tg_chunk *chunk = to->chunk;
    const tg_select_part *select = tg_recipe_select(to->recipe);
    uint64_t left = chunk->at + chunk->n - at;
    size_t most = to->few ? chunk->n : tg_progress_block(to);
    bool given = tg_codec_is_given(c, chunk->unit);
    block b = {.at = at, .n = left < most ? (size_t)left : most};
    if (to->every) {
        return b;
    }
    b.mask = to->desk->mask + (at - chunk->at) / 64; /* blocks start at whole words */
    b.measured = is_measured(to);
    b.looks = select->by == TG_BY_DATA && !given && !b.measured;
    if (!b.measured && !b.looks) {
        tg_codec_mark_known(b.mask, c, chunk->unit, given ? TG_KNOWN_LED : TG_KNOWN_DRAWN, at, b.n);
    }
    b.is_empty = to->few ? to->few_n == 0 : !b.looks && tg_mask_is_empty(b.mask, b.n);
    return b;
}

/* Whether writing tells if all of a block is finite, because all of it is sent as plain bytes and nothing else. */
static bool looks_itself(const tg_progress *to)
{
    return to->every && to->quantize->plain_len != 0 && !to->w->remembers;
}

/* Whether what is remembered is all there is for now, and goes to the next memory as it is loaded: what was sent is taken out of
 * it once the scale is known. */
static bool keeps_all(const tg_progress *to)
{
    return to->w->remembers && to->w->feedback->keep == NULL && to->quantize->has_scale;
}

/* Brings a block in, and looks whether it is refused, unless the measuring pass did or writing will. Returns a tensor that
 * is, plus 1. */
static size_t load_block(tg_progress *to, const tg_source *source, const block *b)
{
    const tg_codec *c = to->c;
    const tg_work *w = to->w;
    tg_desk *desk = to->desk;
    float *next = w->remembers ? tg_work_memory(w, c->memory, b->at).next : NULL;
    if (b->measured && w->recalled) {
        desk->u = next;
        return 0;
    }
    if (!w->remembers && (b->measured || looks_itself(to))) {
        desk->u = tg_codec_in_place(c, to->chunk->unit, source, b->at, b->n);
        if (desk->u != NULL) {
            return 0;
        }
    }
    bool stays = b->is_empty && w->remembers && w->feedback->keep == NULL;
    float *waits = tg_progress_all_wait(to) ? desk->sent + (b->at - to->chunk->at) : desk->sum_of;
    to->is_kept = keeps_all(to) && !stays;
    size_t bad_tensor = tg_codec_load(desk, c, to->chunk->unit, source, b->at, b->n, stays ? next : waits,
                                      to->is_kept ? next : NULL, c->streams && (stays || to->is_kept));
    to->overflows = to->overflows || desk->saturated;
    return bad_tensor;
}

/* A block whose coordinates are known, or found element by element. Returns a tensor that is refused, plus 1. */
static size_t write_block(tg_progress *to, const tg_source *source, const block *b, unsigned holds)
{
    const tg_codec *c = to->c;
    const tg_work *w = to->w;
    tg_desk *desk = to->desk;
    bool was_seen = b->measured && (w->recalled || !w->remembers);
    bool may_skip = was_seen || (!w->remembers && c->nonfinite != TG_NONFINITE_ERROR);
    if (b->is_empty && may_skip && (c->nonfinite != TG_NONFINITE_PASS || !w->remembers)) {
        return 0; /* nothing of it is sent or refused, and it is remembered already, if at all */
    }
    bool may_lie = looks_itself(to) && !tg_recipe_is_coded(to->recipe) && (holds & TG_HAS_VALUES) != 0;
    if (may_lie && tg_progress_add_as_it_lies(to, source, b->at, b->n)) {
        return 0;
    }
    size_t bad_tensor = load_block(to, source, b);
    if (bad_tensor != 0) {
        return bad_tensor;
    }
    if (b->looks) {
        memset(b->mask, 0, tg_words(b->n) * sizeof *b->mask);
        tg_recipe_select(to->recipe)
            ->mark(b->mask, w->scratch, to->recipe->value[TG_STAGE_select], b->at, desk->u, b->n);
    }
    bool finite = true;
    if ((holds & TG_HAS_VALUES) != 0) {
        finite = tg_progress_add(to, b->mask, (float *)(uintptr_t)desk->u, desk->gradient, b->at, b->n);
    }
    bool refused = looks_itself(to) && !finite && c->nonfinite == TG_NONFINITE_ERROR;
    return refused ? tg_unit_piece(&c->layout->units[to->chunk->unit], b->at)->tensor + 1 : 0;
}

/* A block of whole bins from `at` on, of which the first and the last may lie outside of the chunk in part. Whoever has a
 * bin's first element notes its maximum. *here is how much of the chunk it was. Returns as above. */
static size_t write_bins(size_t *here, tg_progress *to, const tg_source *source, uint64_t at, unsigned holds)
{
    const tg_chunk *chunk = to->chunk;
    const tg_work *w = to->w;
    tg_desk *desk = to->desk;
    uint64_t bin = (at - w->lo) / w->bin; /* the first */
    uint64_t lo = w->lo + bin * w->bin, wanted = w->bin > TG_BLOCK ? w->bin : TG_BLOCK / w->bin * w->bin;
    size_t n = w->hi - lo < wanted ? (size_t)(w->hi - lo) : (size_t)wanted;
    size_t skip = (size_t)(at - lo);
    uint64_t left = chunk->at + chunk->n - at;
    *here = left < n - skip ? (size_t)left : n - skip;
    bool keeps = keeps_all(to) && *here == n && (holds & TG_HAS_VALUES) != 0;
    float *next = keeps ? tg_work_memory(w, to->c->memory, lo).next : NULL;
    size_t bad_tensor =
        tg_codec_load(desk, to->c, chunk->unit, source, lo, n, desk->sum_of, next, keeps && to->c->streams);
    to->is_kept = keeps;
    to->overflows = to->overflows || desk->saturated;
    if (bad_tensor != 0) {
        return bad_tensor;
    }
    memset(desk->bin_mask, 0, tg_words(n) * sizeof *desk->bin_mask);
    tg_recipe_select(to->recipe)
        ->mark_bins(desk->bin_mask, desk->values, to->recipe->value[TG_STAGE_select], desk->u, desk->gradient, n);
    for (uint64_t b = skip > 0 ? 1 : 0; w->maxima != NULL && b * w->bin < skip + *here; b++) {
        w->maxima[bin + b] = desk->values[b];
    }
    tg_mask_extract(desk->block_mask, desk->bin_mask, skip, *here);
    tg_mask_insert(desk->mask, at - chunk->at, desk->block_mask, *here);
    if ((holds & TG_HAS_VALUES) != 0) {
        (void)tg_progress_add(to, desk->block_mask, (float *)(uintptr_t)desk->u + skip, desk->gradient + skip, at,
                              *here);
    }
    return 0;
}

/* All blocks of a chunk. Returns a tensor that is refused, plus 1. */
static size_t write_blocks(tg_progress *to, const tg_source *source, unsigned holds)
{
    const tg_chunk *chunk = to->chunk;
    bool in_bins = to->w->bin > 0 && !tg_codec_is_given(to->c, chunk->unit);
    size_t bad_tensor = 0;
    if (looks_itself(to) && tg_recipe_is_coded(to->recipe) && (holds & TG_HAS_VALUES) != 0 &&
        tg_progress_add_as_it_lies(to, source, chunk->at, chunk->n)) {
        return 0;
    }
    if (in_bins || is_measured(to)) {
        memset(to->desk->mask, 0, tg_words(chunk->n) * sizeof *to->desk->mask);
    }
    if (is_measured(to)) {
        mark_measured(to, source);
    }
    for (size_t done = 0, n = 0; done < chunk->n && bad_tensor == 0; done += n) {
        if (in_bins) {
            bad_tensor = write_bins(&n, to, source, chunk->at + done, holds);
        } else {
            block b = mark_block(to, chunk->at + done);
            bad_tensor = write_block(to, source, &b, holds);
            n = b.n;
        }
    }
    tg_stream_end();
    return bad_tensor;
}

/* What has overflowed in the residual of a chunk, or the velocity: refused, or set to 0. Returns as above. */
static size_t settle_overflow(const tg_progress *to)
{
    const tg_chunk *chunk = to->chunk;
    tg_memory memory = tg_work_memory(to->w, to->c->memory, chunk->at);
    if (to->c->nonfinite == TG_NONFINITE_ERROR) {
        return tg_codec_bad_tensor(to->c, chunk->unit, memory.next, chunk->at, chunk->n);
    }
    for (uint32_t p = 0; p < to->w->feedback->planes; p++) {
        tg_zero_nonfinite(memory.next + p * memory.stride, chunk->n);
    }
    return 0;
}

/* The indices behind the values, or symbols and indices as one. */
static void write_indices(tg_view *view, const tg_progress *to, const tg_recipe *recipe)
{
    const tg_index_part *index = tg_recipe_index(recipe);
    const tg_chunk *chunk = to->chunk;
    const uint64_t *mask = to->desk->mask;
    view->count = to->count > 0 ? (uint32_t)to->count : (uint32_t)tg_mask_count(mask, chunk->n);
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
    const uint32_t *list = to->listed && to->count > 0 ? to->desk->list : NULL;
    view->index_len = (uint16_t)tg_recipe_index_write(recipe)(symbols + view->symbol_len, &view->mode, mask, list,
                                                              chunk->n, view->count);
}

/* Keeps the list for whoever closes the chunk, if somebody will. */
static void keep_list(tg_view *view, const tg_progress *to)
{
    bool closes = to->quantize->has_scale && to->w->remembers && to->count > 0 && view->mode <= TG_MODE_RICE_MAX;
    uint32_t *list = closes && to->listed ? tg_codec_list(to->c, to->chunk, to->count) : NULL;
    if (list != NULL) {
        memcpy(list, to->desk->list, (size_t)to->count * sizeof *list);
    }
    view->list = list;
}

void tg_chunk_write(tg_written *written, tg_codec *c, tg_desk *desk, const tg_chunk *chunk, unsigned holds,
                    const tg_source *source, uint8_t *start)
{
    if (!tg_codec_carries(c, chunk->unit, holds)) {
        *written = (tg_written){.at = written->at, .hash = tg_hash(start, 0)};
        return;
    }
    const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    bool told = tg_codec_known(c, chunk->unit, holds) == TG_KNOWN_TOLD;
    bool every = tg_recipe_select(recipe)->by == TG_BY_NOTHING;
    tg_progress to = {.c = c,
                      .chunk = chunk,
                      .recipe = recipe,
                      .quantize = quantize,
                      .w = &c->works[chunk->unit],
                      .desk = desk,
                      .out = start + tg_header_len(recipe, told, holds, 1),
                      .every = every,
                      .listed = !every};
    to.at_once =
        every && quantize->plain_len == 0 && !quantize->has_scale && tg_bucket_n(recipe, chunk->n) <= TG_BIN_MAX;
    to.packs = every && quantize->plain_len == 0 && (to.at_once || quantize->has_scale) && !tg_recipe_is_coded(recipe);
    to.hashes = every && quantize->plain_len != 0 && !tg_recipe_is_coded(recipe) && (holds & TG_HAS_VALUES) != 0;
    to.streams = to.hashes && c->layout->element_n >= TG_STREAMS_FROM;
    tg_hash_list_start(&to.hash);
    size_t bad_tensor = write_blocks(&to, source, holds);
    tg_view view = {.start = start, .side = to.out, .symbols = to.out, .told = told, .count = (uint32_t)to.count};
    if (to.count > 0 && bad_tensor == 0) {
        view.symbols += tg_side_len(recipe, to.count);
        view.symbol_len = (uint32_t)tg_progress_finish(&to);
    }
    if (to.overflows && bad_tensor == 0) {
        bad_tensor = settle_overflow(&to);
    }
    view.indices = view.symbols + view.symbol_len;
    if (told && bad_tensor == 0) {
        write_indices(&view, &to, recipe);
        keep_list(&view, &to);
    }
    size_t header_len = tg_header_len(recipe, told, holds, view.count);
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
                            .bad_tensor = bad_tensor};
    if (to.hashes) {
        written->hash = tg_hash_list_end(&to.hash);
    } else if (!quantize->has_scale || (holds & TG_HAS_VALUES) == 0) {
        written->hash = tg_hash(start, written->len); /* otherwise not all is there yet */
    }
}
