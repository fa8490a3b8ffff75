/* The middle of the way in: values of a block through quantize and pack, and what is remembered of them.
 *
 * Values become bytes or symbols while their block is in the cache, unless what they have in common is known only behind it:
 * then they wait, and the memory, which has all of them so far, is settled at the end of the chunk. */
#include "base/bits.h"
#include "codec/writing.h"
#include "kernels/kernels.h"

#include <string.h>

/* ---- what is remembered ---------------------------------------------------------------------------------------------- */

/* Remembers a block: u, less what the decoder will see of the marked elements (NULL: of all) if that is known by now. */
static void remember(tg_progress *to, const uint64_t *mask, float *u, const float *g, const float *decoded, uint64_t at,
                     size_t n)
{
    const tg_codec *c = to->c;
    const tg_work *w = to->w;
    tg_memory memory = tg_work_memory(w, c->memory, at);
    bool streams = c->streams && (decoded != NULL || to->quantize->has_scale); /* otherwise it is settled soon */
    if (mask == NULL && decoded != NULL) {
        to->overflows = !tg_kernels_best()->subtract(memory.next, u, decoded, n, streams) || to->overflows;
    } else { /* what is plain has the sign of u, and so can not overflow */
        if (decoded != NULL && to->few) {
            tg_scatter_add(u, to->desk->list, decoded, -1.0f, to->few_n);
        } else if (decoded != NULL) {
            tg_expand_add(u, mask, decoded, -1.0f, n);
        }
        if (u != memory.next && !to->is_kept && !tg_progress_all_wait(to)) {
            tg_kernels_best()->copy(memory.next, u, n, streams);
        }
    }
    if (w->feedback->keep != NULL) {
        w->feedback->keep(&memory, w->feedback_params, g, mask, n);
    }
    for (uint32_t p = 0; c->nonfinite == TG_NONFINITE_PASS && p < w->feedback->planes; p++) {
        if (p > 0 || decoded != NULL) {
            tg_zero_nonfinite(memory.next + p * memory.stride, n); /* what can not be made good is forgotten */
        }
    }
}

/* Takes what the decoder will see of values that waited out of the memory; or puts there what is left of them. */
static void settle_memory(tg_progress *to)
{
    const tg_chunk *chunk = to->chunk;
    tg_desk *desk = to->desk;
    float *memory = tg_work_memory(to->w, to->c->memory, chunk->at).next;
    uint64_t at = 0;
    for (uint32_t done = 0; done < chunk->n; done += TG_BLOCK) {
        size_t n = chunk->n - done < TG_BLOCK ? chunk->n - done : TG_BLOCK;
        const uint64_t *mask = to->every ? NULL : desk->mask + done / 64;
        size_t count = to->every ? n : (size_t)tg_mask_count(mask, n);
        tg_decode_symbols(desk->decoded, desk->symbols + at, to->recipe, to->out, to->count, at, count);
        bool finite = true;
        if (tg_progress_all_wait(to)) {
            finite = tg_kernels_best()->subtract(memory + done, desk->sent + done, desk->decoded, n, to->c->streams);
        } else if (mask == NULL) {
            finite = tg_kernels_best()->subtract(memory + done, memory + done, desk->decoded, n, false);
        } else {
            tg_expand_add(memory + done, mask, desk->decoded, -1.0f, n);
            finite =
                tg_all_finite(desk->values, tg_compress(desk->values, memory + done, mask, n)); /* what has changed */
        }
        to->overflows = to->overflows || !finite;
        at += count;
    }
    tg_stream_end();
    if (to->c->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(memory, chunk->n);
    }
}

/* ---- symbols --------------------------------------------------------------------------------------------------------- */

size_t tg_progress_block(const tg_progress *to)
{
    uint64_t bucket_n = to->at_once ? tg_bucket_n(to->recipe, to->chunk->n) : 1;
    return bucket_n > TG_BLOCK ? (size_t)bucket_n : (size_t)(TG_BLOCK / bucket_n * bucket_n);
}

bool tg_progress_all_wait(const tg_progress *to)
{
    return to->every && to->w->remembers && to->w->feedback->keep == NULL && to->quantize->plain_len == 0 &&
           !to->at_once && !to->quantize->has_scale;
}

/* Where symbols from value number `at` of the chunk on are. */
static uint16_t *symbols_of(const tg_progress *to, uint64_t at)
{
    return to->desk->symbols + (at - to->gone);
}

