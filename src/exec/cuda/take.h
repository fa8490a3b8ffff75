/* Elements of a sparse chunk that are sent: where their coordinates and values go. */
#ifndef TG_EXEC_CUDA_TAKE_H
#define TG_EXEC_CUDA_TAKE_H

#include "exec/cuda/layout.h"
#include "exec/cuda/strip.h"

/* What is sent of a chunk, and where it goes. */
typedef struct tg_listing {
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    const tg_gpu_top *top; /* NULL: all */
    uint32_t *positions;
    float *values;    /* NULL: they are plain ... */
    uint8_t *out;     /* ... and go there; NULL, too: there are coordinates alone */
    uint8_t *symbols; /* of signs; NULL: values are others */
    float *next; /* the residual of the chunk's first element, from which the scale is subtracted; NULL: it is not */
    float gain, scale; /* the scale of signs, if it is known */
    uint32_t plain_len;
    bool is_fp16;
    bool corrects; /* the residual was written before it was known what is sent */
} tg_listing;

TG_DEVICE tg_listing tg_listing_of(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number)
{
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_top = u.select == TG_GPU_SELECT_TOPK && (u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER);
    is_top = is_top && s.units[chunk.unit].top < s.long_n;
    tg_listing l = {};
    l.chunk = &chunk;
    l.u = &u;
    l.top = is_top ? &s.tops[s.units[chunk.unit].top] : nullptr;
    l.positions = p.space.positions + chunk.element_at;
    l.gain = 1.0f;
    if (u.route == TG_GPU_ROUTE_LEADER) {
        return l;
    }
    l.gain = u.gain;
    l.corrects = is_top && u.planes > 0;
    if (u.route == TG_GPU_ROUTE_BINS && u.scale == TG_GPU_SCALE_BINS) {
        l.scale = p.space.scales[chunk.unit];
        l.next = u.planes > 0 ? p.next + (u.residual_at + (chunk.at - u.lo)) : nullptr;
    }
    if (u.plain_len != 0) {
        l.plain_len = u.plain_len;
        l.is_fp16 = u.quantize == TG_GPU_FP16;
        l.out = u.coded ? p.space.words + 4 * chunk.element_at
                        : p.space.out[number] + tg_gpu_lay_out(u, 1).symbols; /* which does not depend on the count */
    } else {
        l.values = p.space.values + chunk.element_at;
        l.symbols = u.quantize == TG_GPU_SIGN ? p.space.symbols + 2 * chunk.element_at : nullptr;
    }
    return l;
}

/* ---- one element -------------------------------------------------------------------------------------------------------------- */

/* Plain value number `number` as bytes, at any address. */
TG_DEVICE void tg_put_plain(const tg_listing &l, uint32_t number, float value)
{
    uint8_t *out = l.out + (uint64_t)number * l.plain_len;
    if (l.plain_len == 4 && (uintptr_t)out % 4 == 0) {
        *(float *)(void *)out = value;
    } else if (l.plain_len == 4) {
        tg_store_bytes(out, __float_as_uint(value), 4);
    } else {
        tg_store_bytes(out, l.is_fp16 ? tg_float_to_fp16(value) : tg_float_to_bf16(value), 2);
    }
}

/* Refuses the tensor of element `at` of a unit. */
TG_CALLED void tg_refuse_at(const tg_gpu_pass &p, const tg_gpu_unit &u, uint64_t at)
{
    tg_refuse_residual(p, tg_piece_at(p, u, at)->tensor);
}

/* The residual of a sign of a known scale, from the whole sum. */
TG_DEVICE void tg_subtract_scale(const tg_gpu_pass &p, const tg_listing &l, uint32_t position, float sum)
{
    float kept = tg_is_finite(sum) ? sum : 0.0f, residual = kept - copysignf(l.scale, sum);
    bool is_fine = tg_is_finite(residual);
    l.next[position] = is_fine ? residual : 0.0f;
    if (!is_fine && p.nonfinite == TG_GPU_ERROR) {
        tg_refuse_at(p, *l.u, l.chunk->at + position);
    }
}

/* An element that is sent, as number `number` of its chunk. */
TG_DEVICE void tg_take(const tg_gpu_pass &p, const tg_listing &l, uint32_t position, float value, uint32_t number)
{
    l.positions[number] = position;
    if (l.next != nullptr) {
        tg_subtract_scale(p, l, position, value);
    }
    if (l.gain != 1.0f) {
        float scaled = l.gain * value;
        bool overflows = !tg_is_finite(scaled) && tg_is_finite(value);
        value = overflows ? copysignf(TG_FLOAT_MAX, value) : value != value ? tg_quiet(value) : scaled;
    }
    if (l.symbols != nullptr) {
        l.symbols[number] = (uint8_t)(__float_as_uint(value) >> 31);
    }
    if (l.out != nullptr) {
        tg_put_plain(l, number, value);
    } else if (l.values != nullptr) {
        l.values[number] = value;
    }
}

#endif
