/* Dense, fixed bytes a value: fp32, fp16 and bf16, with feedback or without. Routes plain and verbatim write to the frame, route
 * words to where the coder reads. A block takes a tile; a thread takes four elements at a time where addresses allow it. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"

enum { THREADS = 256, FOUR = 4 };

/* A value in a quantizer's format, as an integer, and back. */
TG_DEVICE uint32_t to_bits(unsigned quantize, float value)
{
    return quantize == TG_GPU_FP32 ? __float_as_uint(value)
                                   : quantize == TG_GPU_FP16 ? tg_float_to_fp16(value) : tg_float_to_bf16(value);
}

TG_DEVICE float from_bits(unsigned quantize, uint32_t bits)
{
    return quantize == TG_GPU_FP32 ? __uint_as_float(bits)
                                   : quantize == TG_GPU_FP16 ? tg_fp16_to_float((uint16_t)bits) : tg_bf16_to_float((uint16_t)bits);
}

/* ---- one element --------------------------------------------------------------------------------------------------------- */

TG_DEVICE void encode_one(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint8_t *out, uint64_t at)
{
    const tg_gpu_piece *piece = tg_piece_at(p, u, at);
    float g = tg_load_gradient(p, u, unit, piece, at);
    float sum = tg_add_residual(p, u, piece, g, at);
    uint32_t bits = to_bits(u.quantize, sum);
    tg_store_bytes(out, bits, u.plain_len);
    if (u.planes > 0) {
        tg_store_residual(p, u, piece, sum - from_bits(u.quantize, bits), at);
        tg_keep_state(p, u, g, at, false);
    }
}

/* ---- four elements ------------------------------------------------------------------------------------------------------- */

/* Whether the elements of a tile, which are in one piece, can be loaded and stored four at a time, with `ef` or no feedback. */
TG_DEVICE bool suits_four(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, const tg_gpu_piece *piece, uint64_t at,
                          const uint8_t *out)
{
    const float *from = p.flat != nullptr ? p.flat + u.flat_at + (at - u.lo)
                                          : (const float *)p.grads[piece->tensor] + (at - piece->at);
    return (p.flat != nullptr || piece->dtype == 0) && (uintptr_t)from % 16 == 0 &&
           (uintptr_t)out % (FOUR * u.plain_len) == 0 && u.planes < 2 && p.space.clips[unit] == 1.0f &&
           (u.planes == 0 || (u.residual_at + (at - u.lo)) % FOUR == 0);
}

TG_DEVICE float admit(const tg_gpu_pass &p, const tg_gpu_piece *piece, float g)
{
    if (p.nonfinite == TG_GPU_PASS || tg_is_finite(g)) {
        return g;
    }
    if (p.nonfinite == TG_GPU_ERROR) {
        tg_refuse_tensor(p, piece->tensor);
    }
    return 0;
}

/* gradient + residual, and the residual that is left; as tg_add_residual and tg_store_residual. */
TG_DEVICE uint32_t quantize_sum(float *residual, const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *piece, float g,
                                float decay)
{
    float sum = g != g ? tg_quiet(g) : g + decay * *residual;
    if (!tg_is_finite(sum) && tg_is_finite(g)) {
        if (p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_residual(p, piece->tensor);
        }
        sum = sum != sum ? 0.0f : copysignf(TG_FLOAT_MAX, sum);
    }
    uint32_t bits = to_bits(u.quantize, sum);
    float left = sum - from_bits(u.quantize, bits);
    if (!tg_is_finite(left)) {
        if (p.nonfinite == TG_GPU_ERROR) {
            tg_refuse_residual(p, piece->tensor);
        }
        left = 0;
    }
    *residual = left;
    return bits;
}

TG_DEVICE void store_four(uint8_t *out, uint32_t len, const uint32_t bits[FOUR])
{
    if (len == 4) {
        *(uint4 *)(void *)out = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    } else {
        *(uint2 *)(void *)out = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
    }
}

/* Four elements that are loaded already. */
TG_DEVICE void encode_four(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *piece, uint8_t *out, float4 four,
                           float4 old, uint64_t place)
{
    float g[FOUR] = {admit(p, piece, four.x), admit(p, piece, four.y), admit(p, piece, four.z), admit(p, piece, four.w)};
    uint32_t bits[FOUR];
    if (u.planes == 0) {
        for (int i = 0; i < FOUR; i++) {
            bits[i] = to_bits(u.quantize, g[i]);
        }
    } else {
        float residual[FOUR] = {old.x, old.y, old.z, old.w}, decay = (float)u.feedback_params[0];
        for (int i = 0; i < FOUR; i++) {
            bits[i] = quantize_sum(&residual[i], p, u, piece, g[i], decay);
        }
        *(float4 *)(void *)(p.next + place) = make_float4(residual[0], residual[1], residual[2], residual[3]);
    }
    store_four(out, u.plain_len, bits);
}

/* Whole fours of a tile, BATCH of which are loaded before the first is used. */
TG_DEVICE void encode_fours(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *piece, uint8_t *out, uint64_t at,
                            uint32_t fours)
{
    enum { BATCH = TG_GPU_TILE / FOUR / THREADS };
    const float4 *from = (const float4 *)(const void *)(p.flat != nullptr
                                                            ? p.flat + u.flat_at + (at - u.lo)
                                                            : (const float *)p.grads[piece->tensor] + (at - piece->at));
    uint64_t place = u.residual_at + (at - u.lo);
    const float4 *now = (const float4 *)(const void *)(p.now + place);
    float4 g[BATCH], old[BATCH];
#pragma unroll
    for (uint32_t b = 0; b < BATCH; b++) {
        uint32_t i = b * THREADS + threadIdx.x;
        g[b] = i < fours ? __ldcs(from + i) : make_float4(0, 0, 0, 0);
        old[b] = i < fours && u.planes > 0 ? __ldcs(now + i) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (uint32_t b = 0; b < BATCH; b++) {
        uint32_t i = b * THREADS + threadIdx.x;
        if (i < fours) {
            encode_four(p, u, piece, out + (uint64_t)i * FOUR * u.plain_len, g[b], old[b], place + (uint64_t)i * FOUR);
        }
    }
}

/* ---- tiles --------------------------------------------------------------------------------------------------------------- */

__global__ static void encode_tile(tg_gpu_pass p)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    const tg_gpu_piece *piece = p.pieces + tile.piece;
    if (u.route != TG_GPU_ROUTE_PLAIN && u.route != TG_GPU_ROUTE_VERBATIM && u.route != TG_GPU_ROUTE_WORDS) {
        return;
    }
    uint32_t n = tile.n;
    uint64_t at = tile.at;
    uint8_t *out = u.route == TG_GPU_ROUTE_WORDS ? p.space.words + 4 * p.chunks[tile.chunk].element_at : p.space.out[tile.chunk];
    out += (uint64_t)tile.from * u.plain_len;
    uint32_t fours = tile.is_whole && suits_four(p, u, tile.unit, piece, at, out) ? n / FOUR : 0;
    if (fours > 0) {
        encode_fours(p, u, piece, out, at, fours);
    }
    for (uint32_t i = fours * FOUR + threadIdx.x; i < n; i += THREADS) {
        encode_one(p, u, tile.unit, out + (uint64_t)i * u.plain_len, at + i);
    }
}

void tg_gpu_encode_plain(const tg_gpu_pass *p)
{
    TG_LAUNCH(encode_tile, p->tile_n, THREADS, p->stream, *p);
}
