/* The hash of frames (docs/format.md, H) on the GPU: XXH3 of leaves of 4 KiB, a warp each, then of their hashes.
 *
 * Within a block of 1,024 bytes the eight sums of XXH3 take stripes in any order, so the lanes of a warp share the stripes:
 * lane l has sum l % 8 and every fourth stripe. Scrambling after a block then needs all of them. */
#include "exec/cuda/kernel.h"
#include "exec/cuda/kernels.h"

enum { LEAF = 4096, STRIPE = 64, BLOCK = 1024, SUMS = 8, GROUPS = 4 };

#define PRIME_1 0x9E3779B185EBCA87ull
#define PRIME_2 0xC2B2AE3D27D4EB4Full
#define PRIME_3 0x165667B19E3779F9ull
#define PRIME32_1 0x9E3779B1ull
#define AVALANCHE 0x165667919E3779F9ull
#define RRMXMX 0x9FB21C651E98DF25ull

/* The default secret of XXH3, as little-endian words. */
__constant__ static const uint64_t secret_words[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull, 0x78e5c0cc4ee679cbull,
    0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull, 0xcb00c391bb52283cull, 0xa32e531b8b65d088ull,
    0x4ef90da297486471ull, 0xd8acdea946ef1938ull, 0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull,
    0x647378d9c97e9fc8ull, 0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};

__constant__ static const uint64_t start_sums[SUMS] = {
    0x00000000C2B2AE3Dull, 0x9E3779B185EBCA87ull, 0xC2B2AE3D27D4EB4Full, 0x165667B19E3779F9ull,
    0x85EBCA77C2B2AE63ull, 0x0000000085EBCA77ull, 0x27D4EB2F165667C5ull, 0x000000009E3779B1ull,
};

TG_DEVICE uint64_t secret_at(unsigned at)
{
    unsigned shift = at % 8 * 8;
    uint64_t low = secret_words[at / 8];
    return shift == 0 ? low : low >> shift | secret_words[at / 8 + 1] << (64 - shift);
}

TG_DEVICE uint64_t fold(uint64_t a, uint64_t b)
{
    return a * b ^ __umul64hi(a, b);
}

TG_DEVICE uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= AVALANCHE;
    return hash ^ hash >> 32;
}

TG_DEVICE uint64_t avalanche_short(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= PRIME_2;
    hash ^= hash >> 29;
    hash *= PRIME_3;
    return hash ^ hash >> 32;
}

TG_DEVICE uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

TG_DEVICE uint64_t swap_bytes(uint64_t x)
{
    uint64_t swapped = 0;
    for (int i = 0; i < 8; i++) {
        swapped = swapped << 8 | (x >> 8 * i & 0xff);
    }
    return swapped;
}

/* ---- up to 240 bytes: one lane ------------------------------------------------------------------------------------------ */

