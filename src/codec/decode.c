/* The way out: bodies of frames, checked, then unpacked and summed.
 *
 * Reading and using are apart: tg_body_read looks at every byte that could be wrong, so that summing cannot fail and
 * nothing is ever written in part. Sums go chunk by chunk over all frames in order, so that a value is the same
 * whoever computes it. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

#include <stdatomic.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------------------------------- */

typedef struct reading {
    tg_codec *c;
    const tg_grid *grid;
    tg_view *views;
    uint64_t *hashes;
    size_t first; /* chunk of the grid that views[0] is of */
    unsigned holds;
    bool keeps;        /* lists are kept for those who use them */
    atomic_size_t bad; /* a chunk with wrong indices, plus 1 */
} reading;

/* Finds one chunk at *at and moves on; false if it can not be a chunk. */
static bool walk_chunk(tg_view *view, const reading *r, size_t number, const uint8_t **at, const uint8_t *end)
{
    const tg_chunk *chunk = &r->grid->chunks[number];
    *view = (tg_view){.start = *at, .side = *at, .symbols = *at, .indices = *at};
    if (!tg_codec_carries(r->c, chunk->unit, r->holds)) {
        return true;
    }
    tg_known known = tg_codec_known(r->c, chunk->unit, r->holds);
    view->told = known == TG_KNOWN_TOLD;
    if (view->told) {
        if (end - *at < TG_CHUNK_HEADER) {
            return false;
        }
        uint32_t word = tg_get32(*at);
        view->count = word & 0xffffffu;
        view->mode = (uint8_t)(word >> 24);
        view->index_len = tg_get16(*at + 4);
        *at += TG_CHUNK_HEADER;
        if (view->count > chunk->n || (view->count == 0 && (view->mode != 0 || view->index_len != 0))) {
            return false;
        }
    } else {
        view->count = known == TG_KNOWN_EVERY ? chunk->n : r->c->known_count[number];
    }
    const tg_recipe *recipe = r->c->layout->units[chunk->unit].recipe;
    uint64_t side_len = 0;
    if ((r->holds & TG_HAS_VALUES) != 0 && view->count > 0) {
        uint64_t limit = tg_values_len(recipe, view->count);
        side_len = tg_side_len(recipe, view->count);
        view->symbol_len = tg_mode_is_joint(view->mode) ? 0 : (uint32_t)(limit - side_len);
        if (tg_recipe_is_coded(recipe)) {
            if (end - *at < TG_CODED_HEADER || tg_get32(*at) > view->symbol_len) {
                return false;
            }
            view->symbol_len = tg_get32(*at);
            *at += TG_CODED_HEADER;
        }
    }
    if ((uint64_t)(end - *at) < side_len + view->symbol_len + view->index_len) {
        return false;
    }
    view->side = *at;
    view->symbols = *at + side_len;
    view->indices = view->symbols + view->symbol_len;
    *at = view->indices + view->index_len;
    return true;
}

/* Whether the coordinates of a chunk come as a list, because there are few. */
static bool is_listed(const tg_recipe *recipe, const tg_view *view)
{
    return view->told && view->count <= TG_BIN_MAX && view->mode <= TG_MODE_RICE_MAX &&
           tg_recipe_index(recipe)->list != NULL;
}

/* The coordinates of a chunk that tells them, into desk->mask or the list, and its symbols into desk->symbols where they are among
 * its indices. False if they make no sense. */
static bool read_indices(tg_desk *desk, uint32_t *list, const tg_recipe *recipe, const tg_chunk *chunk,
                         const tg_view *view)
{
    const tg_index_part *index = tg_recipe_index(recipe);
    if (is_listed(recipe, view)) {
        return index->list(list, view->mode, view->indices, view->index_len, chunk->n, view->count);
    }
    if (tg_mode_is_joint(view->mode)) {
        return index->read_joint != NULL &&
               index->read_joint(desk->mask, desk->symbols, view->mode, view->indices, view->index_len, chunk->n,
                                 view->count, tg_recipe_bin(recipe));
    }
    return tg_recipe_index_read(recipe)(desk->mask, view->mode, view->indices, view->index_len, chunk->n, view->count);
}

