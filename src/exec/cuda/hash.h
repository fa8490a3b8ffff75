/* The hash of frames (docs/format.md, H) on the GPU: XXH3 of leaves of 4 KiB, a warp each, in memory or in shared memory. hash.cu and
 * kernels that hash what they write or check include it.
 *
 * Within a block of 1,024 bytes the eight sums of XXH3 take stripes in any order, so the lanes of a warp share the stripes.
 * Scrambling after a block then needs all of them. */
#ifndef TG_EXEC_CUDA_HASH_H
#define TG_EXEC_CUDA_HASH_H

#include "exec/cuda/kernel.h"

#define TG_LEAF_BYTES 4096u

enum { TG_XXH_STRIPE = 64, TG_XXH_BLOCK = 1024, TG_XXH_SUMS = 8, TG_XXH_GROUPS = 4 };

#define TG_XXH_PRIME_1 0x9E3779B185EBCA87ull
#define TG_XXH_PRIME_2 0xC2B2AE3D27D4EB4Full
#define TG_XXH_PRIME_3 0x165667B19E3779F9ull
#define TG_XXH_PRIME32_1 0x9E3779B1ull
#define TG_XXH_AVALANCHE 0x165667919E3779F9ull
#define TG_XXH_RRMXMX 0x9FB21C651E98DF25ull

/* The default secret of XXH3, as little-endian words. */
__device__ static const uint64_t tg_xxh_secret[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull, 0x78e5c0cc4ee679cbull,
    0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull, 0xcb00c391bb52283cull, 0xa32e531b8b65d088ull,
    0x4ef90da297486471ull, 0xd8acdea946ef1938ull, 0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull,
    0x647378d9c97e9fc8ull, 0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};

__device__ static const uint64_t tg_xxh_start[TG_XXH_SUMS] = {
    0x00000000C2B2AE3Dull, 0x9E3779B185EBCA87ull, 0xC2B2AE3D27D4EB4Full, 0x165667B19E3779F9ull,
    0x85EBCA77C2B2AE63ull, 0x0000000085EBCA77ull, 0x27D4EB2F165667C5ull, 0x000000009E3779B1ull,
};

TG_DEVICE uint64_t tg_xxh_secret_at(unsigned at)
{
    unsigned shift = at % 8 * 8;
    uint64_t low = tg_xxh_secret[at / 8];
    return shift == 0 ? low : low >> shift | tg_xxh_secret[at / 8 + 1] << (64 - shift);
}

TG_DEVICE uint64_t tg_xxh_fold(uint64_t a, uint64_t b)
{
    return a * b ^ __umul64hi(a, b);
}

TG_DEVICE uint64_t tg_xxh_avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= TG_XXH_AVALANCHE;
    return hash ^ hash >> 32;
}

TG_DEVICE uint64_t tg_xxh_avalanche_short(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= TG_XXH_PRIME_2;
    hash ^= hash >> 29;
    hash *= TG_XXH_PRIME_3;
    return hash ^ hash >> 32;
}

TG_DEVICE uint64_t tg_xxh_rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

TG_DEVICE uint64_t tg_xxh_swap(uint64_t x)
{
    uint64_t swapped = 0;
    for (int i = 0; i < 8; i++) {
        swapped = swapped << 8 | (x >> 8 * i & 0xff);
    }
    return swapped;
}

/* ---- up to 240 bytes: one lane ------------------------------------------------------------------------------------------ */

