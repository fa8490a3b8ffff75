/* Values in buckets, their symbols, and their bytes. */
#include "quantize/bucket.h"
#include "routes/route.h"

#include <string.h>

/* ---- encoding -------------------------------------------------------------------------------------------------------- */

/* Where the fit of a chunk is kept between steps, in the current or the next residual state. */
static float *kept_fit(const tg_encoding *e, float *residuals)
{
    return residuals + e->plan->fit_at[e->chunk - e->plan->grid->chunks];
}

void tg_fit_carry(const tg_encoding *e)
{
    if (tg_keeps_fit(e)) {
        memcpy(kept_fit(e, e->residuals.next), kept_fit(e, e->residuals.now), sizeof(tg_fit));
    }
}

/* The fit of an earlier step, if this one has to use it. NULL: this one fits. */
static const tg_fit *find_fit(tg_fit *space, const tg_encoding *e)
{
    if (!tg_keeps_fit(e) || e->step % e->unit->format.refit == 0) {
        return NULL;
    }
    memcpy(space, kept_fit(e, e->residuals.now), sizeof *space);
    return space->step > 0 ? space : NULL;
}

/* Keeps the fit that a bucket was encoded with, unless it was none: of zeros, NaN or Inf. */
static void keep_fit(const tg_encoding *e, const uint8_t *side)
{
    const tg_fit fit = {tg_get_float(side), side[sizeof(float)]};
    if (fit.step > 0) {
        memcpy(kept_fit(e, e->residuals.next), &fit, sizeof fit);
    }
}

void tg_encode_buckets(uint16_t *symbols, uint8_t *side, const tg_encoding *e, const float *values,
                       const tg_bucket_span *span)
{
    const tg_format *f = &e->unit->format;
    const tg_stages *s = &e->unit->stages;
    if (s->quantize->encode_blocks != NULL) {
        tg_encode_blocks(symbols, side, e, values, span);
        return;
    }
    tg_chunk_scratch *scratch = e->scratch->chunk;
    tg_stream stream = {0};
    if (f->draws) {
        stream = tg_stream_of(e->plan->layout->seed, e->step, e->chunk->unit, e->plan->rank + 1);
    }
    tg_fit fit;
    uint64_t bucket_n = f->bucket_n == 0 ? span->chunk_n : f->bucket_n;
    tg_bucket bucket = {.fit = find_fit(&fit, e),
                        .side = side + span->at / bucket_n * f->side_len,
                        .clipped = scratch->clipped,
                        .scratch = scratch->quantize_space,
                        .is_finite = e->plan->nonfinite != TG_NONFINITE_PASS && !span->is_unchecked};
    for (size_t done = 0; done < span->n; done += bucket.n) {
        bucket.symbols = symbols + done;
        bucket.values = values + done;
        bucket.n = span->n - done < bucket_n ? span->n - done : (size_t)bucket_n;
        bucket.prefetch = span->prefetch != NULL ? span->prefetch + done : NULL;
        if (f->draws) {
            bucket.draws = tg_draw(scratch->draws, stream.key, e->chunk->at + span->at + done, bucket.n,
                                   e->plan->is_answer, bucket.prefetch);
        }
        s->quantize->encode_bucket(&bucket, s->quantize_params);
        if (tg_keeps_fit(e)) {
            keep_fit(e, bucket.side);
        }
        bucket.side += f->side_len;
    }
}