/* The symbols of a chunk into desk->symbols, or its words into desk->held. */
static bool read_symbols(tg_desk *desk, const tg_recipe *recipe, const tg_view *view)
{
    tg_coding coding = tg_coding_of(recipe, desk, view->side);
    void *symbols = coding.base != 0 ? (void *)desk->symbols : (void *)desk->held;
    if (tg_recipe_is_coded(recipe)) {
        return tg_coded_read(symbols, view->symbols, view->symbol_len, view->count, tg_recipe_symbol(recipe), &coding);
    }
    return tg_plain_read(symbols, view->symbols, view->count, &coding);
}

/* Whether they can be read. */
static bool check_symbols(tg_desk *desk, const tg_recipe *recipe, const tg_view *view)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    if (tg_recipe_is_coded(recipe)) {
        return read_symbols(desk, recipe, view);
    }
    return quantize->plain_len != 0 ||
           tg_bits_check(view->symbols, view->count, quantize->base(recipe->value[TG_STAGE_quantize]));
}

static void check_chunk(void *context, uint32_t worker, size_t i)
{
    reading *r = context;
    tg_view *view = &r->views[i];
    tg_desk *desk = &r->c->desks[worker];
    const tg_chunk *chunk = &r->grid->chunks[r->first + i];
    const tg_recipe *recipe = r->c->layout->units[chunk->unit].recipe;
    r->hashes[i] = tg_hash(view->start, (size_t)(view->indices + view->index_len - view->start));
    bool sound = true;
    if (view->told && view->count > 0) {
        uint32_t *list = r->keeps && is_listed(recipe, view) ? tg_codec_list(r->c, chunk, view->count) : NULL;
        view->list = list;
        sound = (!tg_mode_is_joint(view->mode) || (r->holds & TG_HAS_VALUES) != 0) &&
                read_indices(desk, list != NULL ? list : desk->list, recipe, chunk, view);
    }
    if ((r->holds & TG_HAS_VALUES) != 0 && view->count > 0 && !tg_mode_is_joint(view->mode)) {
        sound = sound && check_symbols(desk, recipe, view);
    }
    if (!sound) {
        atomic_store_explicit(&r->bad, i + 1, memory_order_relaxed);
    }
}

static tg_status damaged(const reading *r, size_t number, tg_detail *why)
{
    const tg_unit *unit = &r->c->layout->units[r->grid->chunks[number].unit];
    return tg_fail(TG_E_FRAME, why, "the frame is damaged: what it holds of tensor '%.100s' makes no sense",
                   r->c->layout->tensors[unit->pieces[0].tensor].name);
}

/* About how many nanoseconds it takes one thread to check or to add what is in some chunks. */
static uint64_t time_for(const tg_view *views, size_t chunk_n)
{
    enum { TOLD = 8 }; /* an entry that tells where it belongs, which is a line of memory by itself */
    uint64_t time = 0;
    for (size_t i = 0; i < chunk_n; i++) {
        time += (uint64_t)views[i].count * (views[i].told ? TOLD : 1);
    }
    return time;
}

tg_status tg_body_read(tg_view *views, uint64_t *hashes, tg_codec *c, const tg_grid *grid, uint32_t slice,
                       unsigned holds, const uint8_t *bytes, size_t len, tg_detail *why)
{
    reading r = {.c = c,
                 .grid = grid,
                 .views = views,
                 .hashes = hashes,
                 .first = grid->first[slice],
                 .holds = holds,
                 .keeps = views == c->views};
    const uint8_t *at = bytes, *end = bytes + len;
    size_t chunk_n = tg_grid_chunks(grid, slice);
    for (size_t i = 0; i < chunk_n; i++) {
        if (!walk_chunk(&views[i], &r, r.first + i, &at, end)) {
            return damaged(&r, r.first + i, why);
        }
    }
    if (at != end) {
        return tg_fail(TG_E_FRAME, why, "the frame is damaged: it is longer than what it holds");
    }
    tg_pool_run_about(c->pool, time_for(views, chunk_n), chunk_n, check_chunk, &r);
    size_t bad = atomic_load_explicit(&r.bad, memory_order_relaxed);
    return bad == 0 ? TG_OK : damaged(&r, r.first + bad - 1, why);
}