TG_DEVICE uint64_t tg_xxh_load(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

TG_DEVICE uint64_t tg_xxh_mix16(const uint8_t *at, unsigned secret)
{
    return tg_xxh_fold(tg_xxh_load(at, 8) ^ tg_xxh_secret_at(secret),
                       tg_xxh_load(at + 8, 8) ^ tg_xxh_secret_at(secret + 8));
}

TG_DEVICE uint64_t tg_hash_tiny(const uint8_t *at, unsigned len)
{
    if (len == 0) {
        return tg_xxh_avalanche_short(tg_xxh_secret_at(56) ^ tg_xxh_secret_at(64));
    }
    if (len <= 3) {
        uint32_t combined = (uint32_t)at[0] << 16 | (uint32_t)at[len / 2] << 24 | at[len - 1] | len << 8;
        return tg_xxh_avalanche_short(combined ^
                                      (uint64_t)((uint32_t)tg_xxh_secret_at(0) ^ (uint32_t)tg_xxh_secret_at(4)));
    }
    if (len <= 8) {
        uint64_t value = tg_xxh_load(at + len - 4, 4) + (tg_xxh_load(at, 4) << 32);
        uint64_t h = value ^ (tg_xxh_secret_at(8) ^ tg_xxh_secret_at(16));
        h ^= tg_xxh_rotate(h, 49) ^ tg_xxh_rotate(h, 24);
        h *= TG_XXH_RRMXMX;
        h ^= (h >> 35) + len;
        h *= TG_XXH_RRMXMX;
        return h ^ h >> 28;
    }
    uint64_t low = tg_xxh_load(at, 8) ^ tg_xxh_secret_at(24) ^ tg_xxh_secret_at(32);
    uint64_t high = tg_xxh_load(at + len - 8, 8) ^ tg_xxh_secret_at(40) ^ tg_xxh_secret_at(48);
    return tg_xxh_avalanche(len + tg_xxh_swap(low) + high + tg_xxh_fold(low, high));
}

TG_DEVICE uint64_t tg_hash_short(const uint8_t *at, unsigned len)
{
    if (len <= 16) {
        return tg_hash_tiny(at, len);
    }
    uint64_t sum = len * TG_XXH_PRIME_1;
    if (len <= 128) {
        for (unsigned i = (len - 1) / 32 + 1; i > 0; i--) {
            sum += tg_xxh_mix16(at + 16 * (i - 1), 32 * (i - 1)) + tg_xxh_mix16(at + len - 16 * i, 32 * (i - 1) + 16);
        }
        return tg_xxh_avalanche(sum);
    }
    for (unsigned i = 0; i < 8; i++) {
        sum += tg_xxh_mix16(at + 16 * i, 16 * i);
    }
    sum = tg_xxh_avalanche(sum);
    for (unsigned i = 8; i < len / 16; i++) {
        sum += tg_xxh_mix16(at + 16 * i, 16 * (i - 8) + 3);
    }
    return tg_xxh_avalanche(sum + tg_xxh_mix16(at + len - 16, 136 - 17));
}

/* ---- 241 bytes and more: a warp ----------------------------------------------------------------------------------------------------- */

/* What a stripe adds to this lane's sum; `word` is the lane's word of it, that is its word number lane % 8. */
TG_DEVICE uint64_t tg_xxh_term(uint64_t word, uint64_t secret)
{
    uint64_t keyed = word ^ secret;
    return (keyed & 0xffffffffu) * (keyed >> 32) + __shfl_xor_sync(TG_ALL_LANES, word, 1);
}

TG_DEVICE uint64_t tg_xxh_across(uint64_t sum)
{
    sum += __shfl_xor_sync(TG_ALL_LANES, sum, 8);
    return sum + __shfl_xor_sync(TG_ALL_LANES, sum, 16);
}

/* The hash of a leaf from the sums of all lanes. */
TG_DEVICE uint64_t tg_xxh_end(uint64_t sum, unsigned len)
{
    uint64_t own = sum ^ tg_xxh_secret_at(11 + 8 * (threadIdx.x % TG_XXH_SUMS)),
             other = __shfl_xor_sync(TG_ALL_LANES, own, 1);
    uint64_t folded = tg_xxh_fold(own, other);
    folded += __shfl_xor_sync(TG_ALL_LANES, folded, 2);
    folded += __shfl_xor_sync(TG_ALL_LANES, folded, 4);
    return tg_xxh_avalanche(len * TG_XXH_PRIME_1 + folded);
}

TG_DEVICE uint64_t tg_xxh_scramble(uint64_t sum)
{
    sum ^= sum >> 47;
    sum ^= tg_xxh_secret_at(192 - 64 + 8 * (threadIdx.x % TG_XXH_SUMS));
    return sum * TG_XXH_PRIME32_1;
}

/* ---- a whole leaf: a warp, 16 bytes a lane at a time --------------------------------------------------------------------- */

/* Lane l has words 2 (l % 4) and the next of stripes l / 4 and l / 4 + 8 of each block: 16 bytes that need no other lane's. */
enum { TG_XXH_BLOCKS = 4, TG_XXH_VECTORS = 8 };

/* Vector k of a lane, of those of a leaf; `at` is aligned to 16 bytes. */
TG_DEVICE uint4 tg_leaf_vector(const uint4 *at, int k)
{
    return at[k * (int)TG_WARP + (int)(threadIdx.x % TG_WARP)];
}

/* The sum of v over the lanes that have the same words, of one of two blocks or words: the upper one in lanes with the bit `by`. */
TG_DEVICE uint64_t tg_xxh_halve(uint64_t lower, uint64_t upper, unsigned by)
{
    bool is_upper = (threadIdx.x & by) != 0;
    uint64_t other = __shfl_xor_sync(TG_ALL_LANES, is_upper ? lower : upper, (int)by);
    return (is_upper ? upper : lower) + other;
}

/* What stripes add to sums 2 (lane % 4) and the next, block by block. */
TG_DEVICE void tg_xxh_add(uint64_t sums[TG_XXH_BLOCKS][2], const uint4 vectors[TG_XXH_VECTORS])
{
    unsigned lane = threadIdx.x % TG_WARP, first = lane / 4 + 2 * (lane % 4);
    uint64_t keys[2][2] = {{tg_xxh_secret[first], tg_xxh_secret[first + 1]},
                           {tg_xxh_secret[first + 8], tg_xxh_secret[first + 9]}};
    unsigned last = 192 - 64 - 7 + 16 * (lane % 4);
    TG_UNROLL
    for (int k = 0; k < TG_XXH_VECTORS; k++) {
        uint4 v = vectors[k];
        uint64_t words[2] = {v.x | (uint64_t)v.y << 32, v.z | (uint64_t)v.w << 32},
                 key[2] = {keys[k % 2][0], keys[k % 2][1]};
        if (k == TG_XXH_VECTORS - 1 && lane / 4 == 7) { /* the last stripe has a secret of its own */
            key[0] = tg_xxh_secret_at(last);
            key[1] = tg_xxh_secret_at(last + 8);
        }
        TG_UNROLL
        for (int c = 0; c < 2; c++) {
            uint64_t keyed = words[c] ^ key[c], product = (keyed & 0xffffffffu) * (keyed >> 32) + words[1 - c];
            sums[k / 2][c] = k % 2 == 0 ? product : sums[k / 2][c] + product;
        }
    }
}

/* XXH3 of a whole leaf from its vectors. All lanes of a warp take part and get the result. */
TG_DEVICE uint64_t tg_hash_vectors(const uint4 vectors[TG_XXH_VECTORS])
{
    unsigned lane = threadIdx.x % TG_WARP, word = 2 * (lane % 4) + (lane / 4) % 2;
    uint64_t sums[TG_XXH_BLOCKS][2];
    tg_xxh_add(sums, vectors);
    uint64_t of_two[2][2];
    TG_UNROLL
    for (int c = 0; c < 2; c++) { /* blocks 0 and 1, or 2 and 3 */
        of_two[0][c] = tg_xxh_halve(sums[0][c], sums[2][c], 16);
        of_two[1][c] = tg_xxh_halve(sums[1][c], sums[3][c], 16);
    }
    uint64_t low = tg_xxh_halve(of_two[0][0], of_two[1][0], 8), high = tg_xxh_halve(of_two[0][1], of_two[1][1], 8);
    uint64_t total = tg_xxh_halve(low, high, 4), sum = tg_xxh_start[word];
    TG_UNROLL
    for (unsigned b = 0; b < TG_XXH_BLOCKS; b++) { /* block b is in lanes with bit 16 for b / 2, and bit 8 for b % 2 */
        sum += __shfl_sync(TG_ALL_LANES, total, (int)(b / 2 * 16 + b % 2 * 8 + lane % 8));
        if (b + 1 < TG_XXH_BLOCKS) {
            sum ^= sum >> 47;
            sum ^= tg_xxh_secret[16 + word];
            sum *= TG_XXH_PRIME32_1;
        }
    }
    uint64_t own = sum ^ tg_xxh_secret_at(11 + 8 * word), other = __shfl_xor_sync(TG_ALL_LANES, own, 4);
    uint64_t folded = tg_xxh_fold(own, other);
    folded += __shfl_xor_sync(TG_ALL_LANES, folded, 1);
    folded += __shfl_xor_sync(TG_ALL_LANES, folded, 2);
    return tg_xxh_avalanche(TG_LEAF_BYTES * TG_XXH_PRIME_1 + folded);
}

/* The vectors of a whole leaf at any address: all loads are under way before the first is used. */
TG_DEVICE void tg_leaf_load(uint4 vectors[TG_XXH_VECTORS], const uint8_t *at)
{
    if ((uintptr_t)at % 16 == 0) {
        TG_UNROLL
        for (int k = 0; k < TG_XXH_VECTORS; k++) {
            vectors[k] = tg_leaf_vector((const uint4 *)(const void *)at, k);
        }
    } else {
        TG_UNROLL
        for (int k = 0; k < TG_XXH_VECTORS; k++) {
            const uint8_t *here = at + 16 * (unsigned)(k * (int)TG_WARP + (int)(threadIdx.x % TG_WARP));
            uint64_t low = tg_load64(here), high = tg_load64(here + 8);
            vectors[k] = make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
        }
    }
}

TG_DEVICE uint64_t tg_hash_whole(const uint8_t *at)
{
    uint4 vectors[TG_XXH_VECTORS];
    tg_leaf_load(vectors, at);
    return tg_hash_vectors(vectors);
}

/* XXH3 of 241 to 4,096 bytes. All lanes of a warp take part and get the result. */
TG_DEVICE uint64_t tg_hash_long(const uint8_t *at, unsigned len)
{
    unsigned lane = threadIdx.x % TG_WARP, sum_of = lane % TG_XXH_SUMS, group = lane / TG_XXH_SUMS;
    unsigned blocks = (len - 1) / TG_XXH_BLOCK;
    uint64_t sum = tg_xxh_start[sum_of];
    for (unsigned b = 0; b <= blocks; b++) {
        unsigned stripes =
            b < blocks ? TG_XXH_BLOCK / TG_XXH_STRIPE : (len - 1 - TG_XXH_BLOCK * blocks) / TG_XXH_STRIPE;
        uint64_t added = 0;
        for (unsigned s = 0; s < stripes; s += TG_XXH_GROUPS) {
            unsigned stripe = s + group;
            bool has = stripe < stripes;
            uint64_t word = has ? tg_load64(at + TG_XXH_BLOCK * b + TG_XXH_STRIPE * stripe + 8 * sum_of) : 0;
            uint64_t part =
                tg_xxh_term(word, tg_xxh_secret_at(8 * stripe % (TG_XXH_BLOCK / TG_XXH_STRIPE * 8) + 8 * sum_of));
            added += has ? part : 0;
        }
        sum += tg_xxh_across(added);
        if (b < blocks) {
            sum = tg_xxh_scramble(sum);
        }
    }
    sum += tg_xxh_term(tg_load64(at + len - TG_XXH_STRIPE + 8 * sum_of), tg_xxh_secret_at(192 - 64 - 7 + 8 * sum_of));
    return tg_xxh_end(sum, len);
}

TG_DEVICE uint64_t tg_hash_leaf(const uint8_t *at, unsigned len)
{
    return len == TG_LEAF_BYTES ? tg_hash_whole(at) : len > 240 ? tg_hash_long(at, len) : tg_hash_short(at, len);
}

#endif