TG_DEVICE uint64_t load_bytes(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

TG_DEVICE uint64_t mix16(const uint8_t *at, unsigned secret)
{
    return fold(load_bytes(at, 8) ^ secret_at(secret), load_bytes(at + 8, 8) ^ secret_at(secret + 8));
}

TG_DEVICE uint64_t hash_tiny(const uint8_t *at, unsigned len)
{
    if (len == 0) {
        return avalanche_short(secret_at(56) ^ secret_at(64));
    }
    if (len <= 3) {
        uint32_t combined = (uint32_t)at[0] << 16 | (uint32_t)at[len / 2] << 24 | at[len - 1] | len << 8;
        return avalanche_short(combined ^ (uint64_t)((uint32_t)secret_at(0) ^ (uint32_t)secret_at(4)));
    }
    if (len <= 8) {
        uint64_t value = load_bytes(at + len - 4, 4) + (load_bytes(at, 4) << 32);
        uint64_t h = value ^ (secret_at(8) ^ secret_at(16));
        h ^= rotate(h, 49) ^ rotate(h, 24);
        h *= RRMXMX;
        h ^= (h >> 35) + len;
        h *= RRMXMX;
        return h ^ h >> 28;
    }
    uint64_t low = load_bytes(at, 8) ^ secret_at(24) ^ secret_at(32);
    uint64_t high = load_bytes(at + len - 8, 8) ^ secret_at(40) ^ secret_at(48);
    return avalanche(len + swap_bytes(low) + high + fold(low, high));
}

TG_DEVICE uint64_t hash_short(const uint8_t *at, unsigned len)
{
    if (len <= 16) {
        return hash_tiny(at, len);
    }
    uint64_t sum = len * PRIME_1;
    if (len <= 128) {
        for (unsigned i = (len - 1) / 32 + 1; i > 0; i--) {
            sum += mix16(at + 16 * (i - 1), 32 * (i - 1)) + mix16(at + len - 16 * i, 32 * (i - 1) + 16);
        }
        return avalanche(sum);
    }
    for (unsigned i = 0; i < 8; i++) {
        sum += mix16(at + 16 * i, 16 * i);
    }
    sum = avalanche(sum);
    for (unsigned i = 8; i < len / 16; i++) {
        sum += mix16(at + 16 * i, 16 * (i - 8) + 3);
    }
    return avalanche(sum + mix16(at + len - 16, 136 - 17));
}

/* ---- longer: a warp ----------------------------------------------------------------------------------------------------- */

/* What a stripe adds to this lane's sum; `word` is the lane's word of it, that is its word number lane % 8. */
TG_DEVICE uint64_t term(uint64_t word, uint64_t secret)
{
    uint64_t keyed = word ^ secret;
    return (keyed & 0xffffffffu) * (keyed >> 32) + __shfl_xor_sync(TG_ALL_LANES, word, 1);
}

TG_DEVICE uint64_t across_groups(uint64_t sum)
{
    sum += __shfl_xor_sync(TG_ALL_LANES, sum, 8);
    return sum + __shfl_xor_sync(TG_ALL_LANES, sum, 16);
}

/* The hash of a leaf from the sums of all lanes. */
TG_DEVICE uint64_t end_sums(uint64_t sum, unsigned len)
{
    uint64_t own = sum ^ secret_at(11 + 8 * (threadIdx.x % SUMS)), other = __shfl_xor_sync(TG_ALL_LANES, own, 1);
    uint64_t folded = fold(own, other);
    folded += __shfl_xor_sync(TG_ALL_LANES, folded, 2);
    folded += __shfl_xor_sync(TG_ALL_LANES, folded, 4);
    return avalanche(len * PRIME_1 + folded);
}

TG_DEVICE uint64_t scramble(uint64_t sum)
{
    sum ^= sum >> 47;
    sum ^= secret_at(192 - 64 + 8 * (threadIdx.x % SUMS));
    return sum * PRIME32_1;
}

/* XXH3 of a whole leaf: all loads are under way before the first is used. */
TG_DEVICE uint64_t hash_whole(const uint8_t *at)
{
    enum { BLOCKS = LEAF / BLOCK, ROUNDS = BLOCK / STRIPE / GROUPS };
    unsigned lane = threadIdx.x % TG_WARP, sum_of = lane % SUMS, group = lane / SUMS;
    uint64_t words[BLOCKS][ROUNDS], sum = start_sums[sum_of];
    unsigned shift = (unsigned)((uintptr_t)at % 8);
    if (shift == 0) { /* lanes read whole lines */
        const uint64_t *from = (const uint64_t *)(const void *)at + lane;
#pragma unroll
        for (int i = 0; i < BLOCKS * ROUNDS; i++) {
            words[i / ROUNDS][i % ROUNDS] = from[i * (int)TG_WARP];
        }
    } else {
#pragma unroll
        for (int i = 0; i < BLOCKS * ROUNDS; i++) {
            words[i / ROUNDS][i % ROUNDS] = tg_load64(at + 8 * (i * TG_WARP + lane));
        }
    }
    uint64_t secrets[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        secrets[r] = secret_at(8 * (GROUPS * (unsigned)r + group) + 8 * sum_of);
    }
    uint64_t last = secret_at(192 - 64 - 7 + 8 * sum_of);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        uint64_t added = 0;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            bool is_last = b == BLOCKS - 1 && r == ROUNDS - 1 && group == GROUPS - 1; /* has a secret of its own */
            added += term(words[b][r], is_last ? last : secrets[r]);
        }
        sum += across_groups(added);
        if (b < BLOCKS - 1) {
            sum = scramble(sum);
        }
    }
    return end_sums(sum, LEAF);
}

/* XXH3 of 241 to 4,096 bytes. All lanes of a warp take part and get the result. */
TG_DEVICE uint64_t hash_long(const uint8_t *at, unsigned len)
{
    unsigned lane = threadIdx.x % TG_WARP, sum_of = lane % SUMS, group = lane / SUMS;
    unsigned blocks = (len - 1) / BLOCK;
    uint64_t sum = start_sums[sum_of];
    for (unsigned b = 0; b <= blocks; b++) {
        unsigned stripes = b < blocks ? BLOCK / STRIPE : (len - 1 - BLOCK * blocks) / STRIPE;
        uint64_t added = 0;
        for (unsigned s = 0; s < stripes; s += GROUPS) {
            unsigned stripe = s + group;
            bool has = stripe < stripes;
            uint64_t word = has ? tg_load64(at + BLOCK * b + STRIPE * stripe + 8 * sum_of) : 0;
            uint64_t part = term(word, secret_at(8 * stripe % (BLOCK / STRIPE * 8) + 8 * sum_of));
            added += has ? part : 0;
        }
        sum += across_groups(added);
        if (b < blocks) {
            sum = scramble(sum);
        }
    }
    sum += term(tg_load64(at + len - STRIPE + 8 * sum_of), secret_at(192 - 64 - 7 + 8 * sum_of));
    return end_sums(sum, len);
}

