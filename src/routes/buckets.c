/* Dense, symbols in buckets that fit in a block: each block is quantized and packed while it is in the cache. */
#include "routes/dense.h"

static bool gradient_block(tg_packer *p, uint64_t at, size_t n)
{
    tg_encoding *e = p->e;
    const float *g = tg_load_gradient(e, at, n);
    if (g == NULL) {
        return false;
    }
    tg_bucket_span span = {.chunk_n = e->chunk->n, .at = p->count, .n = n, .prefetch = g + n};
    tg_encode_buckets(tg_packer_next(p), p->side, e, g, &span);
    return true;
}

static bool feedback_block(tg_packer *p, uint64_t at, size_t n)
{
    tg_encoding *e = p->e;
    tg_scratch *s = e->scratch;
    const float *g = tg_load_sum(s->u, NULL, e, at, n, false);
    if (g == NULL) {
        return false;
    }
    uint16_t *symbols = tg_packer_next(p);
    tg_bucket_span span = {.chunk_n = e->chunk->n, .at = p->count, .n = n, .prefetch = g + n};
    tg_encode_buckets(symbols, p->side, e, s->u, &span);
    tg_decode_buckets(s->decoded, symbols, p->side, e->unit, e->chunk->n, p->count, n);
    tg_store_residual(e, s->u, s->decoded, at, n);
    if (e->unit->planes > 1) {
        tg_keep_block(e, NULL, g, at, n);
    }
    return true;
}

static void encode(tg_encoding *e)
{
    bool (*block)(tg_packer *, uint64_t, size_t) = e->unit->planes > 0 ? feedback_block : gradient_block;
    uint32_t bucket_n = e->unit->format.bucket_n;
    uint32_t block_n = bucket_n > TG_BLOCK ? bucket_n : TG_BLOCK / bucket_n * bucket_n;
    tg_packer p;
    tg_packer_start(&p, e);
    for (uint32_t done = 0, n = 0; done < e->chunk->n; done += n) {
        n = e->chunk->n - done < block_n ? e->chunk->n - done : block_n;
        if (!block(&p, e->chunk->at + done, n)) {
            return;
        }
        tg_packer_advance(&p, n);
    }
    tg_store_fence();
    tg_packer_end(&p);
}

const tg_route tg_route_buckets = {
    .encode = encode, .check = tg_symbols_check, .add = tg_symbols_add, .set = tg_symbols_set};
