/* Dense, fixed bytes a value: every element as fp32, fp16 or bf16.
 *
 *     no feedback   convert a block (checking for NaN and Inf on the way), hash it, store it
 *     feedback      add the residual, convert, hash, store; the residual is what conversion lost
 *
 * Frames that outgrow the caches are written by non-temporal stores; the next block is prefetched while this one is
 * hashed. */
#include "kernels/hash.h"
#include "routes/dense.h"

void tg_plain_start(tg_plain *p, tg_encoding *e)
{
    p->e = e;
    p->len = e->unit->format.plain_len;
    p->at = 0;
    p->non_temporal = e->plan->layout->element_n >= TG_NON_TEMPORAL_FROM;
    p->hash.leaf_n = 0;
}

void tg_plain_put(tg_plain *p, const uint8_t *bytes, size_t len, const void *prefetch, size_t prefetch_len)
{
    tg_encoding *e = p->e;
    uint8_t *to = e->out + p->at;
    tg_hashing_add(&p->hash, bytes, len, prefetch, prefetch_len);
    if (p->non_temporal) {
        tg_kernels_best()->passes.stream_bytes(to, bytes, len);
    } else if (bytes != to) {
        memcpy(to, bytes, len);
    }
    p->at += len;
    e->result->view = (tg_view){.indices = p->at, .count = e->chunk->n};
}

void tg_plain_end(tg_plain *p)
{
    if (p->non_temporal) {
        tg_store_fence();
    }
    p->e->result->hash = tg_hashing_end(&p->hash);
}

bool tg_plain_block(tg_plain *p, uint64_t at, size_t n)
{
    tg_encoding *e = p->e;
    const float *g = tg_load_unchecked(e, at, n);
    if (g == NULL) {
        return false;
    }
    uint8_t *bytes = p->non_temporal ? e->scratch->bytes : e->out + p->at;
    bool finite = e->unit->stages.quantize->write(bytes, g, n);
    if (!finite && e->plan->nonfinite == TG_NONFINITE_ERROR) {
        tg_encoding_refuse(e, g, at, n);
        return false;
    }
    tg_plain_put(p, bytes, n * p->len, g + n, n * sizeof *g);
    return true;
}

static bool feedback_block(tg_plain *p, uint64_t at, size_t n)
{
    tg_encoding *e = p->e;
    const tg_quantize_part *quantize = e->unit->stages.quantize;
    tg_scratch *s = e->scratch;
    const float *g = tg_load_sum(s->u, NULL, e, at, n, false);
    if (g == NULL) {
        return false;
    }
    uint8_t *bytes = p->non_temporal ? e->scratch->bytes : e->out + p->at;
    (void)quantize->write(bytes, s->u, n);
    tg_plain_put(p, bytes, n * p->len, g + n, n * sizeof *g);
    quantize->read(s->decoded, bytes, n);
    tg_store_residual(e, s->u, s->decoded, at, n);
    if (e->unit->planes > 1) {
        tg_keep_block(e, NULL, g, at, n);
    }
    return true;
}

static void encode(tg_encoding *e)
{
    bool (*block)(tg_plain *, uint64_t, size_t) = e->unit->planes > 0 ? feedback_block : tg_plain_block;
    tg_plain p;
    tg_plain_start(&p, e);
    for (uint32_t done = 0, n = 0; done < e->chunk->n; done += n) {
        n = e->chunk->n - done < TG_BLOCK ? e->chunk->n - done : TG_BLOCK;
        if (!block(&p, e->chunk->at + done, n)) {
            return;
        }
    }
    tg_plain_end(&p);
}

bool tg_plain_add(float *out, const tg_decoding *d, float weight)
{
    d->unit->stages.quantize->add(out, d->body + d->view->symbols, weight, d->chunk->n);
    return true;
}

bool tg_plain_set(float *out, const tg_decoding *d)
{
    d->unit->stages.quantize->read(out, d->body + d->view->symbols, d->chunk->n);
    return true;
}

const tg_route tg_route_plain = {.encode = encode, .add = tg_plain_add, .set = tg_plain_set, .hashes = true};
