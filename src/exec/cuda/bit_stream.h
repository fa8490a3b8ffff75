/* Bytes of a chunk that a block reads as words or bits: copied to shared memory where they fit, which all but contrived frames do. */
#ifndef TG_EXEC_CUDA_BIT_STREAM_H
#define TG_EXEC_CUDA_BIT_STREAM_H

#include "exec/cuda/kernel.h"

/* In shared memory (IS_STAGED) or not. */
template <bool IS_STAGED> struct tg_bit_stream {
    const uint32_t *words; /* in shared memory */
    const uint8_t *bytes;
    uint32_t len;

    /* Four bytes from byte 4 w on, with zeros after the last. */
    __device__ __forceinline__ uint32_t word(uint32_t w) const
    {
        if (IS_STAGED) {
            return words[w];
        }
        uint32_t word = 0;
        for (uint32_t b = 0; b < 4 && 4 * w + b < len; b++) {
            word |= (uint32_t)bytes[4 * w + b] << 8 * b;
        }
        return word;
    }

    __device__ __forceinline__ uint32_t byte(uint32_t i) const
    {
        return IS_STAGED ? ((const uint8_t *)(const void *)words)[i] : bytes[i];
    }
};

/* Copies bytes to len / 4 + 2 words of shared memory, with zeros after the last. Aligned words are read, and so up to 3 bytes before and after
 * them. A thread's loads are under way together. All threads of a block. */
TG_DEVICE void tg_stage(uint32_t *words, const uint8_t *bytes, uint32_t len)
{
    enum { TOGETHER = 4 };
    const uint32_t skip = (uint32_t)((uintptr_t)bytes % 4), end = (skip + len + 3) / 4, word_n = len / 4 + 2;
    const uint32_t *aligned = (const uint32_t *)(const void *)(bytes - skip);
    TG_ROLL
    for (uint32_t from = threadIdx.x; from < word_n; from += TOGETHER * blockDim.x) {
        uint32_t low[TOGETHER], high[TOGETHER];
        TG_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++) {
            uint32_t w = from + k * blockDim.x;
            low[k] = w < end ? aligned[w] : 0;
            high[k] = w + 1 < end ? aligned[w + 1] : 0;
        }
        TG_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++) {
            uint32_t w = from + k * blockDim.x, left = len > 4 * w ? len - 4 * w : 0;
            uint32_t word = __funnelshift_r(low[k], high[k], 8 * skip);
            if (w < word_n) {
                words[w] = left >= 4 ? word : word & ((1u << 8 * left) - 1);
            }
        }
    }
    __syncthreads();
}

#endif