/* Values from number `at` of the chunk on, where a bucket begins, to symbols. */
static void encode_buckets(const tg_progress *to, const float *values, uint64_t at, uint64_t n)
{
    const tg_codec *c = to->c;
    const double *params = to->recipe->value[TG_STAGE_quantize];
    tg_desk *desk = to->desk;
    uint64_t step = (c->parent != NULL ? c->parent : c)->step;
    tg_stream stream = tg_stream_of(c->layout->seed, step, to->chunk->unit, c->rank + 1);
    bool is_finite = c->nonfinite != TG_NONFINITE_PASS;
    bool draws = to->quantize->draws != NULL && to->quantize->draws(params);
    uint32_t side_len = to->quantize->side_len(params);
    uint64_t bucket_n = tg_bucket_n(to->recipe, at + n);
    tg_bucket bucket = {.side = to->out + at / bucket_n * side_len,
                        .draws = desk->draws,
                        .clipped = desk->clipped,
                        .room = desk->room,
                        .is_finite = is_finite};
    for (uint64_t done = 0; done < n; done += bucket.n) {
        bucket.symbols = symbols_of(to, at + done);
        bucket.values = values + done;
        bucket.n = (size_t)(n - done < bucket_n ? n - done : bucket_n);
        bucket.ahead = to->at_once ? desk->gradient + n + done : NULL;
        if (draws) {
            tg_draw_words(desk->draws, stream.key, to->chunk->at + at + done, bucket.n, c->parent != NULL,
                          bucket.ahead);
        }
        to->quantize->encode_bucket(&bucket, params);
        bucket.side += side_len;
    }
}

/* Where every element is sent, symbols that no pack codes go to their place while they are in the nearest cache; the few that
 * wait for others are moved to the front. */
static void pack_some(tg_progress *to, bool last)
{
    uint32_t base = to->quantize->base(to->recipe->value[TG_STAGE_quantize]);
    uint16_t *symbols = to->desk->symbols;
    size_t n = (size_t)(to->count - to->gone);
    uint8_t *out = to->out + tg_side_len(to->recipe, to->chunk->n) + tg_bits_len(to->gone, base);
    if (last) {
        tg_bits_write(out, symbols, n, base);
        return;
    }
    size_t done = tg_bits_write_some(out, symbols, n, base);
    memmove(symbols, symbols + done, (n - done) * sizeof *symbols);
    to->gone += done;
}

/* ---- values ---------------------------------------------------------------------------------------------------------- */

/* Where the next plain bytes are made: in their place, or aside if a pack codes them or they go around the caches. */
static uint8_t *plain_place(const tg_progress *to)
{
    uint64_t at = to->count * to->quantize->plain_len;
    if (tg_recipe_is_coded(to->recipe)) {
        return to->desk->held + at;
    }
    return to->streams ? to->desk->bytes : to->out + at;
}

/* Plain bytes of `count` more values, from there or from where they lie, on their way; `next` is what is read soon, next_len
 * bytes. */
static void put_plain(tg_progress *to, const uint8_t *bytes, size_t count, const void *next, size_t next_len)
{
    size_t len = count * to->quantize->plain_len;
    uint8_t *place = plain_place(to);
    if (to->hashes) {
        tg_hash_list_feed(&to->hash, bytes, len, next, next_len);
    }
    if (to->streams) {
        tg_kernels_best()->stream_bytes(to->out + to->count * to->quantize->plain_len, bytes, len);
    } else if (bytes != place) {
        memcpy(place, bytes, len);
    }
}

/* Values whose quantizer is plain, and whether they are finite; returns what a decoder will make of them, if somebody
 * remembers it. */
static const float *add_plain(bool *finite, tg_progress *to, const float *values, size_t count)
{
    uint8_t *bytes = plain_place(to);
    *finite = to->quantize->write(bytes, values, count);
    put_plain(to, bytes, count, values + count, count * sizeof *values); /* of the gradient, as a rule */
    if (to->w->remembers) {
        to->quantize->read(to->desk->decoded, bytes, count);
    }
    return to->desk->decoded;
}

