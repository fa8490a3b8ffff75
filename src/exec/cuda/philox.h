/* Philox4x32-7 and the draws of random rounding on the GPU, with the results of base/philox.c and kernels/draws.c. */
#ifndef TG_EXEC_CUDA_PHILOX_H
#define TG_EXEC_CUDA_PHILOX_H

#include "exec/cuda/kernel.h"

enum { TG_DRAWS_UPPER = 1, TG_DRAWS_LOWER = 2, TG_DRAWS_EACH = 8 }; /* halves of 32 random bits; draws of a block */

/* All 64 bits of a product, by one instruction: compilers add the zeros of a wider product. */
TG_DEVICE uint64_t tg_times_wide(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
#else
    return (uint64_t)a * b;
#endif
}

TG_DEVICE uint4 tg_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    TG_UNROLL
    for (int round = 0; round < 7; round++) {
        uint64_t p0 = tg_times_wide(c0, 0xD2511F53u), p1 = tg_times_wide(c2, 0xCD9E8D57u);
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* The key of a unit's stream at a step; `who` is 0 for the stream that all ranks share, and rank + 1 for a rank's own. */
TG_DEVICE uint64_t tg_stream_key(uint64_t seed, uint64_t step, uint32_t unit, uint32_t who)
{
    uint4 o = tg_philox(seed, (uint32_t)step, (uint32_t)(step >> 32), unit, who);
    return o.x | (uint64_t)o.y << 32;
}

/* Eight draws of 16 bits, numbers 8 * block to 8 * block + 7 of a sequence. */
TG_DEVICE uint4 tg_draw_block(uint64_t key, uint64_t block, uint32_t half, uint32_t other)
{
    return tg_philox(key, (uint32_t)block, (uint32_t)(block >> 32), half, other);
}

/* One half of the random bits of value number `at`. */
TG_DEVICE uint32_t tg_draw_half(uint64_t key, uint64_t at, uint32_t half, uint32_t other)
{
    uint4 o = tg_draw_block(key, at / TG_DRAWS_EACH, half, other);
    unsigned place = (unsigned)(at % TG_DRAWS_EACH);
    uint32_t word = place < 2 ? o.x : place < 4 ? o.y : place < 6 ? o.z : o.w;
    return word >> place % 2 * 16 & 0xffffu;
}

/* All random bits of value number `at`. */
TG_DEVICE uint32_t tg_draw_bits(uint64_t key, uint64_t at, uint32_t other)
{
    return tg_draw_half(key, at, TG_DRAWS_UPPER, other) << 16 | tg_draw_half(key, at, TG_DRAWS_LOWER, other);
}

/* The number r in [0, 1) that 32 random bits stand for. */
TG_DEVICE float tg_draw_unit(uint32_t bits)
{
    int surplus = bits >> 24 == 0 ? 0 : 8 - __clz((int)bits); /* of its bits beyond the 24 of a float */
    return (float)(bits >> surplus << surplus) * 0x1p-32f;
}

#endif
