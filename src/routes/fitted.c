/* Dense, symbols of buckets longer than a block: values of the whole chunk are collected, then quantized (fp4 and fp8 fit
 * one scale to a chunk). The residual is written when they are decoded again. */
#include "base/bytes.h"
#include "routes/dense.h"

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
    size_t n = e->chunk->n, header_len = f->coded ? TG_CODED_HEADER : 0;
    uint8_t *side = e->out + header_len, *out = side + tg_side_len(f, n);
    if (!(e->unit->planes > 0 ? collect_sums(e) : collect_gradients(e))) {
        return;
    }
    tg_bucket_span span = {.chunk_n = n, .n = n};
    tg_encode_buckets(s->symbols, side, e, s->values, &span);
    if (e->unit->planes > 0) {
        store_residuals(e, side);
    }
    size_t len = tg_write_symbols(out, e, s->symbols, n, side);
    if (f->coded) {
        tg_put32(e->out, (uint32_t)len);
    }
    e->result.view = (tg_view){.side = header_len,
                               .symbols = (uint64_t)(out - e->out),
                               .indices = (uint64_t)(out - e->out) + len,
                               .count = (uint32_t)n};
}

const tg_route tg_route_fitted = {
    .encode = encode, .check = tg_symbols_check, .add = tg_symbols_add, .set = tg_symbols_set};
