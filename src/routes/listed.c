/* Sparse, coordinates listed by the measuring pass (topk). That pass has checked all values and, with plain feedback, has
 * left gradient + residual in the next residual, so that encoding touches only what is sent. */
#include "base/bits.h"
#include "routes/sparse.h"

#include <string.h>

/* Marks the chunk's coordinates; returns their number. scratch->list has them if they are at most TG_BIN_MAX. */
static size_t find(tg_encoding *e)
{
    const tg_stages *s = &e->unit->stages;
    const tg_chunk *chunk = e->chunk;
    uint64_t *mask = e->scratch->mask;
    const uint32_t *list = e->scratch->list;
    memset(mask, 0, (chunk->n + 63) / 64 * sizeof *mask);
    uint64_t count = s->select->list(e->scratch->list, TG_BIN_MAX, e->work->select, chunk->at, chunk->n);
    if (count > TG_BIN_MAX) {
        s->select->mark(mask, e->work->select, s->select_params, chunk->at, NULL, chunk->n);
    }
    for (uint64_t i = 0; count <= TG_BIN_MAX && i < count; i++) {
        mask[list[i] / 64] |= UINT64_C(1) << list[i] % 64;
    }
    return (size_t)count;
}

/* Many coordinates, or gradients that must be loaded: block by block. */
static bool encode_blocks(tg_sparse *s)
{
    tg_encoding *e = s->e;
    const tg_chunk *chunk = e->chunk;
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        const uint64_t *mask = e->scratch->mask + done / 64;
        uint64_t at = chunk->at + done;
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        if (e->unit->presums) {
            tg_sparse_take_presummed(s, mask, at, n);
            continue;
        }
        if (e->unit->planes == 0 && tg_mask_is_empty(mask, n)) {
            continue;
        }
        if (!tg_sparse_load(s, at, n)) {
            return false;
        }
        tg_sparse_take(s, mask, at, n);
    }
    return true;
}

static void encode(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    size_t count = find(e);
    float *next = e->unit->presums ? tg_residual_at(e, chunk->at).next : NULL;
    const float *u = next;
    if (e->unit->planes == 0) {
        u = tg_gradient_in_place(e, chunk->at, chunk->n);
    }
    tg_sparse s;
    tg_sparse_start(&s, e);
    if (u != NULL && count <= TG_BIN_MAX) {
        tg_sparse_take_list(&s, u, next, count);
        if (next != NULL && e->plan->nonfinite == TG_NONFINITE_PASS && !s.waits) {
            tg_zero_nonfinite(next, chunk->n);
        }
    } else if (!encode_blocks(&s)) {
        return;
    }
    tg_sparse_finish(&s, e->scratch->mask);
}

/* The sums of a chunk that sends few values. Of longer chunks, gathering prefetches. */
static void prefetch(const tg_unit_plan *unit, const tg_unit_work *work, const tg_chunk *chunk, const float *residual)
{
    enum { FEW = 4 };
    uint32_t list[FEW];
    uint64_t count = unit->presums && chunk->n <= TG_BLOCK
                         ? unit->stages.select->list(list, FEW, work->select, chunk->at, chunk->n)
                         : 0;
    for (uint64_t i = 0; count <= FEW && i < count; i++) {
        __builtin_prefetch(residual + unit->residual_at + (chunk->at - unit->lo) + list[i], 1);
    }
}

const tg_route tg_route_listed = {
    .encode = encode, .prefetch = prefetch, .check = tg_sparse_check, .add = tg_sparse_add, .set = tg_sparse_set};