TG_DEVICE uint64_t hash_leaf(const uint8_t *at, unsigned len)
{
    return len == LEAF ? hash_whole(at) : len > 240 ? hash_long(at, len) : hash_short(at, len);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

enum { WARPS = 8 };

/* A warp a leaf. Leaf i of span s goes to hashes[s * leaf_cap + i]; of a span of one leaf that is its hash. */
__global__ static void hash_leaves(uint64_t *hashes, const tg_gpu_span *spans, uint32_t span_n, uint32_t leaf_cap)
{
    unsigned number = blockIdx.x * WARPS + threadIdx.x / TG_WARP;
    unsigned span = number / leaf_cap, leaf = number % leaf_cap;
    if (span >= span_n) {
        return;
    }
    uint64_t len = spans[span].len, from = (uint64_t)leaf * LEAF;
    if (leaf > 0 && from >= len) {
        return;
    }
    uint64_t hash = hash_leaf(spans[span].bytes + from, len - from < LEAF ? (unsigned)(len - from) : (unsigned)LEAF);
    if (threadIdx.x % TG_WARP == 0) {
        hashes[(uint64_t)span * leaf_cap + leaf] = hash;
    }
}

/* A warp a span: the hash of the hashes of its leaves. */
__global__ static void hash_spans(uint64_t *out, const uint64_t *hashes, const tg_gpu_span *spans, uint32_t span_n,
                                  uint32_t leaf_cap)
{
    unsigned span = blockIdx.x * WARPS + threadIdx.x / TG_WARP;
    if (span >= span_n) {
        return;
    }
    const uint64_t *leaves = hashes + (uint64_t)span * leaf_cap;
    uint64_t leaf_n = (spans[span].len + LEAF - 1) / LEAF;
    uint64_t hash = leaf_n <= 1 ? leaves[0] : hash_leaf((const uint8_t *)leaves, (unsigned)leaf_n * 8);
    if (threadIdx.x % TG_WARP == 0) {
        out[span] = hash;
    }
}

void tg_gpu_hash(uint64_t *out, uint64_t *leaves, const tg_gpu_span *spans, uint32_t span_n, uint32_t leaf_cap,
                 void *stream)
{
    if (span_n > 0) {
        TG_LAUNCH(hash_leaves, ((uint64_t)span_n * leaf_cap + WARPS - 1) / WARPS, WARPS * TG_WARP, stream, leaves, spans,
                  span_n, leaf_cap);
        TG_LAUNCH(hash_spans, (span_n + WARPS - 1) / WARPS, WARPS * TG_WARP, stream, out, leaves, spans, span_n, leaf_cap);
    }
}

/* One block: the checksum of a frame, by the leaves of the words, a warp each, then their hashes. The first warp has it. */
TG_DEVICE uint64_t checksum_of(uint64_t *words, uint32_t n, uint64_t front, bool has_headers)
{
    __shared__ uint64_t leaves[LEAF / 8];
    unsigned warp = threadIdx.x / TG_WARP;
    uint64_t len = (uint64_t)n * 8, leaf_n = (len + LEAF - 1) / LEAF;
    if (threadIdx.x == 0) {
        words[0] = front;
        words[1] = has_headers ? words[1] : hash_tiny(nullptr, 0);
    }
    __syncthreads();
    for (uint64_t leaf = warp; leaf < leaf_n; leaf += WARPS) {
        uint64_t left = len - leaf * LEAF;
        uint64_t hash = hash_leaf((const uint8_t *)words + leaf * LEAF, left < LEAF ? (unsigned)left : (unsigned)LEAF);
        if (threadIdx.x % TG_WARP == 0) {
            leaves[leaf] = hash;
        }
    }
    __syncthreads();
    return warp != 0 ? 0 : leaf_n == 1 ? leaves[0] : hash_leaf((const uint8_t *)leaves, (unsigned)leaf_n * 8);
}

__global__ static void seal_frame(uint8_t *at, uint64_t *words, uint32_t n, uint64_t front, bool has_headers)
{
    uint64_t checksum = checksum_of(words, n, front, has_headers);
    if (threadIdx.x == 0) {
        tg_store_bytes(at, checksum, 8);
    }
}

void tg_gpu_seal_frame(uint8_t *at, uint64_t *words, uint32_t n, uint64_t front, int has_headers, void *stream)
{
    TG_LAUNCH(seal_frame, 1, WARPS * TG_WARP, stream, at, words, n, front, has_headers != 0);
}

__global__ static void judge_frame(uint32_t *late, uint32_t number, const tg_gpu_verdict *verdict, const uint8_t *at,
                                   uint64_t *words, uint32_t n, uint64_t front, bool has_headers)
{
    uint64_t checksum = checksum_of(words, n, front, has_headers);
    if (threadIdx.x == 0) {
        bool differs = false;
        for (unsigned b = 0; b < 8; b++) {
            differs = differs || at[b] != (uint8_t)(checksum >> 8 * b);
        }
        if (*late == 0 && (differs || verdict->bad_chunk != 0)) {
            *late = 1 + number;
        }
    }
}

void tg_gpu_judge_frame(uint32_t *late, uint32_t number, const tg_gpu_verdict *verdict, const uint8_t *at, uint64_t *words, uint32_t n,
                        uint64_t front, int has_headers, void *stream)
{
    TG_LAUNCH(judge_frame, 1, WARPS * TG_WARP, stream, late, number, verdict, at, words, n, front, has_headers != 0);
}
