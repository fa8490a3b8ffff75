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

/* ---- up to 240 bytes ------------------------------------------------------------------------------------------------------- */

#define TG_HASH_OF_NOTHING 0x2D06800538D394C2ull

TG_DEVICE uint64_t tg_xxh_load(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

/* 1 to 16 bytes: one lane. */
TG_DEVICE uint64_t tg_hash_tiny(const uint8_t *at, unsigned len)
{
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

/* 17 to 240 bytes: a warp, of which a lane has one product. Of more than 128 bytes the first eight are mixed before the others. */
TG_DEVICE uint64_t tg_hash_short(const uint8_t *at, unsigned len)
{
    unsigned lane = threadIdx.x % TG_WARP, n = len / 16 + 1, from = lane + 1 < n ? 16 * lane : len - 16;
    unsigned secret = lane < 8 ? 16 * lane : lane + 1 < n ? 16 * (lane - 8) + 3 : 136 - 17;
    if (len <= 128) { /* from both ends */
        n = 2 * ((len - 1) / 32 + 1);
        from = lane % 2 == 0 ? 8 * lane : len - 8 * (lane + 1);
    }
    uint64_t sum = 0;
    if (lane < n) {
        sum = tg_xxh_fold(tg_xxh_load(at + from, 8) ^ tg_xxh_secret_at(secret),
                          tg_xxh_load(at + from + 8, 8) ^ tg_xxh_secret_at(secret + 8));
    }
    TG_UNROLL
    for (int by = 1; by < 8; by *= 2) {
        sum += __shfl_xor_sync(TG_ALL_LANES, sum, by);
    }
    uint64_t hash = tg_xxh_avalanche(len * TG_XXH_PRIME_1 + __shfl_sync(TG_ALL_LANES, sum, 0));
    uint64_t others = __shfl_sync(TG_ALL_LANES, sum, 8);
    return len <= 128 ? hash : tg_xxh_avalanche(hash + others);
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

/* What the stripes of a block add to sums 2 (lane % 4) and the next, from this lane's two vectors of it. */
TG_DEVICE void tg_xxh_add(uint64_t sums[2], const uint4 vectors[2], bool is_last_block)
{
    unsigned lane = threadIdx.x % TG_WARP, first = lane / 4 + 2 * (lane % 4);
    unsigned last = 192 - 64 - 7 + 16 * (lane % 4);
    TG_UNROLL
    for (unsigned k = 0; k < 2; k++) {
        uint4 v = vectors[k];
        uint64_t words[2] = {v.x | (uint64_t)v.y << 32, v.z | (uint64_t)v.w << 32},
                 key[2] = {tg_xxh_secret[first + 8 * k], tg_xxh_secret[first + 8 * k + 1]};
        if (k == 1 && is_last_block && lane / 4 == 7) { /* the last stripe has a secret of its own */
            key[0] = tg_xxh_secret_at(last);
            key[1] = tg_xxh_secret_at(last + 8);
        }
        TG_UNROLL
        for (int c = 0; c < 2; c++) {
            uint64_t keyed = words[c] ^ key[c], product = (keyed & 0xffffffffu) * (keyed >> 32) + words[1 - c];
            sums[c] = k == 0 ? product : sums[c] + product;
        }
    }
}

/* The word whose sum a lane has when tg_xxh_halve has shared the words of lane % 4 out. */
TG_DEVICE unsigned tg_xxh_word(void)
{
    unsigned lane = threadIdx.x % TG_WARP;
    return 2 * (lane % 4) + (lane / 4) % 2;
}

/* XXH3 of a whole leaf from what its blocks add to the sum of tg_xxh_word. Eight lanes have a leaf; all of a warp take part. */
TG_DEVICE uint64_t tg_hash_blocks(const uint64_t added[TG_XXH_BLOCKS])
{
    unsigned word = tg_xxh_word();
    uint64_t sum = tg_xxh_start[word];
    TG_UNROLL
    for (unsigned b = 0; b < TG_XXH_BLOCKS; b++) {
        sum += added[b];
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

/* XXH3 of a whole leaf from its vectors. All lanes of a warp take part and get the result. */
TG_DEVICE uint64_t tg_hash_vectors(const uint4 vectors[TG_XXH_VECTORS])
{
    uint64_t sums[TG_XXH_BLOCKS][2], of_two[2][2], added[TG_XXH_BLOCKS];
    TG_UNROLL
    for (int b = 0; b < TG_XXH_BLOCKS; b++) {
        tg_xxh_add(sums[b], vectors + 2 * b, b + 1 == TG_XXH_BLOCKS);
    }
    TG_UNROLL
    for (int c = 0; c < 2; c++) { /* blocks 0 and 1, or 2 and 3 */
        of_two[0][c] = tg_xxh_halve(sums[0][c], sums[2][c], 16);
        of_two[1][c] = tg_xxh_halve(sums[1][c], sums[3][c], 16);
    }
    uint64_t low = tg_xxh_halve(of_two[0][0], of_two[1][0], 8), high = tg_xxh_halve(of_two[0][1], of_two[1][1], 8);
    uint64_t total = tg_xxh_halve(low, high, 4);
    TG_UNROLL
    for (unsigned b = 0; b < TG_XXH_BLOCKS; b++) { /* block b is in lanes with bit 16 for b / 2, and bit 8 for b % 2 */
        added[b] = __shfl_sync(TG_ALL_LANES, total, (int)(b / 2 * 16 + b % 2 * 8 + threadIdx.x % 8));
    }
    return tg_hash_blocks(added);
}

/* What half of a whole leaf, two of its blocks, adds to each sum, from the half's vectors: to added[block][word] in shared memory. A warp. */
TG_DEVICE void tg_hash_half(uint64_t added[][TG_XXH_SUMS], const uint4 vectors[TG_XXH_VECTORS / 2], bool is_second)
{
    const unsigned lane = threadIdx.x % TG_WARP;
    uint64_t sums[2][2];
    TG_UNROLL
    for (int b = 0; b < 2; b++) {
        tg_xxh_add(sums[b], vectors + 2 * b, is_second && b == 1);
    }
    uint64_t low = tg_xxh_halve(sums[0][0], sums[1][0], 16), high = tg_xxh_halve(sums[0][1], sums[1][1], 16);
    uint64_t total = tg_xxh_halve(low, high, 8);
    total += __shfl_xor_sync(TG_ALL_LANES, total, 4);
    if ((lane & 4) == 0) {
        added[lane / 16][2 * (lane % 4) + lane / 8 % 2] = total;
    }
}

/* Words [from, end) of a vector, and 0 for others, which are not read. */
TG_DEVICE uint4 tg_some_words(const uint32_t *at, unsigned from, unsigned end)
{
    return make_uint4(from == 0 && end > 0 ? at[0] : 0, from <= 1 && end > 1 ? at[1] : 0,
                      from <= 2 && end > 2 ? at[2] : 0, from <= 3 && end > 3 ? at[3] : 0);
}

/* A lane's vectors of a leaf that begins SKIP words and `shift` bits after an aligned one, from aligned vectors and what follows the last of
 * them, which lane 0 has. The end of a vector is in that of the next lane. */
template <unsigned SKIP> TG_DEVICE void tg_shift_vectors(uint4 vectors[TG_XXH_VECTORS], uint4 after, unsigned shift)
{
    const unsigned lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (int k = 0; k < TG_XXH_VECTORS; k++) {
        const uint4 own = vectors[k], next = k + 1 < TG_XXH_VECTORS ? vectors[k + 1] : after,
                    given = lane == 0 ? next : own;
        uint32_t words[8] = {own.x, own.y, own.z, own.w, given.x, given.y, given.z, given.w};
        TG_UNROLL
        for (unsigned w = 4; w <= SKIP + 4; w++) {
            words[w] = __shfl_sync(TG_ALL_LANES, words[w], (int)((lane + 1) % TG_WARP));
        }
        vectors[k] = make_uint4(__funnelshift_r(words[SKIP], words[SKIP + 1], shift),
                                __funnelshift_r(words[SKIP + 1], words[SKIP + 2], shift),
                                __funnelshift_r(words[SKIP + 2], words[SKIP + 3], shift),
                                __funnelshift_r(words[SKIP + 3], words[SKIP + 4], shift));
    }
}

/* The vectors of a whole leaf at any address, by words that have a byte of it: all loads are under way before the first is used. All lanes
 * of a warp. */
TG_DEVICE void tg_leaf_load(uint4 vectors[TG_XXH_VECTORS], const uint8_t *at)
{
    const unsigned place = (unsigned)((uintptr_t)at % 16), lane = threadIdx.x % TG_WARP, shift = place % 4 * 8;
    const uint4 *aligned = (const uint4 *)(const void *)(at - place);
    TG_UNROLL
    for (int k = 1; k < TG_XXH_VECTORS; k++) {
        vectors[k] = tg_leaf_vector(aligned, k);
    }
    if (place == 0) {
        vectors[0] = tg_leaf_vector(aligned, 0);
        return;
    }
    uint4 after = make_uint4(0, 0, 0, 0);
    if (lane == 0) {
        vectors[0] = tg_some_words((const uint32_t *)(const void *)aligned, place / 4, 4);
        after = tg_some_words((const uint32_t *)(const void *)(aligned + TG_LEAF_BYTES / 16), 0, (place + 3) / 4);
    } else {
        vectors[0] = tg_leaf_vector(aligned, 0);
    }
    switch (place / 4) {
    case 0: tg_shift_vectors<0>(vectors, after, shift); break;
    case 1: tg_shift_vectors<1>(vectors, after, shift); break;
    case 2: tg_shift_vectors<2>(vectors, after, shift); break;
    default: tg_shift_vectors<3>(vectors, after, shift); break;
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
    enum { TURNS = TG_XXH_BLOCK / TG_XXH_STRIPE / TG_XXH_GROUPS };
    unsigned lane = threadIdx.x % TG_WARP, sum_of = lane % TG_XXH_SUMS, group = lane / TG_XXH_SUMS;
    unsigned stripes = (len - 1) / TG_XXH_STRIPE; /* without the last one, which ends with the leaf */
    uint64_t sum = tg_xxh_start[sum_of], secrets[TURNS];
    TG_UNROLL
    for (unsigned t = 0; t < TURNS; t++) {
        secrets[t] = tg_xxh_secret[t * TG_XXH_GROUPS + group + sum_of];
    }
    bool is_aligned = (uintptr_t)at % 8 == 0;
    TG_ROLL
    for (unsigned from = group; from < stripes + group; from += TG_XXH_BLOCK / TG_XXH_STRIPE) {
        const uint8_t *here = at + TG_XXH_STRIPE * from + 8 * sum_of;
        uint64_t words[TURNS], added = 0;
        TG_UNROLL
        for (unsigned t = 0; t < TURNS; t++) { /* a branch of its own, so that all loads are under way */
            bool has = is_aligned && from + t * TG_XXH_GROUPS < stripes;
            words[t] = has ? ((const uint64_t *)(const void *)here)[t * TG_XXH_GROUPS * TG_XXH_SUMS] : 0;
        }
        for (unsigned t = 0; !is_aligned && t < TURNS; t++) {
            words[t] = from + t * TG_XXH_GROUPS < stripes ? tg_load64(here + t * TG_XXH_GROUPS * TG_XXH_STRIPE) : 0;
        }
        TG_UNROLL
        for (unsigned t = 0; t < TURNS; t++) {
            uint64_t part = tg_xxh_term(words[t], secrets[t]);
            added += from + t * TG_XXH_GROUPS < stripes ? part : 0;
        }
        sum += tg_xxh_across(added);
        if (from - group + TG_XXH_BLOCK / TG_XXH_STRIPE <= stripes) {
            sum = tg_xxh_scramble(sum);
        }
    }
    sum += tg_xxh_term(tg_load64(at + len - TG_XXH_STRIPE + 8 * sum_of), tg_xxh_secret_at(192 - 64 - 7 + 8 * sum_of));
    return tg_xxh_end(sum, len);
}

/* XXH3 of up to a leaf, with little code. */
TG_CALLED uint64_t tg_hash_any(const uint8_t *at, unsigned len)
{
    return len > 240  ? tg_hash_long(at, len)
           : len > 16 ? tg_hash_short(at, len)
           : len > 0  ? tg_hash_tiny(at, len)
                      : TG_HASH_OF_NOTHING;
}

/* The same, faster of whole leaves. */
TG_DEVICE uint64_t tg_hash_leaf(const uint8_t *at, unsigned len)
{
    return len == TG_LEAF_BYTES ? tg_hash_whole(at) : tg_hash_any(at, len);
}

#endif
