/* Sparse, coordinates known before values are read: drawn from a seed, or the leader's. Blocks of which nothing is sent only
 * add to their residual. */
#include "base/bits.h"
#include "routes/sparse.h"

/* A block of which nothing is sent; false: it is refused. */
static bool skip_block(tg_sparse *s, const uint64_t *mask, uint64_t at, size_t n)
{
    tg_encoding *e = s->e;
    if (e->unit->planes == 0) {
        return e->plan->nonfinite != TG_NONFINITE_ERROR || tg_load_gradient(e, at, n) != NULL;
    }
    float *next = tg_residual_at(e, at).next;
    const float *g = tg_load_sum(next, NULL, e, at, n, e->plan->residual_n >= TG_NON_TEMPORAL_FROM);
    if (g == NULL) {
        return false;
    }
    if (e->plan->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(next, n);
    }
    if (e->unit->planes > 1) {
        tg_keep_block(e, mask, g, at, n);
    }
    return true;
}

static void encode(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    tg_sparse s;
    tg_sparse_start(&s, e);
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        uint64_t *mask = e->scratch->mask + done / 64, at = chunk->at + done;
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        tg_mark_known(mask, e->unit, e->work, at, n);
        if (tg_mask_is_empty(mask, n)) {
            if (!skip_block(&s, mask, at, n)) {
                return;
            }
            continue;
        }
        if (!tg_sparse_load(&s, at, n)) {
            return;
        }
        tg_sparse_take(&s, mask, at, n);
    }
    tg_sparse_finish(&s, e->scratch->mask);
}

const tg_route tg_route_drawn = {
    .encode = encode, .check = tg_sparse_check, .add = tg_sparse_add, .set = tg_sparse_set};
