/* XXH3 of a leaf of 4,096 bytes: what kernels need to compute it in vectors (hash.h). The library of xxHash computes all other
 * lengths, and is what tests compare with.
 *
 * Eight sums of 64 bits take stripes of 64 bytes with a secret that moves on by 8 bytes. They are scrambled after every 16
 * stripes, and the last stripe has a secret of its own. */
#ifndef TG_KERNELS_XXH3_H
#define TG_KERNELS_XXH3_H

#include <stdint.h>
#include <string.h>

enum {
    XXH3_STRIPE = 64,
    XXH3_BLOCK = 16,          /* stripes from one scrambling to the next */
    XXH3_SCRAMBLE = 192 - 64, /* places of the secret: for scrambling, */
    XXH3_LAST = 192 - 64 - 7, /* for the last stripe, */
    XXH3_MERGE = 11           /* and for the end */
};

#define XXH3_PRIME UINT32_C(0x9E3779B1)

static const uint64_t xxh3_secret_words[24] = {
    UINT64_C(0xbe4ba423396cfeb8), UINT64_C(0x1cad21f72c81017c), UINT64_C(0xdb979083e96dd4de),
    UINT64_C(0x1f67b3b7a4a44072), UINT64_C(0x78e5c0cc4ee679cb), UINT64_C(0x2172ffcc7dd05a82),
    UINT64_C(0x8e2443f7744608b8), UINT64_C(0x4c263a81e69035e0), UINT64_C(0xcb00c391bb52283c),
    UINT64_C(0xa32e531b8b65d088), UINT64_C(0x4ef90da297486471), UINT64_C(0xd8acdea946ef1938),
    UINT64_C(0x3f349ce33f76faa8), UINT64_C(0x1d4f0bc7c7bbdcf9), UINT64_C(0x3159b4cd4be0518a),
    UINT64_C(0x647378d9c97e9fc8), UINT64_C(0xc3ebd33483acc5ea), UINT64_C(0xeb6313faffa081c5),
    UINT64_C(0x49daf0b751dd0d17), UINT64_C(0x9e68d429265516d3), UINT64_C(0xfca1477d58be162b),
    UINT64_C(0xce31d07ad1b8f88f), UINT64_C(0x280416958f3acb45), UINT64_C(0x7e404bbbcafbd7af),
};

static const uint64_t xxh3_start[8] = {
    UINT64_C(0x00000000C2B2AE3D), UINT64_C(0x9E3779B185EBCA87), UINT64_C(0xC2B2AE3D27D4EB4F),
    UINT64_C(0x165667B19E3779F9), UINT64_C(0x85EBCA77C2B2AE63), UINT64_C(0x0000000085EBCA77),
    UINT64_C(0x27D4EB2F165667C5), UINT64_C(0x000000009E3779B1),
};

/* The secret from a byte on; on little-endian machines. */
static inline const uint8_t *xxh3_secret(size_t at)
{
    return (const uint8_t *)xxh3_secret_words + at;
}

/* The hash of a leaf from its eight sums. */
static inline uint64_t xxh3_end(const uint64_t sums[8])
{
    uint64_t hash = UINT64_C(4096) * UINT64_C(0x9E3779B185EBCA87);
    for (int i = 0; i < 8; i += 2) {
        uint64_t secret[2];
        memcpy(secret, xxh3_secret(XXH3_MERGE + 8 * (size_t)i), sizeof secret);
        __extension__ typedef unsigned __int128 wide;
        wide product = (wide)(sums[i] ^ secret[0]) * (sums[i + 1] ^ secret[1]);
        hash += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    hash ^= hash >> 37;
    hash *= UINT64_C(0x165667919E3779F9);
    return hash ^ hash >> 32;
}

#endif
