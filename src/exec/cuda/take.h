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
    uint8_t *out;          /* of plain values; NULL: floats go to space.values */
    float scale;           /* of signs, if it is known */
    bool corrects;         /* the residual was written before it was known what is sent */
    bool signs;            /* signs go to space.symbols */
    bool subtracts;        /* the scale from the residual */
} tg_listing;

TG_DEVICE tg_listing tg_listing_of(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number)
{
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_top = u.select == TG_GPU_SELECT_TOPK && (u.route == TG_GPU_ROUTE_LISTED || u.route == TG_GPU_ROUTE_LEADER);
    is_top = is_top && s.units[chunk.unit].top < s.long_n;
    tg_listing l = {&chunk, &u, is_top ? &s.tops[s.units[chunk.unit].top] : nullptr, nullptr, 0, false, false, false};
    l.corrects = is_top && u.planes > 0 && u.route != TG_GPU_ROUTE_LEADER;
    l.signs = u.plain_len == 0 && u.quantize == TG_GPU_SIGN && u.route != TG_GPU_ROUTE_LEADER;
    if (u.route == TG_GPU_ROUTE_BINS && u.scale == TG_GPU_SCALE_BINS) {
        l.scale = p.space.scales[chunk.unit];
        l.subtracts = u.planes > 0;
    }
    if (u.plain_len != 0 && u.route != TG_GPU_ROUTE_LEADER) {
        l.out = u.coded ? p.space.words + 4 * chunk.element_at
                        : p.space.out[number] + tg_gpu_lay_out(u, 1).symbols; /* which does not depend on the count */
    }
    return l;
}

/* ---- one element -------------------------------------------------------------------------------------------------------------- */

/* A value as bytes, at any address. */
TG_DEVICE void tg_put_value(uint8_t *out, const tg_gpu_unit &u, float value)
{
    if (u.plain_len == 4 && (uintptr_t)out % 4 == 0) {
        *(float *)(void *)out = value;
    } else if (u.plain_len == 4) {
        tg_store_bytes(out, __float_as_uint(value), 4);
    } else {
        tg_store_bytes(out, u.quantize == TG_GPU_FP16 ? tg_float_to_fp16(value) : tg_float_to_bf16(value), 2);
    }
}

/* The residual of a sign of a known scale, from the whole sum. */
TG_DEVICE void tg_subtract_scale(const tg_gpu_pass &p, const tg_listing &l, uint32_t position, float sum)
{
    uint64_t at = l.chunk->at + position;
    float kept = tg_is_finite(sum) ? sum : 0.0f, residual = kept - copysignf(l.scale, sum);
    bool is_fine = tg_is_finite(residual);
    p.next[l.u->residual_at + (at - l.u->lo)] = is_fine ? residual : 0.0f;
    if (!is_fine && p.nonfinite == TG_GPU_ERROR) {
        tg_refuse_residual(p, tg_piece_at(p, *l.u, at)->tensor);
    }
}

/* An element that is sent, as number `number` of its chunk. */
TG_DEVICE void tg_take(const tg_gpu_pass &p, const tg_listing &l, uint32_t position, float value, uint32_t number)
{
    const tg_gpu_unit &u = *l.u;
    p.space.positions[l.chunk->element_at + number] = position;
    if (u.route == TG_GPU_ROUTE_LEADER) {
        return;
    }
    if (l.subtracts) {
        tg_subtract_scale(p, l, position, value);
    }
    if (u.gain != 1.0f) {
        float scaled = u.gain * value;
        bool overflows = !tg_is_finite(scaled) && tg_is_finite(value);
        value = overflows ? copysignf(TG_FLOAT_MAX, value) : value != value ? tg_quiet(value) : scaled;
    }
    if (l.signs) {
        p.space.symbols[2 * l.chunk->element_at + number] = (uint8_t)(__float_as_uint(value) >> 31);
    }
    if (l.out != nullptr) {
        tg_put_value(l.out + (uint64_t)number * u.plain_len, u, value);
    } else {
        p.space.values[l.chunk->element_at + number] = value;
    }
}

#endif