/* ---- summing --------------------------------------------------------------------------------------------------------- */

typedef struct summing {
    tg_codec *c;
    const tg_view *views;
    size_t frame_n;
    size_t first, chunk_n; /* the slice's chunks */
    const tg_sink *sink;
} summing;

/* How many of the values from number `at` of a chunk up to but not `end` are in the bucket of the first; *side, where what travels
 * with all of them begins, becomes where its own does. */
static size_t in_bucket(const uint8_t **side, const tg_recipe *recipe, uint64_t chunk_n, uint64_t at, uint64_t end)
{
    uint64_t bucket_n = tg_bucket_n(recipe, chunk_n), bucket = at / bucket_n, left = (bucket + 1) * bucket_n - at;
    *side += bucket * tg_recipe_quantize(recipe)->side_len(recipe->value[TG_STAGE_quantize]);
    return (size_t)(left < end - at ? left : end - at);
}

void tg_decode_symbols(float *values, const uint16_t *symbols, const tg_recipe *recipe, const uint8_t *side,
                       uint64_t chunk_n, uint64_t at, size_t n)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    const double *params = recipe->value[TG_STAGE_quantize];
    for (uint64_t end = at + n; at < end;) {
        const uint8_t *its_side = side;
        size_t m = in_bucket(&its_side, recipe, chunk_n, at, end);
        float table[TG_TABLE_MAX];
        uint32_t table_n = quantize->table != NULL ? quantize->table(table, its_side, params) : 0;
        if (table_n > 0) {
            tg_kernels_best()->look_up(values, symbols, table, table_n, m);
        } else {
            quantize->decode_bucket(values, symbols, its_side, m, params);
        }
        values += m;
        symbols += m;
        at += m;
    }
}

enum { AT_ONCE = 5120 }; /* symbols, which kernels take to the last if they are digits of 3, 9 or 33 */

/* A chunk while it is unpacked. */
typedef struct unpacking {
    const tg_recipe *recipe;
    const tg_quantize_part *quantize;
    const tg_view *view;
    tg_desk *desk;
    uint64_t at;   /* the value that is next */
    uint64_t have; /* values whose symbols or words were read */
    uint64_t from; /* the value whose symbol is the first of desk->symbols */
} unpacking;

/* Reads symbols up to and including the n next, and some more at once. */
static void read_more(unpacking *u, size_t n)
{
    tg_coding coding = tg_coding_of(u->recipe, u->desk, u->view->side);
    uint64_t align = tg_bits_align(coding.base);
    if (u->at + n <= u->have) {
        return;
    }
    uint64_t wanted = (u->have + (n < AT_ONCE ? AT_ONCE : n) + align - 1) / align * align;
    wanted = wanted < u->view->count ? wanted : u->view->count;
    size_t left = (size_t)(u->have - u->at);
    uint16_t *symbols = u->desk->symbols;
    memmove(symbols, symbols + (u->at - u->from), left * sizeof *symbols);
    u->from = u->at;
    (void)tg_bits_read(symbols + left, u->view->symbols + tg_bits_len(u->have, coding.base), (size_t)(wanted - u->have),
                       coding.base); /* was checked by tg_body_read */
    u->have = wanted;
}

/* The bytes of a chunk whose quantizer is plain; if they are coded, they were read. */
static const uint8_t *plain_bytes(const unpacking *u)
{
    return tg_recipe_is_coded(u->recipe) ? u->desk->held : u->view->symbols;
}

/* The n values that are next, at most TG_BIN_MAX. */
static const float *next_values(unpacking *u, size_t n)
{
    tg_desk *desk = u->desk;
    uint64_t at = u->at;
    u->at += n;
    if (u->quantize->plain_len == 0) {
        tg_decode_symbols(desk->values, desk->symbols + (at - u->from), u->recipe, u->view->side, u->view->count, at,
                          n);
        return desk->values;
    }
    u->quantize->read(desk->values, plain_bytes(u) + at * u->quantize->plain_len, n);
    return desk->values;
}

