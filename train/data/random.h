/* Counter-based random numbers: the nth number of a key is a pure function of both. Uses the output function of splitmix64
 * (Steele, Lea, Flood 2014). */
#ifndef TR_DATA_RANDOM_H
#define TR_DATA_RANDOM_H

#include <stdint.h>

/* The use of a key, so that two uses of the same seed are independent. */
typedef enum tr_random_use {
    TR_RANDOM_ORDER = 1,
    TR_RANDOM_OFFSET,
    TR_RANDOM_AUGMENT,
    TR_RANDOM_GLYPH,
    TR_RANDOM_NOISE
} tr_random_use;

static inline uint64_t tr_random_mix(uint64_t key, uint64_t number)
{
    uint64_t z = (key ^ number) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The key for a use, a seed and a number such as an epoch. */
static inline uint64_t tr_random_key(tr_random_use use, uint64_t seed, uint64_t number)
{
    return tr_random_mix(tr_random_mix(tr_random_mix(0, (uint64_t)use), seed), number);
}

/* [0, n), n below 2^32. The bias is below n / 2^32, which is negligible here. */
static inline uint32_t tr_random_below(uint64_t bits, uint32_t n)
{
    return (uint32_t)((bits >> 32) * n >> 32);
}

/* [-1, 1), exact in 53 bits. */
static inline double tr_random_signed(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-52 - 1;
}

#endif
