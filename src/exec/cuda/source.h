/* Where the elements of a tile are, if they can be loaded four at a time: whole vectors of one tensor, in place. */
#ifndef TG_EXEC_CUDA_SOURCE_H
#define TG_EXEC_CUDA_SOURCE_H

#include "exec/cuda/load.h"

/* Where the elements of a tile are that can be loaded four at a time. */
typedef struct tg_gpu_source {
    const float4 *floats; /* or ... */
    const uint2 *halves;  /* ... in half precision; NULL both: they cannot */
    bool is_bf16;
    uint32_t tensor;
    uint64_t residual_at;
} tg_gpu_source;

/* Of the elements of a tile, which are in one piece, with `ef` or no feedback. All that may be needed is loaded at once. */
TG_DEVICE tg_gpu_source tg_source_of(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile)
{
    const tg_gpu_piece piece = p.pieces[tile.piece];
    const uint64_t in_unit = tile.at - u.lo, flat_at = u.flat_at, residual_at = u.residual_at + in_unit;
    const uint32_t planes = u.planes;
    tg_gpu_source s = {nullptr, nullptr, piece.dtype == 2, piece.tensor, residual_at};
    if (!tile.is_whole || planes > 1 || (planes > 0 && residual_at % 4 != 0) ||
        (p.has_clip && p.space.clips[tile.unit] != 1.0f)) {
        return s;
    }
    if (p.flat != nullptr || piece.dtype == 0) {
        const float *from = p.flat != nullptr ? p.flat + flat_at + in_unit
                                              : (const float *)tg_grad_of(p, piece.tensor) + (tile.at - piece.at);
        s.floats = (uintptr_t)from % 16 == 0 ? (const float4 *)(const void *)from : nullptr;
    } else {
        const uint16_t *from = (const uint16_t *)tg_grad_of(p, piece.tensor) + (tile.at - piece.at);
        s.halves = (uintptr_t)from % 8 == 0 ? (const uint2 *)(const void *)from : nullptr;
    }
    return s;
}

/* Whether sources are found by tables of the plan alone, so that a kernel that is launched early need not wait for the one before. */
TG_DEVICE bool tg_finds_early(const tg_gpu_pass &p)
{
    return p.has_clip == 0 && p.grads == nullptr;
}

TG_DEVICE bool tg_source_has(const tg_gpu_source &s)
{
    return s.floats != nullptr || s.halves != nullptr;
}

/* A NaN in half precision may become another, here and below: who uses these loads it again. */
TG_DEVICE float4 tg_widen_four(uint2 halves, bool is_bf16)
{
    return make_float4(tg_any_half(halves.x & 0xffffu, is_bf16), tg_any_half(halves.x >> 16, is_bf16),
                       tg_any_half(halves.y & 0xffffu, is_bf16), tg_any_half(halves.y >> 16, is_bf16));
}

/* One element of a dtype. */
TG_DEVICE float tg_widen(float v, bool is_bf16)
{
    (void)is_bf16;
    return v;
}

TG_DEVICE float tg_widen(uint16_t half, bool is_bf16)
{
    return tg_any_half(half, is_bf16);
}

/* Elements 4 i and the next ones of the tile. */
TG_DEVICE float4 tg_source_four(const tg_gpu_source &s, uint32_t i)
{
    return s.floats != nullptr ? __ldcs(s.floats + i) : tg_widen_four(__ldcs(s.halves + i), s.is_bf16);
}

#endif
