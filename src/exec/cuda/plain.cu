/* Dense, fixed bytes a value: fp32, fp16 and bf16, with feedback or without. Routes plain and verbatim write to the frame, route
 * words to where the coder reads. A block takes a tile, a warp a leaf of the frame: it loads four elements a lane where addresses
 * allow it, makes the leaf in shared memory, and hashes it there. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/source.h"

enum { WARPS = 2, FOUR = 4 };

/* A value in a quantizer's format, as an integer, and back. */
TG_DEVICE uint32_t to_bits(unsigned quantize, float value)
{
    return quantize == TG_GPU_FP32   ? __float_as_uint(value)
           : quantize == TG_GPU_FP16 ? tg_float_to_fp16(value)
                                     : tg_float_to_bf16(value);
}

TG_DEVICE float from_bits(unsigned quantize, uint32_t bits)
{
    return quantize == TG_GPU_FP32   ? __uint_as_float(bits)
           : quantize == TG_GPU_FP16 ? tg_fp16_to_float((uint16_t)bits)
                                     : tg_bf16_to_float((uint16_t)bits);
}

/* ---- one element --------------------------------------------------------------------------------------------------------- */

/* Any element, with the policy for NaN and Inf, to element i of a leaf in shared memory. */
TG_CALLED void encode_one(uint8_t *leaf, uint32_t i, const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit,
                          uint64_t at)
{
    const tg_gpu_piece *piece = tg_piece_at(p, u, at);
    float g = tg_load_gradient(p, u, unit, piece, at);
    float sum = tg_add_residual(p, u, piece, g, at);
    uint32_t bits = to_bits(u.quantize, sum);
    if (u.planes > 0) {
        tg_store_residual(p, u, piece, sum - from_bits(u.quantize, bits), at);
        tg_keep_state(p, u, g, at, false);
    }
    tg_store_bytes(leaf + i * u.plain_len, bits, u.plain_len);
}

/* ---- four elements ------------------------------------------------------------------------------------------------------- */

/* Where all sums are finite and stay so in the format: bits in two words, or four, and residuals. */
TG_DEVICE void encode_fast(uint4 *out, float residual[FOUR], const float sum[FOUR], unsigned quantize,
                           bool has_residual)
{
    if (quantize == TG_GPU_FP32) {
        *out = make_uint4(__float_as_uint(sum[0]), __float_as_uint(sum[1]), __float_as_uint(sum[2]),
                          __float_as_uint(sum[3]));
    } else if (quantize == TG_GPU_FP16) {
        *out = make_uint4(tg_fp16_pair(sum[0], sum[1]), tg_fp16_pair(sum[2], sum[3]), 0, 0);
    } else {
        *out = make_uint4(tg_bf16_pair(sum[0], sum[1]), tg_bf16_pair(sum[2], sum[3]), 0, 0);
    }
    if (!has_residual) {
        return;
    }
    bool is_bf16 = quantize == TG_GPU_BF16;
    uint32_t halves[FOUR] = {out->x & 0xffffu, out->x >> 16, out->y & 0xffffu, out->y >> 16};
    TG_UNROLL
    for (int i = 0; i < FOUR; i++) {
        residual[i] = quantize == TG_GPU_FP32 ? sum[i] - sum[i] : sum[i] - tg_any_half(halves[i], is_bf16);
    }
}

/* Four elements that are loaded already, to the leaf and the next residual. False: they are not for this. */
template <bool HAS_RESIDUAL>
TG_DEVICE bool encode_four(uint4 *leaf, uint32_t i, const tg_gpu_unit &u, float4 four, float4 old, float4 *next)
{
    float g[FOUR] = {four.x, four.y, four.z, four.w}, residual[FOUR] = {old.x, old.y, old.z, old.w}, sum[FOUR];
    float decay = (float)u.feedback_params[0];
    uint32_t most = 0, limit = u.quantize == TG_GPU_FP16   ? TG_FP16_FROM
                               : u.quantize == TG_GPU_BF16 ? TG_BF16_FROM
                                                           : 0x7f800000u;
    TG_UNROLL
    for (int k = 0; k < FOUR; k++) {
        sum[k] = HAS_RESIDUAL ? g[k] + decay * residual[k] : g[k];
        most = max(most, __float_as_uint(sum[k]) & 0x7fffffffu);
    }
    if (most >= limit) {
        return false;
    }
    uint4 out;
    encode_fast(&out, residual, sum, u.quantize, HAS_RESIDUAL);
    if (HAS_RESIDUAL) {
        *next = make_float4(residual[0], residual[1], residual[2], residual[3]);
    }
    if (u.plain_len == 4) {
        leaf[i] = out;
    } else {
        ((uint2 *)(void *)leaf)[i] = make_uint2(out.x, out.y);
    }
    return true;
}

