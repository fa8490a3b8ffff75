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
 * symbols; the caller synchronises before and after. `first` has space for TG_PREFIX_BITS + 1 numbers. Returns whether the code is
 * complete, the same for all. */
TG_DEVICE bool tg_prefix_make_codes(uint32_t *codes, uint32_t *first, const uint8_t *lengths, uint32_t base)
{
    if (threadIdx.x <= TG_PREFIX_BITS) {
        uint32_t sum = 0;
        for (uint32_t s = 0; s < base; s++) {
            sum += lengths[s] > 0 && lengths[s] < threadIdx.x ? 1u << (threadIdx.x - lengths[s]) : 0;
        }
        first[threadIdx.x] = sum;
    }
    __syncthreads();
    uint32_t last = 0;
    for (uint32_t s = threadIdx.x; s < base; s += blockDim.x) {
        uint32_t length = lengths[s], number = first[length];
        for (uint32_t other = 0; other < s; other++) {
            number += lengths[other] == length ? 1 : 0;
        }
        uint32_t reversed = length == 0 ? 0 : __brev(number) >> (32 - length);
        codes[s] = length == 0 ? 0 : length | reversed << 8;
        last += length == TG_PREFIX_BITS ? 1 : 0;
    }
    return (uint32_t)tg_sum_block(last) + first[TG_PREFIX_BITS] == TG_PREFIX_SLOT_N;
}

#endif
