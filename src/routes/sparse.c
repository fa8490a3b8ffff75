/* Selected values of a chunk: gathered block by block, written, and taken out of the residual.
 *
 * Plain values and words are decoded at once, so that a block's residual is complete when the block is. Symbols in buckets,
 * and signs whose scale only the whole unit tells, are decoded later: until then the next residual holds the whole sum. */
#include "routes/sparse.h"
#include "base/bits.h"

#include <string.h>

void tg_sparse_start(tg_sparse *s, tg_encoding *e)
{
    const tg_unit_plan *u = e->unit;
    s->e = e;
    s->side = e->out;
    s->count = 0;
    s->gradient = s->u = s->sum = NULL;
    s->waits = u->values == TG_VALUES_BUCKETS || u->values == TG_VALUES_SIGNS;
    s->waits_at = u->values == TG_VALUES_BUCKETS ? e->scratch->chunk->values : NULL;
    s->listed = true;
    s->non_temporal = e->plan->residual_n >= TG_NON_TEMPORAL_FROM && u->values != TG_VALUES_BUCKETS;
    tg_summing_start(&s->magnitudes);
}

bool tg_sparse_load(tg_sparse *s, uint64_t at, size_t n)
{
    tg_encoding *e = s->e;
    if (e->unit->planes == 0) {
        s->u = s->gradient = tg_load_gradient(e, at, n);
        return s->u != NULL;
    }
    float *next = s->waits ? tg_residual_at(e, at).next : NULL;
    s->u = s->sum = e->scratch->u;
    s->gradient = tg_load_sum(e->scratch->u, next, e, at, n, s->non_temporal && s->waits);
    return s->gradient != NULL;
}

/* ---- gathering ------------------------------------------------------------------------------------------------------- */

/* The marked values of a block. Its coordinates are listed, too, unless most of the chunk so far is marked: then the indices are not
 * written by a list. */