/* Adds the n values that are next. */
static void add_next(float *out, unpacking *u, size_t n, float weight)
{
    for (uint64_t end = u->at + n; u->at < end;) {
        const uint8_t *side = u->view->side;
        size_t m = in_bucket(&side, u->recipe, u->view->count, u->at, end);
        float table[TG_TABLE_MAX];
        uint32_t table_n = u->quantize->table(table, side, u->recipe->value[TG_STAGE_quantize]);
        for (uint32_t t = 0; t < table_n; t++) {
            table[t] *= weight;
        }
        if (table_n > 0) {
            tg_kernels_best()->look_up_add(out, u->desk->symbols + (u->at - u->from), table, table_n, m);
            u->at += m;
        } else {
            tg_expand_add(out, NULL, next_values(u, m), weight, m);
        }
        out += m;
    }
}

/* Blocks of a chunk of which every element was sent as plain bytes are added as they lie. */
static void unpack_plain(float *out, const unpacking *u, size_t n, bool set, float weight)
{
    if (set) {
        u->quantize->read(out, plain_bytes(u), n);
    } else {
        u->quantize->add(out, plain_bytes(u), weight, n);
    }
}

void tg_codec_unpack(float *out, const tg_codec *c, const tg_chunk *chunk, const tg_view *view, tg_desk *desk, bool set,
                     float weight)
{
    const tg_recipe *recipe = c->layout->units[chunk->unit].recipe;
    tg_known known = tg_codec_known(c, chunk->unit, TG_HAS_VALUES);
    unpacking u = {.recipe = recipe, .quantize = tg_recipe_quantize(recipe), .view = view, .desk = desk};
    bool coded = tg_recipe_is_coded(recipe), is_plain = u.quantize->plain_len != 0;
    if (view->count == 0) {
        return;
    }
    if (coded && !tg_mode_is_joint(view->mode)) {
        (void)read_symbols(desk, recipe, view); /* was checked by tg_body_read */
    }
    if (is_plain && known == TG_KNOWN_EVERY) {
        unpack_plain(out, &u, chunk->n, set, weight);
        return;
    }
    const uint32_t *list = view->list != NULL ? view->list : desk->list;
    if (view->told && view->list == NULL) {
        (void)read_indices(desk, desk->list, recipe, chunk, view); /* was checked by tg_body_read */
    } else if (!view->told && known != TG_KNOWN_EVERY) {
        tg_codec_mark_known(desk->mask, c, chunk->unit, known, chunk->at, chunk->n);
    }
    bool reads = !is_plain && !coded && !tg_mode_is_joint(view->mode);
    if (is_listed(recipe, view)) {
        if (reads) {
            read_more(&u, view->count);
        }
        const float *values = next_values(&u, view->count);
        if (set) {
            tg_scatter_set(out, list, values, view->count);
        } else {
            tg_scatter_add(out, list, values, weight, view->count);
        }
        return;
    }
    for (size_t done = 0; done < chunk->n; done += TG_BLOCK) {
        size_t n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        const uint64_t *mask = known == TG_KNOWN_EVERY ? NULL : desk->mask + done / 64;
        size_t count = mask == NULL ? n : (size_t)tg_mask_count(mask, n);
        if (count == 0) {
            continue;
        }
        if (reads) {
            read_more(&u, count);
        }
        if (mask == NULL && !set && u.quantize->table != NULL) {
            add_next(out + done, &u, n, weight);
            continue;
        }
        const float *values = next_values(&u, count);
        if (set) {
            tg_expand_set(out + done, mask, values, n);
        } else {
            tg_expand_add(out + done, mask, values, weight, n);
        }
    }
}