bool tg_progress_add_as_it_lies(tg_progress *to, const tg_source *source, uint64_t at, size_t n)
{
    tg_dtype dtype = to->quantize->travels_as;
    const uint8_t *bytes =
        dtype == TG_FP32 ? NULL : tg_codec_as_it_travels(to->c, to->chunk->unit, source, dtype, at, n);
    uint16_t exponent = dtype == TG_FP16 ? 0x7c00 : 0x7f80;
    if (bytes == NULL || !tg_kernels_best()->halves_finite(bytes, exponent, n)) {
        return false;
    }
    if (tg_recipe_is_coded(to->recipe)) {
        to->lies = bytes;
    } else {
        put_plain(to, bytes, n, bytes + 2 * n, 2 * n);
    }
    to->count += n;
    return true;
}

/* Values that become symbols, now or, from desk->sent or the memory, at the end of the chunk; returns as above, and NULL if
 * it is not known yet. */
static const float *add_symbols(tg_progress *to, const float *values, size_t count)
{
    tg_desk *desk = to->desk;
    uint16_t *symbols = symbols_of(to, to->count);
    if (to->quantize->has_scale) {
        tg_bucket bucket = {.symbols = symbols, .values = values, .n = count};
        to->quantize->encode_bucket(&bucket, to->recipe->value[TG_STAGE_quantize]);
        to->magnitudes += to->w->maxima == NULL ? tg_sum_magnitudes(values, count) : 0;
        return NULL;
    }
    if (!to->at_once) {
        if (values != desk->sent + to->count) {
            memcpy(desk->sent + to->count, values, count * sizeof *values);
        }
        return NULL;
    }
    encode_buckets(to, values, to->count, count);
    if (to->w->remembers) {
        tg_decode_symbols(desk->decoded, symbols, to->recipe, to->out, to->chunk->n, to->count, count);
    }
    return desk->decoded;
}

/* The marked values of a block, to the front of `gathered`, and how many: by a list as long as the chunk's has room. */
static size_t gather(tg_progress *to, float *gathered, const uint64_t *mask, const float *u, uint64_t at, size_t n)
{
    uint32_t *list = to->desk->list + to->count;
    if (to->few) {
        tg_gather(gathered, u, list, to->few_n);
        return to->few_n;
    }
    to->listed = to->listed && to->count + n <= TG_BIN_MAX;
    if (!to->listed) {
        return tg_compress(gathered, u, mask, n);
    }
    size_t count = tg_kernels_best()->list_marks(list, mask, n);
    tg_gather(gathered, u, list, count);
    for (size_t i = 0; i < count; i++) {
        list[i] += (uint32_t)(at - to->chunk->at);
    }
    return count;
}

bool tg_progress_add(tg_progress *to, const uint64_t *mask, float *u, const float *g, uint64_t at, size_t n)
{
    tg_desk *desk = to->desk;
    bool waits = to->quantize->plain_len == 0 && !to->at_once && !to->quantize->has_scale;
    float *gathered = waits ? desk->sent + to->count : desk->values;
    const float *values = u;
    size_t count = n;
    if (mask != NULL) {
        count = gather(to, gathered, mask, u, at, n);
        values = gathered;
    }
    if (to->w->gain != 1.0f) {
        tg_scale(gathered, values, to->w->gain, count);
        values = gathered;
    }
    bool finite = true, is_plain = to->quantize->plain_len != 0;
    const float *decoded = is_plain ? add_plain(&finite, to, values, count) : add_symbols(to, values, count);
    to->count += count;
    if (to->packs) {
        pack_some(to, false);
    }
    if (to->w->remembers) {
        remember(to, mask, u, g, decoded, at, n);
    }
    return finite;
}

size_t tg_progress_finish(tg_progress *to)
{
    tg_desk *desk = to->desk;
    if (to->quantize->plain_len == 0 && !to->quantize->has_scale && !to->at_once) {
        encode_buckets(to, desk->sent, 0, to->count);
        if (to->w->remembers) {
            settle_memory(to);
        }
    }
    uint8_t *out = to->out + tg_side_len(to->recipe, to->count);
    tg_coding coding = tg_coding_of(to->recipe, desk, to->out);
    const uint8_t *words = to->lies != NULL ? to->lies : desk->held;
    const void *symbols = coding.base != 0 ? (const void *)desk->symbols : (const void *)words;
    if (tg_recipe_is_coded(to->recipe)) {
        return tg_coded_write(out, symbols, (size_t)to->count, tg_recipe_symbol(to->recipe), &coding);
    }
    if (to->packs) {
        pack_some(to, true);
    } else if (coding.base != 0) {
        tg_bits_write(out, desk->symbols, (size_t)to->count, coding.base);
    }
    return (size_t)tg_plain_len(to->count, &coding);
}
