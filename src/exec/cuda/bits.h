/* Bits of packed symbols at any place. */
#ifndef TG_EXEC_CUDA_BITS_H
#define TG_EXEC_CUDA_BITS_H

#include "exec/cuda/kernel.h"

/* `n` bits, at most 48, from bit `from` of a byte on. Reads no words but those that have them. */
TG_DEVICE uint64_t tg_load_bits(const uint8_t *at, unsigned from, unsigned n)
{
    unsigned skip = (unsigned)((uintptr_t)at % 8), shift = skip * 8 + from;
    const uint64_t *words = (const uint64_t *)(const void *)(at - skip);
    uint64_t bits = words[0] >> shift;
    if (shift + n > 64) {
        bits |= words[1] << (64 - shift);
    }
    return bits & ((1ull << n) - 1);
}

#endif
