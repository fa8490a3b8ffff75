/* Values with a scale for every few of them, and their rotation. Blocks and rotations begin at the first value of a chunk; values
 * at its end that do not fill a rotation are not rotated. */
#include "kernels/blocks.h"
#include "routes/route.h"

#include <string.h>

enum { PIECE = TG_BLOCK }; /* values that are rotated and drawn for at a time: whole blocks and rotations */

typedef struct turning {
    uint32_t rotation; /* 0: none */
    float signs[TG_ROTATION_MAX];
} turning;

static turning turning_of(const tg_unit_plan *u)
{
    turning t = {.rotation = u->format.rotation};
    for (uint32_t i = 0; i < t.rotation; i++) {
        t.signs[i] = (u->signs[i / 32] >> i % 32 & 1) != 0 ? -1.0f : 1.0f;
    }
    return t;
}

/* ---- encoding -------------------------------------------------------------------------------------------------------------- */

/* The values themselves, or rotated in `space`. */
static const float *turn(float *space, const turning *t, const float *values, size_t n)
{
    if (t->rotation == 0) {
        return values;
    }
    size_t whole = n / t->rotation * t->rotation;
    tg_kernels_best()->blocks.rotate(space, values, t->signs, t->rotation, whole);
    memcpy(space + whole, values + whole, (n - whole) * sizeof *values);
    return space;
}

static void measure(uint8_t *head, const tg_encoding *e, const turning *t, const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t done = 0, m = 0; done < n; done += m) {
        m = n - done < PIECE ? n - done : PIECE;
        const float *turned = turn(e->scratch->chunk->clipped, t, values + done, m);
        uint32_t key = tg_kernels_best()->select.largest_key(turned, m);
        largest = key > largest ? key : largest;
    }
    e->unit->stages.quantize->write_head(head, largest);
}

void tg_encode_blocks(uint16_t *symbols, uint8_t *side, const tg_encoding *e, const float *values,
                      const tg_bucket_span *span)
{
    const tg_format *f = &e->unit->format;
    const tg_stages *s = &e->unit->stages;
    tg_chunk_scratch *scratch = e->scratch->chunk;
    const turning t = turning_of(e->unit);
    tg_draws draws = {0};
    tg_stream stream = {0};
    if (f->draws) {
        stream = tg_stream_of(e->plan->layout->seed, e->step, e->chunk->unit, e->plan->rank + 1);
    }
    if (f->head_len > 0) {
        measure(side, e, &t, values, span->n); /* a span is then the whole chunk */
    }
    for (size_t done = 0, m = 0; done < span->n; done += m) {
        m = span->n - done < PIECE ? span->n - done : PIECE;
        const void *next = span->prefetch != NULL ? span->prefetch + done : NULL;
        if (f->draws) {
            draws = tg_draw(scratch->draws, stream.key, e->chunk->at + span->at + done, m, e->plan->is_answer, next);
        }
        tg_blocks b = {.symbols = symbols + done,
                       .side = side + f->head_len + (span->at + done) / f->bucket_n * f->side_len,
                       .head = side,
                       .values = turn(scratch->clipped, &t, values + done, m),
                       .draws = f->draws ? &draws : NULL,
                       .n = m};
        s->quantize->encode_blocks(&b, s->quantize_params);
    }
}

/* ---- decoding -------------------------------------------------------------------------------------------------------------- */

/* Values from number `at`, where a block and a rotation begin; n fills rotations, or goes to the end of the chunk. */
static void decode_whole(float *values, const uint16_t *symbols, const uint8_t *side, const tg_unit_plan *u,
                         const turning *t, uint64_t at, size_t n)
{
    const tg_format *f = &u->format;
    const uint8_t *of_blocks = side + f->head_len + at / f->bucket_n * f->side_len;
    u->stages.quantize->decode_blocks(values, symbols, of_blocks, side, n, u->stages.quantize_params);
    if (t->rotation != 0) {
        size_t whole = n / t->rotation * t->rotation;
        tg_kernels_best()->blocks.turn_back(values, t->signs, t->rotation, whole);
    }
}

void tg_decode_blocks(float *values, const uint16_t *symbols, const uint8_t *side, const tg_unit_plan *u,
                      uint64_t chunk_n, uint64_t at, size_t n)
{
    const turning t = turning_of(u);
    uint32_t align = t.rotation > u->format.bucket_n ? t.rotation : u->format.bucket_n;
    for (size_t done = 0, m = 0; done < n; done += m) {
        uint64_t from = at + done, left = n - done, lead = from % align;
        uint64_t whole = from + left == chunk_n ? left : left / align * align;
        if (lead == 0 && whole > 0) {
            m = (size_t)whole;
            decode_whole(values + done, symbols + done, side, u, &t, from, m);
            continue;
        }
        float some[TG_ROTATION_MAX]; /* part of a block, of which all symbols are there */
        uint64_t begin = from - lead, some_n = chunk_n - begin < align ? chunk_n - begin : align;
        m = (size_t)(some_n - lead < left ? some_n - lead : left);
        decode_whole(some, symbols + done - lead, side, u, &t, begin, (size_t)some_n);
        memcpy(values + done, some + lead, m * sizeof *values);
    }
}
