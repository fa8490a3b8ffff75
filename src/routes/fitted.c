/* Dense, symbols of buckets longer than a block: values of the whole chunk are read in place or collected, then quantized (fp4
 * and fp8 fit one scale to a chunk). The residual is written when they are decoded again. */
#include "routes/dense.h"

#include <math.h>

/* gradient + residual of the chunk into scratch, block by block; false: it is refused. */
static bool collect_sums(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        uint64_t at = chunk->at + done;
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        const float *g = tg_load_sum(e->scratch->chunk->values + done, NULL, e, at, n, false);
        if (g == NULL) {
            return false;
        }
        if (e->unit->planes > 1) {
            tg_keep_block(e, NULL, g, at, n);
        }
    }
    return true;
}

static bool collect_gradients(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        const float *g = tg_load_gradient(e, chunk->at + done, n);
        if (g == NULL) {
            return false;
        }
        memcpy(e->scratch->chunk->values + done, g, n * sizeof *g);
    }
    return true;
}

/* The values to quantize; *is_unchecked: they may hold NaN or Inf. NULL: they are refused. */
static const float *find_values(tg_encoding *e, bool *is_unchecked)
{
    const float *collected = e->scratch->chunk->values;
    *is_unchecked = false;
    if (e->unit->planes > 0) {
        return collect_sums(e) ? collected : NULL;
    }
    const float *in_place = tg_gradient_in_place(e, e->chunk->at, e->chunk->n);
    *is_unchecked = in_place != NULL;
    return in_place != NULL ? in_place : collect_gradients(e) ? collected : NULL;
}

/* Refuses NaN and Inf in values that were not checked before, if the policy does so. They made their bucket NaN, so that one
 * value of each bucket tells, and all others are not read again. */
static void check_buckets(tg_encoding *e, const float *values, const uint8_t *side)
{
    uint32_t chunk_n = e->chunk->n, bucket_n = e->unit->format.bucket_n;
    bucket_n = bucket_n == 0 || e->unit->format.head_len > 0 ? chunk_n : bucket_n; /* a NaN is also in the head */
    for (uint32_t at = 0, n = 0; at < chunk_n && e->plan->nonfinite == TG_NONFINITE_ERROR; at += n) {
        float value = 0;
        n = chunk_n - at < bucket_n ? chunk_n - at : bucket_n;
        tg_decode_buckets(&value, e->scratch->chunk->symbols + at, side, e->unit, chunk_n, at, 1);
        if (!isfinite(value)) {
            tg_encoding_refuse(e, values + at, e->chunk->at + at, n);
        }
    }
}

static void store_residuals(tg_encoding *e, const uint8_t *side)
{
    const tg_chunk *chunk = e->chunk;
    const tg_chunk_scratch *s = e->scratch->chunk;
    float *decoded = e->scratch->decoded;
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        tg_decode_buckets(decoded, s->symbols + done, side, e->unit, chunk->n, done, n);
        tg_store_residual(e, s->values + done, decoded, chunk->at + done, n);
    }
    tg_store_fence();
}

static void encode(tg_encoding *e)
{
    const tg_format *f = &e->unit->format;
    tg_chunk_scratch *s = e->scratch->chunk;
    size_t n = e->chunk->n;
    uint8_t *side = e->out, *out = side + tg_side_len(f, n);
    tg_bucket_span span = {.chunk_n = n, .n = n};
    const float *values = find_values(e, &span.is_unchecked);
    if (values == NULL) {
        return;
    }
    tg_encode_buckets(s->symbols, side, e, values, &span);
    if (span.is_unchecked) {
        check_buckets(e, values, side);
    }
    if (e->unit->planes > 0) {
        store_residuals(e, side);
    }
    size_t len = tg_write_symbols(out, e, s->symbols, n, side);
    uint64_t symbols = (uint64_t)(out - e->out);
    e->result->view = (tg_view){.symbols = symbols, .indices = symbols + len, .count = (uint32_t)n};
}

const tg_route tg_route_fitted = {
    .encode = encode, .check = tg_symbols_check, .add = tg_symbols_add, .set = tg_symbols_set};