static size_t gather(tg_sparse *s, float *out, const uint64_t *mask, const float *u, uint64_t at, size_t n)
{
    uint32_t first = (uint32_t)(at - s->e->chunk->at);
    s->listed = s->listed && s->count <= first / 2;
    if (s->listed) {
        (void)tg_kernels_best()->select.list_marks(s->e->scratch->list + s->count, mask, first, n);
    }
    return tg_compress(out, u, mask, n);
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

/* Writes n gathered values. Returns what the decoder will make of them; NULL: it is not known yet. */
static const float *put(tg_sparse *s, float *values, size_t n)
{
    const tg_unit_plan *u = s->e->unit;
    const float *decoded = NULL;
    tg_bucket bucket;
    if (u->format.gain != 1.0f) {
        tg_scale(values, values, u->format.gain, n);
    }
    switch (u->values) {
    case TG_VALUES_PLAIN: decoded = put_plain(s, s->side + s->count * u->format.plain_len, values, n); break;
    case TG_VALUES_WORDS:
        decoded = put_plain(s, s->e->scratch->chunk->words + s->count * u->format.plain_len, values, n);
        break;
    case TG_VALUES_SIGNS:
        bucket = (tg_bucket){.symbols = s->e->scratch->chunk->symbols + s->count, .values = values, .n = n};
        u->stages.quantize->encode_bucket(&bucket, u->stages.quantize_params);
        if (u->format.scale == TG_SCALE_MEAN) {
            tg_summing_add(&s->magnitudes, values, n);
        }
        break;
    case TG_VALUES_BUCKETS: break; /* they were gathered where they wait */
    }
    s->count += n;
    return decoded;
}

void tg_sparse_take(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n)
{
    const tg_encoding *e = s->e;
    float *values = s->waits_at != NULL ? s->waits_at + s->count : s->e->scratch->values;
    size_t count = gather(s, values, mask, s->u, at, n);
    const float *decoded = put(s, values, count);
    if (e->unit->planes == 0) {
        return;
    }
    float *next = tg_residual_at(e, at).next;
    if (decoded != NULL) {
        tg_expand_add(s->sum, mask, decoded, -1.0f, n);
        tg_kernels_best()->passes.copy(next, s->sum, n, s->non_temporal);
    }
    if (decoded != NULL && e->plan->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(next, n);
    }
    if (e->unit->planes > 1) {
        tg_keep_block(e, mask, s->gradient, at, n);
    }
}

void tg_sparse_take_presummed(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n)
{
    float *values = s->waits_at != NULL ? s->waits_at + s->count : s->e->scratch->values,
          *next = tg_residual_at(s->e, at).next;
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
    float *values = s->waits_at != NULL ? s->waits_at + s->count : s->e->scratch->values;
    tg_gather(values, u, list, count);
    const float *decoded = put(s, values, count);
    if (decoded != NULL && next != NULL) {
        tg_scatter_add(next, list, decoded, -1.0f, count);
    }
}

/* ---- indices ----------------------------------------------------------------------------------------------------------- */

/* Indices after the values, or both as one where that is shorter. */
static void write_marks(tg_encoding *e, const uint64_t *mask, const uint32_t *list)
{
    const tg_stages *s = &e->unit->stages;
    tg_view *v = &e->result->view;
    if (s->index->cell_max != 0 && v->indices > v->symbols) {
        size_t len = s->index->write_joint(e->out + v->symbols, &v->mode, mask, e->scratch->chunk->symbols, e->chunk->n,
                                           v->count, e->unit->format.bin);
        if (len > 0) {
            v->is_joint = true;
            v->indices = v->symbols;
            v->index_len = (uint16_t)len;
            return;
        }
    }
    v->index_len = (uint16_t)s->index_write(e->out + v->indices, &v->mode, mask, list, e->chunk->n, v->count);
    v->is_listed = v->count <= TG_BIN_MAX && v->mode <= TG_MODE_RICE_MAX && s->index->list != NULL;
}

void tg_write_indices(tg_encoding *e, const uint64_t *mask, const uint32_t *list)
{
    const tg_view *v = &e->result->view;
    if (v->count > 0) {
        write_marks(e, mask, list);
    }
}

/* ---- the end of a chunk ---------------------------------------------------------------------------------------------- */

/* Takes what the decoder will make of values that waited out of the residual. */
static void settle(const tg_sparse *s, const uint64_t *mask)
{
    tg_encoding *e = s->e;
    const tg_chunk *chunk = e->chunk;
    float *next = tg_residual_at(e, chunk->at).next, *decoded = e->scratch->decoded, *left = e->scratch->values;
    uint64_t at = 0;
    for (uint32_t done = 0; done < chunk->n; done += TG_BLOCK) {
        size_t n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        size_t count = (size_t)tg_mask_count(mask + done / 64, n);
        tg_decode_buckets(decoded, e->scratch->chunk->symbols + at, s->side, e->unit, s->count, at, count);
        tg_expand_add(next + done, mask + done / 64, decoded, -1.0f, n);
        bool finite = tg_all_finite(left, tg_compress(left, next + done, mask + done / 64, n));
        e->result->overflows = e->result->overflows || !finite;
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
    if (!u->format.coded) {
        size_t len = (size_t)tg_bits_len(s->count, u->format.base);
        tg_bits_write(out, scratch->symbols, (size_t)s->count, u->format.base);
        return len;
    }
    return tg_write_symbols(out, e, scratch->symbols, (size_t)s->count, s->side);
}

/* So that whoever decodes the chunk here need not read its indices. */
static void keep_coordinates(const tg_sparse *s, const uint64_t *mask)
{
    const tg_encoding *e = s->e;
    size_t words = (e->chunk->n + 63) / 64;
    if (!tg_is_kept_as_list(&e->result->view, e->chunk->n)) {
        memcpy(e->kept, mask, words * sizeof *mask);
        return;
    }
    uint32_t *list = e->scratch->list;
    size_t count = s->listed ? (size_t)s->count : tg_kernels_best()->select.list_marks(list, mask, 0, e->chunk->n);
    memcpy(e->kept, list, count * sizeof *list);
}

void tg_sparse_finish(tg_sparse *s, const uint64_t *mask)
{
    tg_encoding *e = s->e;
    const tg_format *f = &e->unit->format;
    if (s->non_temporal) {
        tg_store_fence();
    }
    e->result->magnitudes = tg_summing_end(&s->magnitudes);
    uint64_t symbols = tg_side_len(f, s->count);
    e->result->view = (tg_view){.symbols = symbols, .indices = symbols, .count = (uint32_t)s->count};
    if (s->count > 0) {
        e->result->view.indices += finish_values(s, e->out + symbols, mask);
    }
    if (e->unit->coordinates == TG_AT_INDICES) {
        tg_write_indices(e, mask, s->listed ? e->scratch->list : NULL);
    }
    if (e->unit->coordinates == TG_AT_INDICES && e->kept != NULL && !e->result->view.is_joint) {
        keep_coordinates(s, mask);
    }
}
