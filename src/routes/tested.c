/* Sparse, coordinates found by testing each value: threshold, and parts that measure a threshold first. */
#include "base/bits.h"
#include "routes/sparse.h"

#include <string.h>

static void encode(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    const tg_stages *stages = &e->unit->stages;
    tg_sparse s;
    tg_sparse_start(&s, e);
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        uint64_t *mask = e->scratch->mask + done / 64, at = chunk->at + done;
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        if (!tg_sparse_load(&s, at, n)) {
            return;
        }
        memset(mask, 0, (n + 63) / 64 * sizeof *mask);
        stages->select->mark(mask, e->work->select, stages->select_params, at, s.u, n);
        tg_sparse_take(&s, mask, at, n);
    }
    tg_sparse_finish(&s, e->scratch->mask);
}

const tg_route tg_route_tested = {
    .encode = encode, .check = tg_sparse_check, .add = tg_sparse_add, .set = tg_sparse_set};
