/* Bytes of a chunk that a block reads as bits: copied to shared memory where they fit, which all but contrived frames do. */
#ifndef TG_EXEC_CUDA_BIT_STREAM_H
#define TG_EXEC_CUDA_BIT_STREAM_H

#include "exec/cuda/kernel.h"

enum { TG_STREAM_WORDS = 2048 };

typedef struct tg_bit_stream {
    const uint32_t *words; /* NULL: not copied */
    const uint8_t *bytes;
    uint32_t len;
} tg_bit_stream;

/* Up to four bytes from byte `at` on, with zeros after the last. */
TG_DEVICE uint32_t tg_stream_word(const uint8_t *bytes, uint32_t len, uint32_t at)
{
    uint32_t word = 0;
    for (uint32_t b = 0; b < 4 && at + b < len; b++) {
        word |= (uint32_t)bytes[at + b] << 8 * b;
    }
    return word;
}

/* The same, for all words of bytes in memory at once: aligned words are read, and so up to 3 bytes before and after them. */
TG_DEVICE uint32_t tg_stream_load(const uint8_t *bytes, uint32_t len, uint32_t at)
{
    uint32_t skip = (uint32_t)((uintptr_t)bytes % 4), shift = 8 * skip, word = 0;
    const uint32_t *words = (const uint32_t *)(const void *)(bytes - skip) + at / 4;
    if (at < len) {
        uint32_t high = shift > 0 && at + 4 - skip < len ? words[1] : 0;
        word = shift == 0 ? words[0] : words[0] >> shift | high << (32 - shift);
        word = len - at < 4 ? word & ((1u << 8 * (len - at)) - 1) : word;
    }
    return word;
}

/* All threads of a block; `words` has TG_STREAM_WORDS. */
TG_DEVICE tg_bit_stream tg_stream_open(uint32_t *words, const uint8_t *bytes, uint32_t len)
{
    bool fits = len <= (TG_STREAM_WORDS - 2) * 4;
    for (uint32_t w = threadIdx.x; fits && w < len / 4 + 2; w += blockDim.x) {
        words[w] = tg_stream_load(bytes, len, 4 * w);
    }
    __syncthreads();
    return {fits ? words : nullptr, bytes, len};
}

/* 32 bits from bit `at` on, which is at most the first after the last byte; zeros after the last. */
TG_DEVICE uint32_t tg_stream_bits(const tg_bit_stream &s, uint32_t at)
{
    uint32_t w = at / 32, shift = at % 32;
    uint32_t low = s.words != nullptr ? s.words[w] : tg_stream_word(s.bytes, s.len, 4 * w);
    if (shift == 0) {
        return low;
    }
    uint32_t high = s.words != nullptr ? s.words[w + 1] : tg_stream_word(s.bytes, s.len, 4 * w + 4);
    return low >> shift | high << (32 - shift);
}

#endif
