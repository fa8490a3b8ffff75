/* Prefix codes on the GPU: what the encoder and the decoder of huffman share. Only pack_huffman*.cu include it. */
#ifndef TG_EXEC_CUDA_PACK_PREFIX_H
#define TG_EXEC_CUDA_PACK_PREFIX_H

#include "exec/cuda/pack.h"
#include "quantize/shapes.h"

enum { TG_PREFIX_BITS = 12, TG_PREFIX_SLOT_N = 1 << TG_PREFIX_BITS };
enum { TG_FORM_COUNTS = 1, TG_FORM_MODEL = 2 };

/* ---- codes of the quantizer's model ------------------------------------------------------------------------------------------ */

/* The code lengths of all shapes: four bits each. Kernels get them as a parameter. */
typedef struct tg_prefix_models {
    uint8_t lengths[TG_SHAPE_FORMAT_N][TG_SHAPE_N][128];
} tg_prefix_models;

static inline tg_prefix_models tg_prefix_models_pack(void)
{
    tg_prefix_models m = {};
    for (int format = 0; format < TG_SHAPE_FORMAT_N; format++) {
        for (int row = 0; row < TG_SHAPE_N; row++) {
            const char *digits = tg_shapes[row].format[format].lengths;
            for (int s = 0; digits[s] != 0; s++) {
                int length = digits[s] <= '9' ? digits[s] - '0' : digits[s] - 'a' + 10;
                m.lengths[format][row][s / 2] = (uint8_t)(m.lengths[format][row][s / 2] | length << s % 2 * 4);
            }
        }
    }
    return m;
}

/* The lengths that a chunk's quantizer proposes, packed; NULL: none. `side` is what travels with its bucket. */
TG_DEVICE const uint8_t *tg_prefix_model_of(const tg_prefix_models &m, const tg_gpu_unit &u, const uint8_t *side)
{
    if (u.symbol_params[0] != 1.0 || (u.quantize != TG_GPU_FP4 && u.quantize != TG_GPU_FP8)) {
        return nullptr;
    }
    uint32_t format = u.quantize == TG_GPU_FP4      ? (uint32_t)TG_SHAPE_FP4
                      : u.quantize_params[0] == 0.0 ? (uint32_t)TG_SHAPE_FP8
                                                    : (uint32_t)TG_SHAPE_FP8E4M3;
    uint32_t row = side[4];
    return row < TG_SHAPE_N ? m.lengths[format][row] : nullptr;
}

/* ---- canonical codes --------------------------------------------------------------------------------------------------------- */

/* A code: its length in the lower byte, its bits above, the first bit lowest; 0: no code. All threads of a block make those of all
 * symbols; the caller synchronises before and after. Returns whether the code is complete, the same for all. Symbols are counted by
 * length in groups, a warp each: a code's number is that of symbols of its length before it, and of all shorter codes. */
TG_DEVICE bool tg_prefix_make_codes(uint32_t *codes, const uint8_t *lengths, uint32_t base)
{
    enum { GROUPS = TG_PACK_BASE / TG_WARP };
    __shared__ uint32_t before[TG_PREFIX_BITS + 1][GROUPS], totals[TG_PREFIX_BITS + 1], first[TG_PREFIX_BITS + 1];
    for (uint32_t i = threadIdx.x; i < (TG_PREFIX_BITS + 1) * GROUPS; i += blockDim.x) {
        before[i / GROUPS][i % GROUPS] = 0;
    }
    __syncthreads();
    uint32_t groups = (base + TG_WARP - 1) / TG_WARP, lane = threadIdx.x % TG_WARP;
    for (uint32_t g = threadIdx.x / TG_WARP; g < groups; g += blockDim.x / TG_WARP) {
        uint32_t s = g * TG_WARP + lane, length = s < base ? lengths[s] : 0,
                 same = __match_any_sync(TG_ALL_LANES, length);
        uint32_t rank = (uint32_t)__popc(same & ((1u << lane) - 1));
        if (rank == 0) {
            before[length][g] = (uint32_t)__popc(same);
        }
        if (s < base) {
            codes[s] = rank;
        }
    }
    __syncthreads();
    if (threadIdx.x <= TG_PREFIX_BITS) {
        uint32_t sum = 0;
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t here = before[threadIdx.x][g];
            before[threadIdx.x][g] = sum;
            sum += here;
        }
        totals[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x <= TG_PREFIX_BITS) {
        uint32_t sum = 0;
        for (uint32_t shorter = 1; shorter < threadIdx.x; shorter++) {
            sum += totals[shorter] << (threadIdx.x - shorter);
        }
        first[threadIdx.x] = sum;
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < base; s += blockDim.x) {
        uint32_t length = lengths[s], number = first[length] + before[length][s / TG_WARP] + codes[s];
        codes[s] = length == 0 ? 0 : length | __brev(number) >> (32 - length) << 8;
    }
    return totals[TG_PREFIX_BITS] + first[TG_PREFIX_BITS] == TG_PREFIX_SLOT_N;
}

#endif
