/* Selected values of a chunk: gathered block by block, written, and taken out of the residual.
 *
 * Plain values and words are decoded at once, so that a block's residual is complete when the block is. Symbols in buckets,
 * and signs whose scale only the whole unit tells, are decoded later: until then the next residual holds the whole sum. */
#include "routes/sparse.h"
#include "base/bits.h"

#include <string.h>

void tg_sparse_start(tg_sparse *s, tg_encoding *e)
{
    bool waits = e->unit->values == TG_VALUES_BUCKETS || e->unit->values == TG_VALUES_SIGNS;
    *s = (tg_sparse){.e = e,
                     .side = e->out + tg_chunk_header_len(e->plan, e->unit, 1),
                     .waits = waits,
                     .listed = true,
                     .streams = e->plan->residual_n >= TG_STREAM_FROM && e->unit->values != TG_VALUES_BUCKETS};
}

bool tg_sparse_load(tg_sparse *s, uint64_t at, size_t n)
{
    tg_encoding *e = s->e;
    if (e->unit->planes == 0) {
        s->u = s->gradient = tg_load_gradient(e, at, n);
        return s->u != NULL;
    }
    float *next = s->waits ? tg_encoding_memory(e, at).next : NULL;
    s->u = s->sum = e->scratch->u;
    s->gradient = tg_load_sum(e->scratch->u, next, e, at, n, s->streams && s->waits);
    return s->gradient != NULL;
}

/* ---- gathering ------------------------------------------------------------------------------------------------------- */

/* Values that wait for the end of the chunk are gathered where they wait. */
static float *place_of(const tg_sparse *s)
{
    const tg_scratch *scratch = s->e->scratch;
    return s->e->unit->values == TG_VALUES_BUCKETS ? scratch->chunk->values + s->count : s->e->scratch->values;
}

