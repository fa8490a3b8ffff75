/* Dense, symbols with one scale for the whole unit (sign): the scale is known only when all chunks are encoded, so that
 * residuals keep the whole sum for now, and the executor subtracts what is decoded when it fills in the scale. */
#include "routes/dense.h"

static bool feedback_block(const float **u, tg_encoding *e, uint64_t at, size_t n)
{
    float *next = tg_residual_at(e, at).next;
    const float *g = tg_load_sum(e->scratch->u, next, e, at, n, e->plan->residual_n >= TG_NON_TEMPORAL_FROM);
    if (g == NULL) {
        return false;
    }
    if (e->unit->planes > 1) {
        tg_keep_block(e, NULL, g, at, n);
    }
    *u = e->scratch->u;
    return true;
}

static bool gradient_block(const float **u, tg_encoding *e, uint64_t at, size_t n)
{
    *u = tg_load_gradient(e, at, n);
    return *u != NULL;
}

static void encode(tg_encoding *e)
{
    bool (*load)(const float **, tg_encoding *, uint64_t, size_t) =
        e->unit->planes > 0 ? feedback_block : gradient_block;
    const tg_stages *s = &e->unit->stages;
    tg_packer p;
    tg_tree magnitudes;
    magnitudes.n = 0;
    tg_packer_start(&p, e);
    for (uint32_t done = 0, n = 0; done < e->chunk->n; done += n) {
        const float *u = NULL;
        n = e->chunk->n - done < TG_BLOCK ? e->chunk->n - done : TG_BLOCK;
        if (!load(&u, e, e->chunk->at + done, n)) {
            return;
        }
        tg_bucket bucket = {.symbols = tg_packer_next(&p), .values = u, .n = n};
        s->quantize->encode_bucket(&bucket, s->quantize_params);
        tg_tree_add_magnitudes(&magnitudes, u, n); /* a block is whole leaves */
        tg_packer_advance(&p, n);
    }
    e->result->magnitudes = tg_tree_sum(&magnitudes);
    tg_store_fence();
    tg_packer_end(&p);
}

const tg_route tg_route_scaled = {
    .encode = encode, .check = tg_symbols_check, .add = tg_symbols_add, .set = tg_symbols_set};
