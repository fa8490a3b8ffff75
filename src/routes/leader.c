/* Indices alone: the coordinates that the leader of a step chooses for all ranks. Values travel later, in frames of their
 * own, so no residual is touched here. */
#include "base/bits.h"
#include "routes/route.h"

#include <string.h>

/* gradient + residual of a block, in scratch or in place. NULL: it is refused. */
static const float *load(tg_encoding *e, const float **gradient, uint64_t at, size_t n)
{
    if (e->unit->planes == 0) {
        *gradient = tg_load_gradient(e, at, n);
        return *gradient;
    }
    *gradient = tg_load_sum(e->scratch->u, NULL, e, at, n, false);
    return *gradient == NULL ? NULL : e->scratch->u;
}

static bool mark_tested(tg_encoding *e, uint64_t *mask)
{
    const tg_stages *s = &e->unit->stages;
    for (uint32_t done = 0, n = 0; done < e->chunk->n; done += n) {
        const float *gradient = NULL;
        n = e->chunk->n - done < TG_BLOCK ? e->chunk->n - done : TG_BLOCK;
        const float *u = load(e, &gradient, e->chunk->at + done, n);
        if (u == NULL) {
            return false;
        }
        s->select->mark(mask + done / 64, e->work->select, s->select_params, e->chunk->at + done, u, n);
    }
    return true;
}

/* Chunks of one slice need not start where a bin does: whole bins are loaded and the chunk's elements taken out. */
static bool mark_bins(tg_encoding *e, uint64_t *mask)
{
    const tg_unit_plan *unit = e->unit;
    const tg_stages *s = &unit->stages;
    tg_scratch *scratch = e->scratch;
    uint64_t bin_n = unit->format.bin, end = e->chunk->at + e->chunk->n;
    uint64_t block_n = bin_n > TG_BLOCK ? bin_n : TG_BLOCK / bin_n * bin_n;
    for (uint64_t at = e->chunk->at / bin_n * bin_n; at < end; at += block_n) {
        const float *gradient = NULL;
        size_t n = unit->hi - at < block_n ? (size_t)(unit->hi - at) : (size_t)block_n;
        const float *u = load(e, &gradient, at, n);
        if (u == NULL) {
            return false;
        }
        memset(scratch->bin_mask, 0, tg_words(n) * sizeof *scratch->bin_mask);
        s->select->mark_bins(scratch->bin_mask, scratch->values, s->select_params, u, gradient, n);
        uint64_t from = at > e->chunk->at ? at : e->chunk->at, to = at + n < end ? at + n : end;
        tg_mask_extract(scratch->block_mask, scratch->bin_mask, from - at, (size_t)(to - from));
        tg_mask_insert(mask, from - e->chunk->at, scratch->block_mask, (size_t)(to - from));
    }
    return true;
}

static bool mark(tg_encoding *e, uint64_t *mask)
{
    const tg_stages *s = &e->unit->stages;
    if (e->unit->format.bin > 0) {
        return mark_bins(e, mask);
    }
    if (s->select->list != NULL) { /* the measuring pass has found them */
        s->select->mark(mask, e->work->select, s->select_params, e->chunk->at, NULL, e->chunk->n);
        return true;
    }
    return mark_tested(e, mask);
}

static void encode(tg_encoding *e)
{
    uint64_t *mask = e->scratch->mask;
    memset(mask, 0, tg_words(e->chunk->n) * sizeof *mask);
    if (!mark(e, mask)) {
        return;
    }
    e->result->view = (tg_view){.count = (uint32_t)tg_mask_count(mask, e->chunk->n)};
    tg_write_indices(e, mask, NULL);
}

static bool check(const tg_decoding *d)
{
    return d->view->count == 0 || tg_read_indices(d, d->scratch->list);
}

const tg_route tg_route_leader = {.encode = encode, .check = check};