size_t tg_write_symbols(uint8_t *out, const tg_encoding *e, const uint16_t *symbols, size_t n, const uint8_t *side)
{
    const tg_unit_plan *u = e->unit;
    if (!u->format.coded) {
        size_t len = (size_t)tg_bits_len(n, u->format.base);
        tg_bits_write(out, symbols, n, u->format.base);
        return len;
    }
    tg_coding coding = tg_coding_of(u, e->scratch->chunk, side);
    return tg_coded_write(out, symbols, n, u->stages.symbol, &coding);
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

tg_coding tg_coding_of(const tg_unit_plan *u, tg_chunk_scratch *s, const uint8_t *side)
{
    const tg_quantize_part *q = u->stages.quantize;
    bool proposes = q->lengths != NULL && q->lengths(s->lengths, side, u->stages.quantize_params);
    return (tg_coding){.base = u->format.base,
                       .word_len = u->format.plain_len,
                       .lengths = proposes ? s->lengths : NULL,
                       .params = u->stages.symbol_params,
                       .scratch = s->pack_space};
}

typedef bool read_coded(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_symbol_part *part,
                        const tg_coding *c);

static bool read_by(read_coded *read, const tg_decoding *d)
{
    const tg_view *v = d->view;
    tg_chunk_scratch *s = d->scratch->chunk;
    tg_coding coding = tg_coding_of(d->unit, s, d->body + v->side);
    void *to = coding.base != 0 ? (void *)s->symbols : (void *)s->words;
    return read(to, d->body + v->symbols, (size_t)(v->indices - v->symbols), v->count, d->unit->stages.symbol, &coding);
}

bool tg_read_symbols(const tg_decoding *d)
{
    return read_by(tg_coded_read, d);
}

bool tg_check_symbols(const tg_decoding *d)
{
    return read_by(tg_coded_check, d);
}

/* How many of the values from number `at` up to `end` are in the bucket of the first; *side moves on to that bucket. */
static size_t find_bucket(const uint8_t **side, const tg_format *f, uint64_t chunk_n, uint64_t at, uint64_t end)
{
    uint64_t bucket_n = f->bucket_n == 0 ? chunk_n : f->bucket_n;
    uint64_t bucket = at / bucket_n, left = (bucket + 1) * bucket_n - at;
    *side += bucket * f->side_len;
    return (size_t)(left < end - at ? left : end - at);
}

void tg_decode_buckets(float *values, const uint16_t *symbols, const uint8_t *side, const tg_unit_plan *u,
                       uint64_t chunk_n, uint64_t at, size_t n)
{
    if (u->stages.quantize->decode_blocks != NULL) {
        tg_decode_blocks(values, symbols, side, u, chunk_n, at, n);
        return;
    }
    for (size_t done = 0, m = 0; done < n; done += m) {
        const uint8_t *of_bucket = side;
        m = find_bucket(&of_bucket, &u->format, chunk_n, at + done, at + n);
        const tg_quantize_part *q = u->stages.quantize;
        float table[TG_TABLE_MAX];
        uint32_t table_n = q->table != NULL ? q->table(table, of_bucket, u->stages.quantize_params) : 0;
        if (table_n > 0) {
            tg_kernels_best()->symbols.look_up(values + done, symbols + done, table, table_n, m);
        } else {
            q->decode_bucket(values + done, symbols + done, of_bucket, m, u->stages.quantize_params);
        }
    }
}

/* ---- dense chunks ---------------------------------------------------------------------------------------------------- */

bool tg_symbols_check(const tg_decoding *d)
{
    if (d->unit->format.coded) {
        return tg_check_symbols(d);
    }
    return tg_bits_check(d->body + d->view->symbols, d->view->count, d->unit->format.base);
}

/* Reads the symbols of a chunk in portions that stay in the nearest caches. */
enum { PORTION = 10240 }; /* kernels unpack it without a rest for all bases in use */

typedef void use_portion(float *out, const uint16_t *symbols, const tg_decoding *d, uint64_t at, size_t n,
                         float weight);

static bool for_each_portion(float *out, const tg_decoding *d, float weight, use_portion *use)
{
    const tg_format *f = &d->unit->format;
    uint16_t *symbols = d->scratch->chunk->symbols;
    if (f->coded) {
        if (!tg_read_symbols(d)) {
            return false;
        }
        use(out, symbols, d, 0, d->chunk->n, weight);
        return true;
    }
    uint32_t align = tg_bits_align(f->base), portion = PORTION / align * align;
    for (uint32_t done = 0, n = 0; done < d->chunk->n; done += n) {
        n = d->chunk->n - done < portion ? d->chunk->n - done : portion;
        const uint8_t *bytes = d->body + d->view->symbols + tg_bits_len(done, f->base);
        if (!tg_bits_read(symbols, bytes, n, f->base)) {
            return false;
        }
        use(out + done, symbols, d, done, n, weight);
    }
    return true;
}

/* Blocks are decoded, some at a time, and added. */
static void add_blocks(float *out, const uint16_t *symbols, const tg_decoding *d, uint64_t at, size_t n, float weight)
{
    for (size_t done = 0, m = 0; done < n; done += m) {
        m = n - done < TG_BLOCK ? n - done : TG_BLOCK;
        tg_decode_blocks(d->scratch->values, symbols + done, d->body + d->view->side, d->unit, d->chunk->n, at + done,
                         m);
        tg_expand_add(out + done, NULL, d->scratch->values, weight, m);
    }
}

/* Adds by a table where there is one: look-up and sum are one loop. */
static void add_portion(float *out, const uint16_t *symbols, const tg_decoding *d, uint64_t at, size_t n, float weight)
{
    if (d->unit->stages.quantize->decode_blocks != NULL) {
        add_blocks(out, symbols, d, at, n, weight);
        return;
    }
    const tg_stages *s = &d->unit->stages;
    for (size_t done = 0, m = 0; done < n; done += m) {
        const uint8_t *side = d->body + d->view->side;
        float table[TG_TABLE_MAX];
        m = find_bucket(&side, &d->unit->format, d->chunk->n, at + done, at + n);
        uint32_t table_n = s->quantize->table != NULL ? s->quantize->table(table, side, s->quantize_params) : 0;
        for (uint32_t t = 0; t < table_n; t++) {
            table[t] *= weight;
        }
        if (table_n > 0) {
            tg_kernels_best()->symbols.look_up_add(out + done, symbols + done, table, table_n, m);
            continue;
        }
        m = m < TG_BIN_MAX ? m : TG_BIN_MAX;
        s->quantize->decode_bucket(d->scratch->values, symbols + done, side, m, s->quantize_params);
        tg_expand_add(out + done, NULL, d->scratch->values, weight, m);
    }
}

static void set_portion(float *out, const uint16_t *symbols, const tg_decoding *d, uint64_t at, size_t n, float weight)
{
    (void)weight;
    tg_decode_buckets(out, symbols, d->body + d->view->side, d->unit, d->chunk->n, at, n);
}

bool tg_symbols_add(float *out, const tg_decoding *d, float weight)
{
    return for_each_portion(out, d, weight, add_portion);
}

bool tg_symbols_set(float *out, const tg_decoding *d)
{
    return for_each_portion(out, d, 1.0f, set_portion);
}
