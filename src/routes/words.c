/* Dense, fixed bytes a value, then losslessly coded: the words of a chunk are collected and coded as a whole. Halves of the
 * gradient that travel as they are, are coded where they are. */
#include "routes/dense.h"

static bool gradient_block(tg_encoding *e, uint8_t *words, uint64_t at, size_t n)
{
    const float *g = tg_load_unchecked(e, at, n);
    if (g == NULL) {
        return false;
    }
    bool finite = e->unit->stages.quantize->write(words, g, n);
    if (!finite && e->plan->nonfinite == TG_NONFINITE_ERROR) {
        tg_encoding_refuse(e, g, at, n);
        return false;
    }
    return true;
}

static bool feedback_block(tg_encoding *e, uint8_t *words, uint64_t at, size_t n)
{
    const tg_quantize_part *quantize = e->unit->stages.quantize;
    tg_scratch *s = e->scratch;
    const float *g = tg_load_sum(s->u, NULL, e, at, n, false);
    if (g == NULL) {
        return false;
    }
    (void)quantize->write(words, s->u, n);
    quantize->read(s->decoded, words, n);
    tg_store_residual(e, s->u, s->decoded, at, n);
    if (e->unit->planes > 1) {
        tg_keep_block(e, NULL, g, at, n);
    }
    return true;
}

/* The words of the whole chunk. NULL: it is refused. */
static const uint8_t *collect(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    bool (*block)(tg_encoding *, uint8_t *, uint64_t, size_t) = e->unit->planes > 0 ? feedback_block : gradient_block;
    uint8_t *words = e->scratch->chunk->words;
    for (uint32_t done = 0, n = 0; done < chunk->n; done += n) {
        n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        if (!block(e, words + (size_t)done * e->unit->format.plain_len, chunk->at + done, n)) {
            return NULL;
        }
    }
    tg_store_fence();
    return words;
}

static void encode(tg_encoding *e)
{
    const tg_chunk *chunk = e->chunk;
    const uint8_t *words = e->unit->verbatim ? tg_gradient_bytes(e, chunk->at, chunk->n) : NULL;
    if (words == NULL || !tg_bytes_are_finite(e, words, chunk->n)) {
        words = collect(e);
    }
    if (words == NULL) {
        return;
    }
    tg_coding coding = tg_coding_of(e->unit, e->scratch->chunk, NULL);
    size_t len = tg_coded_write(e->out, words, chunk->n, e->unit->stages.symbol, &coding);
    e->result->view = (tg_view){.indices = len, .count = chunk->n};
}

static bool add(float *out, const tg_decoding *d, float weight)
{
    if (!tg_read_symbols(d)) {
        return false;
    }
    d->unit->stages.quantize->add(out, d->scratch->chunk->words, weight, d->chunk->n);
    return true;
}

static bool set(float *out, const tg_decoding *d)
{
    if (!tg_read_symbols(d)) {
        return false;
    }
    d->unit->stages.quantize->read(out, d->scratch->chunk->words, d->chunk->n);
    return true;
}

const tg_route tg_route_words = {.encode = encode, .check = tg_check_symbols, .add = add, .set = set};
