/* Bits into a mask at any position. */
#ifndef TG_KERNELS_MASK_BITS_H
#define TG_KERNELS_MASK_BITS_H

#include <stddef.h>
#include <stdint.h>

/* Sets bits at + i of the mask where bit i of `bits` is set. The word after the last set bit is not accessed. */
static inline void set_mask_bits(uint64_t *mask, size_t at, uint64_t bits)
{
    uint64_t beyond = at % 64 > 0 ? bits >> (64 - at % 64) : 0;
    mask[at / 64] |= bits << at % 64;
    mask[at / 64 + (beyond != 0 ? 1 : 0)] |= beyond;
}

#endif
