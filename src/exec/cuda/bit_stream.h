/* Bytes of a chunk that a block reads as words or bits: copied to shared memory where they fit, which all but contrived frames do. */
#ifndef TG_EXEC_CUDA_BIT_STREAM_H
#define TG_EXEC_CUDA_BIT_STREAM_H

#include "exec/cuda/kernel.h"

/* In shared memory (IS_STAGED) or not. With IS_RICE the bits of words are inverted and in reverse order, so that the ones with which a
 * Rice code begins are leading zeros. */
template <bool IS_STAGED, bool IS_RICE> struct tg_bit_stream {
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
        return IS_RICE ? __brev(~word) : word;
    }

    __device__ __forceinline__ uint32_t byte(uint32_t i) const
    {
        return IS_STAGED ? ((const uint8_t *)(const void *)words)[i] : bytes[i];
    }
};

/* Word at / 4 of bytes in memory, with zeros after the last. Aligned words are read, and so up to 3 bytes before and after them. */
TG_DEVICE uint32_t tg_stream_load(const uint8_t *bytes, uint32_t len, uint32_t at)
{
    uint32_t skip = (uint32_t)((uintptr_t)bytes % 4), shift = 8 * skip, word = 0;
    const uint32_t *words = (const uint32_t *)(const void *)(bytes - skip) + at / 4;
    if (at < len) {
        uint32_t high = shift > 0 && at + 4 - skip < len ? words[1] : 0;
        word = __funnelshift_r(words[0], high, shift);
        word = len - at < 4 ? word & ((1u << 8 * (len - at)) - 1) : word;
    }
    return word;
}

/* Copies bytes to len / 4 + 2 words of shared memory. All threads of a block. */
template <bool IS_RICE> TG_DEVICE void tg_stage(uint32_t *words, const uint8_t *bytes, uint32_t len)
{
    for (uint32_t w = threadIdx.x; w < len / 4 + 2; w += blockDim.x) {
        uint32_t word = tg_stream_load(bytes, len, 4 * w);
        words[w] = IS_RICE ? __brev(~word) : word;
    }
    __syncthreads();
}

#endif