/* Whole fours of a leaf, which begins with element `at` of the unit, four number `first` of the tile. BATCH of a lane are loaded before the
 * first is used. */
template <bool HAS_RESIDUAL>
TG_DEVICE void encode_fours(uint4 *leaf, const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_source &s,
                            uint32_t unit, uint64_t at, uint32_t first, uint32_t fours)
{
    enum { BATCH = HAS_RESIDUAL ? 4 : 8 };
    const float4 *now = (const float4 *)(const void *)(p.now + s.residual_at) + first;
    float4 *next = (float4 *)(void *)(p.next + s.residual_at) + first, none = make_float4(0, 0, 0, 0);
    TG_ROLL
    for (uint32_t from = threadIdx.x % TG_WARP; from < fours; from += BATCH * TG_WARP) {
        float4 g[BATCH], old[BATCH];
        uint32_t slow = 0; /* a bit each for fours that are left for later */
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = from + b * TG_WARP;
            g[b] = i < fours ? tg_source_four(s, first + i) : none;
            old[b] = HAS_RESIDUAL && i < fours ? __ldcs(now + i) : none;
        }
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t i = from + b * TG_WARP;
            if (i < fours && !encode_four<HAS_RESIDUAL>(leaf, i, u, g[b], old[b], next + i)) {
                slow |= 1u << b;
            }
        }
        for (; slow != 0; slow &= slow - 1) {
            uint32_t i = FOUR * (from + (uint32_t)(__ffs((int)slow) - 1) * TG_WARP);
            TG_ROLL
            for (uint32_t k = i; k < i + FOUR; k++) {
                encode_one((uint8_t *)(void *)leaf, k, p, u, unit, at + k);
            }
        }
    }
}

/* ---- tiles --------------------------------------------------------------------------------------------------------------- */

__global__ static void __launch_bounds__(WARPS *TG_WARP, 14)
    encode_tile(const __grid_constant__ tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaves[WARPS][TG_LEAF_VECTORS];
    tg_after_previous();
    tg_next_may_begin();
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    bool is_coded = u.route == TG_GPU_ROUTE_WORDS;
    if (u.route != TG_GPU_ROUTE_PLAIN && u.route != TG_GPU_ROUTE_VERBATIM && !is_coded) {
        return;
    }
    uint8_t *out = is_coded ? p.space.words + 4 * p.chunks[tile.chunk].element_at : p.space.out[tile.chunk];
    uint64_t *of_chunk = is_coded || hashes == nullptr ? nullptr : hashes + (uint64_t)(tile.chunk - p.first) * leaf_cap;
    uint32_t warp = threadIdx.x / TG_WARP, each = TG_LEAF_BYTES / u.plain_len;
    uint8_t *leaf = (uint8_t *)(void *)leaves[warp];
    tg_gpu_source s = tg_source_of(p, u, tile);
    for (uint32_t from = warp * each; from < tile.n; from += WARPS * each) {
        uint32_t n = min(each, tile.n - from), number = (tile.from + from) / each;
        uint32_t fours = tg_source_has(s) ? n / FOUR : 0;
        if (u.planes == 0) {
            encode_fours<false>(leaves[warp], p, u, s, tile.unit, tile.at + from, from / FOUR, fours);
        } else {
            encode_fours<true>(leaves[warp], p, u, s, tile.unit, tile.at + from, from / FOUR, fours);
        }
        for (uint32_t i = fours * FOUR + threadIdx.x % TG_WARP; i < n; i += TG_WARP) {
            encode_one(leaf, i, p, u, tile.unit, tile.at + from + i);
        }
        tg_leaf_end(of_chunk == nullptr ? nullptr : of_chunk + number, out + (uint64_t)number * TG_LEAF_BYTES,
                    leaves[warp], n * u.plain_len);
    }
}

void tg_gpu_encode_plain(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    if (p->tile_n > 0) {
        TG_LAUNCH_EARLY(encode_tile, p->overlaps, p->tile_n, WARPS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
}
