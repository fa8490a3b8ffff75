/* Values of a fixed number of bytes in a body, or decoded from one. */
#ifndef TG_EXEC_CUDA_PLAIN_VALUES_H
#define TG_EXEC_CUDA_PLAIN_VALUES_H

#include "exec/cuda/halves.h"
#include "exec/cuda/kernel.h"
#include "exec/cuda/tables.h"

TG_DEVICE float tg_plain_value(const tg_gpu_unit &u, const uint8_t *bytes, uint64_t i)
{
    if (u.plain_len == 4) {
        return __uint_as_float(tg_load_word(bytes + 4 * i));
    }
    uint16_t half = (uint16_t)(bytes[2 * i] | (uint32_t)bytes[2 * i + 1] << 8);
    return u.quantize == TG_GPU_FP16 ? tg_fp16_to_float(half) : tg_bf16_to_float(half);
}

/* Of lossless coding: value i from the lower bytes of words, at any address, and the upper ones. */
TG_DEVICE float tg_split_value(const tg_gpu_unit &u, const uint8_t *lowers, const uint8_t *uppers, uint32_t i)
{
    const uint32_t rest = u.plain_len - 1, bits = 8 * u.plain_len;
    uint32_t word = (uint32_t)uppers[i] << (bits - 8);
    for (uint32_t b = 0; b < rest; b++) {
        word |= (uint32_t)lowers[i * rest + b] << 8 * b;
    }
    word = word >> 1 | word << (bits - 1);
    return u.plain_len == 4            ? __uint_as_float(word)
           : u.quantize == TG_GPU_FP16 ? tg_fp16_to_float((uint16_t)word)
                                       : tg_bf16_to_float((uint16_t)word);
}

/* Where the plain values of a chunk are. */
TG_DEVICE const uint8_t *tg_plain_bytes(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t number,
                                        const uint8_t *body)
{
    return u.coded ? p.space.words + 4 * p.chunks[number].element_at : body + p.space.views[number].symbols;
}

#endif