/* The parts of a chunk's sum that belong to each tensor, to where they go. Returns whether all averages are finite. */
static bool deliver_chunk(const summing *s, const tg_chunk *chunk, const float *sum, float divisor)
{
    bool finite = true;
    const tg_layout *l = s->c->layout;
    const tg_sink *sink = s->sink;
    if (sink->flat != NULL) {
        const tg_work *w = &s->c->works[chunk->unit];
        return tg_store(sink->flat + w->flat_at + (chunk->at - w->lo), TG_FP32, sum, divisor, chunk->n);
    }
    const tg_piece *piece = tg_unit_piece(&l->units[chunk->unit], chunk->at);
    for (uint32_t done = 0; done < chunk->n; piece++) {
        uint64_t from = chunk->at + done - piece->at; /* in the tensor */
        uint64_t left = chunk->n - done;
        size_t m = (size_t)(piece->n - from < left ? piece->n - from : left);
        if (sink->added != NULL) {
            tg_expand_add(sink->added[piece->tensor] + from, NULL, sum + done, sink->weight, m);
        } else {
            tg_dtype dtype = l->tensors[piece->tensor].dtype;
            char *out = sink->averages[piece->tensor];
            finite = tg_store(out + from * tg_dtype_len(dtype), dtype, sum + done, divisor, m) && finite;
        }
        done += (uint32_t)m;
    }
    return finite;
}

/* The average of a chunk once more, where the sum has overflowed, or some value is NaN or Inf. */
static void average_shared(const summing *s, const tg_chunk *chunk, tg_desk *desk, size_t i)
{
    float share = tg_average_share(s->frame_n);
    memset(desk->sum, 0, chunk->n * sizeof *desk->sum);
    for (size_t f = 0; f < s->frame_n; f++) {
        tg_codec_unpack(desk->sum, s->c, chunk, &s->views[f * s->chunk_n + i], desk, false, share);
    }
    tg_average_shared(desk->sum, share, s->frame_n, chunk->n);
    (void)deliver_chunk(s, chunk, desk->sum, 1.0f);
}

static void sum_chunk(void *context, uint32_t worker, size_t i)
{
    const summing *s = context;
    const tg_chunk *chunk = &s->c->grid->chunks[s->first + i];
    tg_desk *desk = &s->c->desks[worker];
    if (s->sink->added != NULL && s->frame_n == 1) {
        const tg_piece *piece = tg_unit_piece(&s->c->layout->units[chunk->unit], chunk->at);
        uint64_t from = chunk->at - piece->at;
        if (piece->n - from >= chunk->n) { /* all in one tensor: add in place, at the cost of what was sent */
            tg_codec_unpack(s->sink->added[piece->tensor] + from, s->c, chunk, &s->views[i], desk, false,
                            s->sink->weight);
            return;
        }
    }
    memset(desk->sum, 0, chunk->n * sizeof *desk->sum);
    for (size_t f = 0; f < s->frame_n; f++) {
        /* The first frame's values are set, not added, so that a -0 arrives as it was. */
        tg_codec_unpack(desk->sum, s->c, chunk, &s->views[f * s->chunk_n + i], desk, f == 0, 1.0f);
    }
    if (!deliver_chunk(s, chunk, desk->sum, s->sink->divisor) && s->frame_n > 1) {
        average_shared(s, chunk, desk, i);
    }
}

void tg_codec_sum(tg_codec *c, uint32_t slice, const tg_view *views, size_t frame_n, const tg_sink *sink)
{
    summing s = {.c = c,
                 .views = views,
                 .frame_n = frame_n,
                 .first = c->grid->first[slice],
                 .chunk_n = tg_grid_chunks(c->grid, slice),
                 .sink = sink};
    bool adds_in_place = sink->added != NULL && frame_n == 1;
    tg_pool_run_about(c->pool, adds_in_place ? time_for(views, s.chunk_n) : UINT64_MAX, s.chunk_n, sum_chunk, &s);
}

void tg_codec_note(tg_codec *c, uint32_t slice, const tg_view *views)
{
    const tg_grid *grid = c->grid;
    const tg_layout *l = c->layout;
    for (size_t u = 0; u < l->unit_n; u++) {
        tg_work_note_nothing(&c->works[u]);
    }
    for (size_t i = grid->first[slice]; i < grid->first[slice + 1]; i++) {
        const tg_view *view = &views[i - grid->first[slice]];
        tg_work *w = &c->works[grid->chunks[i].unit];
        w->sent_len += (uint64_t)(view->indices - view->start) + view->index_len;
        w->sent_n += view->count;
        tg_work_note_fit(w, l->units[grid->chunks[i].unit].recipe, view);
    }
}
