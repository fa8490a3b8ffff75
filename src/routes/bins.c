/* Sparse, coordinates found bin by bin (adabins). Blocks are whole bins, the first and the last of which may lie in part
 * outside of the chunk; the chunk with a bin's first element notes its maximum. */
#include "base/bits.h"
#include "routes/sparse.h"

#include <string.h>

/* Whole bins around elements of a chunk. */
typedef struct bins {
    uint64_t first; /* number of the first bin */
    uint64_t at;    /* of its first element */
    size_t n;       /* elements of all bins */
    size_t skip;    /* of them, those before the chunk or in an earlier block */
    size_t here;    /* of them, those of this block */
} bins;

static bins bins_at(const tg_encoding *e, uint64_t at)
{
    const tg_unit_plan *u = e->unit;
    uint32_t bin_n = u->format.bin;
    uint64_t first = (at - u->lo) / bin_n, start = u->lo + first * bin_n;
    uint64_t wanted = bin_n > TG_BLOCK ? bin_n : TG_BLOCK / bin_n * bin_n;
    size_t n = u->hi - start < wanted ? (size_t)(u->hi - start) : (size_t)wanted, skip = (size_t)(at - start);
    uint64_t left = e->chunk->at + e->chunk->n - at;
    return (bins){first, start, n, skip, left < n - skip ? (size_t)left : n - skip};
}

/* gradient + residual of whole bins; false: they are refused. Their sum goes to the next residual at once, if it is to stay
 * there for now and all of it belongs to this chunk. */
static bool load(tg_sparse *s, const bins *b)
{
    tg_encoding *e = s->e;
    if (e->unit->planes == 0) {
        s->u = s->gradient = tg_load_gradient(e, b->at, b->n);
        return s->u != NULL;
    }
    bool at_once = s->waits && b->here == b->n;
    float *next = at_once ? tg_residual_at(e, b->at).next : NULL;
    s->u = s->sum = e->scratch->u;
    s->gradient = tg_load_sum(e->scratch->u, next, e, b->at, b->n, at_once && s->non_temporal);
    if (s->gradient != NULL && s->waits && !at_once) {
        tg_kernels_best()->passes.copy(tg_residual_at(e, b->at + b->skip).next, s->u + b->skip, b->here,
                                       s->non_temporal);
    }
    return s->gradient != NULL;
}

/* Marks the elements of the block that are sent. */
static const uint64_t *mark(const tg_sparse *s, const bins *b)
{
    const tg_encoding *e = s->e;
    const tg_stages *stages = &e->unit->stages;
    tg_scratch *scratch = e->scratch;
    uint32_t bin_n = e->unit->format.bin;
    memset(scratch->bin_mask, 0, (b->n + 63) / 64 * sizeof *scratch->bin_mask);
    stages->select->mark_bins(scratch->bin_mask, scratch->values, stages->select_params, s->u, s->gradient, b->n);
    for (uint64_t i = b->skip > 0 ? 1 : 0; e->work->maxima != NULL && i * bin_n < b->skip + b->here; i++) {
        e->work->maxima[b->first + i] = scratch->values[i];
    }
    tg_mask_extract(scratch->block_mask, scratch->bin_mask, b->skip, b->here);
    tg_mask_insert(scratch->mask, b->at + b->skip - e->chunk->at, scratch->block_mask, b->here);
    return scratch->block_mask;
}

static void encode(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    tg_sparse s;
    tg_sparse_start(&s, e);
    memset(e->scratch->mask, 0, (chunk->n + 63) / 64 * sizeof *e->scratch->mask);
    for (uint64_t at = chunk->at; at < chunk->at + chunk->n;) {
        bins b = bins_at(e, at);
        if (!load(&s, &b)) {
            return;
        }
        const uint64_t *mask = mark(&s, &b);
        s.u += b.skip;
        s.gradient += b.skip;
        s.sum = s.sum == NULL ? NULL : s.sum + b.skip;
        tg_sparse_take(&s, mask, at, b.here);
        at += b.here;
    }
    tg_sparse_finish(&s, e->scratch->mask);
}

const tg_route tg_route_bins = {.encode = encode, .check = tg_sparse_check, .add = tg_sparse_add, .set = tg_sparse_set};