/* The marked values of a block, and by a list as long as that has space for all of the chunk. */
static size_t gather(tg_sparse *s, float *out, const uint64_t *mask, const float *u, uint64_t at, size_t n)
{
    s->listed = s->listed && s->count + n <= TG_BIN_MAX;
    if (!s->listed) {
        return tg_compress(out, u, mask, n);
    }
    uint32_t *list = s->e->scratch->list + s->count, first = (uint32_t)(at - s->e->chunk->at);
    size_t count = tg_kernels_best()->select.list_marks(list, mask, n);
    tg_gather(out, u, list, count);
    for (size_t i = 0; i < count; i++) {
        list[i] += first;
    }
    return count;
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

static const float *put_plain(tg_sparse *s, uint8_t *bytes, const float *values, size_t n)
{
    const tg_quantize_part *quantize = s->e->unit->stages.quantize;
    (void)quantize->write(bytes, values, n); /* the values were checked */
    if (s->e->unit->planes > 0) {
        quantize->read(s->e->scratch->decoded, bytes, n);
    }
    return s->e->scratch->decoded;
}

static void put_signs(tg_sparse *s, const float *values, size_t n)
{
    const tg_stages *stages = &s->e->unit->stages;
    tg_bucket bucket = {.symbols = s->e->scratch->chunk->symbols + s->count, .values = values, .n = n};
    stages->quantize->encode_bucket(&bucket, stages->quantize_params);
    if (s->e->unit->format.scale == TG_SCALE_MEAN) {
        s->e->magnitudes += tg_sum_magnitudes(values, n);
    }
}

/* Writes n gathered values. Returns what the decoder will make of them; NULL: it is not known yet. */
static const float *put(tg_sparse *s, float *values, size_t n)
{
    const tg_unit_plan *u = s->e->unit;
    const float *decoded = NULL;
    if (u->gain != 1.0f) {
        tg_scale(values, values, u->gain, n);
    }
    switch (u->values) {
    case TG_VALUES_PLAIN: decoded = put_plain(s, s->side + s->count * u->format.plain_len, values, n); break;
    case TG_VALUES_WORDS:
        decoded = put_plain(s, s->e->scratch->chunk->words + s->count * u->format.plain_len, values, n);
        break;
    case TG_VALUES_SIGNS: put_signs(s, values, n); break;
    case TG_VALUES_BUCKETS: break; /* they were gathered where they wait */
    }
    s->count += n;
    return decoded;
}

void tg_sparse_take(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n)
{
    const tg_encoding *e = s->e;
    float *values = place_of(s);
    size_t count = gather(s, values, mask, s->u, at, n);
    const float *decoded = put(s, values, count);
    if (e->unit->planes == 0) {
        return;
    }
    float *next = tg_encoding_memory(e, at).next;
    if (decoded != NULL) {
        tg_expand_add(s->sum, mask, decoded, -1.0f, n);
        tg_kernels_best()->passes.copy(next, s->sum, n, s->streams);
    }
    if (decoded != NULL && e->plan->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(next, n);
    }
    tg_keep_block(e, mask, s->gradient, at, n);
}

void tg_sparse_take_presummed(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n)
{
    float *values = place_of(s), *next = tg_encoding_memory(s->e, at).next;
    size_t count = gather(s, values, mask, next, at, n);
    const float *decoded = put(s, values, count);
    if (decoded != NULL) {
        tg_expand_add(next, mask, decoded, -1.0f, n);
    }
    if (decoded != NULL && s->e->plan->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(next, n);
    }
}

void tg_sparse_take_list(tg_sparse *s, const float *u, float *next, size_t count)
{
    tg_encoding *e = s->e;
    const uint32_t *list = e->scratch->list;
    float *values = place_of(s);
    tg_gather(values, u, list, count);
    const float *decoded = put(s, values, count);
    if (decoded != NULL && next != NULL) {
        tg_scatter_add(next, list, decoded, -1.0f, count);
    }
}

/* ---- the end of a chunk ---------------------------------------------------------------------------------------------- */

/* Takes what the decoder will make of values that waited out of the residual. */
static void settle(const tg_sparse *s, const uint64_t *mask)
{
    tg_encoding *e = s->e;
    const tg_chunk *chunk = e->chunk;
    float *next = tg_encoding_memory(e, chunk->at).next, *decoded = e->scratch->decoded, *left = e->scratch->values;
    uint64_t at = 0;
    for (uint32_t done = 0; done < chunk->n; done += TG_BLOCK) {
        size_t n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        size_t count = (size_t)tg_mask_count(mask + done / 64, n);
        tg_decode_buckets(decoded, e->scratch->chunk->symbols + at, s->side, e->unit, s->count, at, count);
        tg_expand_add(next + done, mask + done / 64, decoded, -1.0f, n);
        bool finite = tg_all_finite(left, tg_compress(left, next + done, mask + done / 64, n));
        e->overflows = e->overflows || !finite;
        at += count;
    }
    if (e->plan->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(next, chunk->n);
    }
}

/* The bytes of all values, after what travels with their buckets; returns their length. */
static size_t finish_values(const tg_sparse *s, uint8_t *out, const uint64_t *mask)
{
    tg_encoding *e = s->e;
    tg_chunk_scratch *scratch = e->scratch->chunk;
    const tg_unit_plan *u = e->unit;
    if (u->values == TG_VALUES_PLAIN) {
        return (size_t)s->count * u->format.plain_len;
    }
    if (u->values == TG_VALUES_WORDS) {
        tg_coding coding = tg_coding_of(u, scratch, NULL);
        return tg_coded_write(out, scratch->words, (size_t)s->count, u->stages.symbol, &coding);
    }
    if (u->values == TG_VALUES_BUCKETS) {
        tg_bucket_span span = {.chunk_n = s->count, .n = (size_t)s->count};
        tg_encode_buckets(scratch->symbols, s->side, e, scratch->values, &span);
        if (u->planes > 0) {
            settle(s, mask);
        }
    }
    return tg_write_symbols(out, e, scratch->symbols, (size_t)s->count, s->side);
}

/* Keeps the list for the closing pass, which subtracts what was sent from the residual. */
static void keep_list(const tg_sparse *s)
{
    tg_encoding *e = s->e;
    bool keeps = e->unit->values == TG_VALUES_SIGNS && e->list != NULL && s->listed && tg_is_listed(e->unit, &e->view);
    e->is_list_kept = keeps && s->count <= e->list_cap;
    if (e->is_list_kept) {
        memcpy(e->list, e->scratch->list, (size_t)s->count * sizeof *e->list);
    }
}

void tg_sparse_finish(tg_sparse *s, const uint64_t *mask)
{
    tg_encoding *e = s->e;
    uint64_t side = (uint64_t)(s->side - e->out), symbols = side + tg_side_len(&e->unit->format, s->count);
    tg_stream_end();
    if (s->count == 0) { /* no values, no length of values */
        side = symbols = tg_chunk_header_len(e->plan, e->unit, 0);
    }
    e->view = (tg_view){.side = side, .symbols = symbols, .indices = symbols, .count = (uint32_t)s->count};
    if (s->count > 0) {
        e->view.indices += finish_values(s, e->out + symbols, mask);
        if (e->unit->coordinates == TG_AT_INDICES) {
            tg_write_indices(e, mask, s->listed ? e->scratch->list : NULL);
            keep_list(s);
        }
    }
    tg_write_chunk_header(e);
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

bool tg_sparse_check(const tg_decoding *d)
{
    const tg_view *v = d->view;
    const tg_format *f = &d->unit->format;
    if (v->count == 0) {
        return true;
    }
    if (d->unit->coordinates == TG_AT_INDICES && !tg_read_indices(d, d->list != NULL ? d->list : d->scratch->list)) {
        return false;
    }
    if (tg_mode_is_joint(v->mode)) {
        return true; /* symbols were read with the indices */
    }
    if (f->coded) {
        return tg_read_symbols(d);
    }
    return f->plain_len != 0 || tg_bits_check(d->body + v->symbols, v->count, f->base);
}

/* Values `at` to at + n of a chunk, at most TG_BIN_MAX, whose symbols or words are in scratch or plain in the body. */
static const float *values_from(const tg_decoding *d, uint64_t at, size_t n)
{
    const tg_format *f = &d->unit->format;
    float *values = d->scratch->values;
    if (f->plain_len != 0) {
        const uint8_t *bytes = f->coded ? d->scratch->chunk->words : d->body + d->view->symbols;
        d->unit->stages.quantize->read(values, bytes + at * f->plain_len, n);
    } else {
        tg_decode_buckets(values, d->scratch->chunk->symbols + at, d->body + d->view->side, d->unit, d->view->count, at,
                          n);
    }
    return values;
}

/* Reads coordinates and symbols of a chunk that was checked. Returns the list of coordinates, NULL if they are in
 * scratch->mask. */
static const uint32_t *read_chunk(const tg_decoding *d)
{
    const tg_view *v = d->view;
    const tg_format *f = &d->unit->format;
    const uint32_t *list = tg_is_listed(d->unit, v) ? d->list : NULL;
    if (d->unit->coordinates != TG_AT_INDICES) {
        tg_mark_known(d->scratch->mask, d->unit, d->work, d->chunk->at, d->chunk->n);
    } else if (list == NULL) {
        (void)tg_read_indices(d, d->scratch->list);
        list = tg_is_listed(d->unit, v) ? d->scratch->list : NULL;
    }
    if (f->coded && !tg_mode_is_joint(v->mode)) {
        (void)tg_read_symbols(d);
    } else if (f->plain_len == 0 && !tg_mode_is_joint(v->mode)) {
        (void)tg_bits_read(d->scratch->chunk->symbols, d->body + v->symbols, v->count, f->base);
    }
    return list;
}

typedef void use_block(float *out, const uint64_t *mask, const float *values, float weight, size_t n);

static void set_block(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    (void)weight;
    tg_expand_set(out, mask, values, n);
}

/* Marked coordinates, block by block. */
static void unpack_marked(float *out, const tg_decoding *d, float weight, use_block *use)
{
    uint64_t at = 0;
    for (uint32_t done = 0; done < d->chunk->n; done += TG_BLOCK) {
        size_t n = d->chunk->n - done < TG_BLOCK ? d->chunk->n - done : TG_BLOCK;
        const uint64_t *mask = d->scratch->mask + done / 64;
        size_t count = (size_t)tg_mask_count(mask, n);
        if (count > 0) {
            use(out + done, mask, values_from(d, at, count), weight, n);
            at += count;
        }
    }
}

void tg_sparse_add(float *out, const tg_decoding *d, float weight)
{
    if (d->view->count == 0) {
        return;
    }
    const uint32_t *list = read_chunk(d);
    if (list != NULL) {
        tg_scatter_add(out, list, values_from(d, 0, d->view->count), weight, d->view->count);
    } else {
        unpack_marked(out, d, weight, tg_expand_add);
    }
}

void tg_sparse_set(float *out, const tg_decoding *d)
{
    if (d->view->count == 0) {
        return;
    }
    const uint32_t *list = read_chunk(d);
    if (list != NULL) {
        tg_scatter_set(out, list, values_from(d, 0, d->view->count), d->view->count);
    } else {
        unpack_marked(out, d, 1.0f, set_block);
    }
}
