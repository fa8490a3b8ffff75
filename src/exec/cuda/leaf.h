/* Leaves of a frame (4 KiB, hash.h) that a warp makes in shared memory: written to the frame and hashed while they are there. */
#ifndef TG_EXEC_CUDA_LEAF_H
#define TG_EXEC_CUDA_LEAF_H

#include "exec/cuda/hash.h"

enum { TG_LEAF_VECTORS = 4096 / 16 + 2 }; /* of 16 bytes, with what tg_copy_by reads after the end */

/* Warps that take the leaves of a span in turns: most spans have far less than `leaf_cap`. */
static inline uint32_t tg_leaf_warps(uint32_t span_n, uint32_t leaf_cap)
{
    const uint32_t TARGET = 8192, LEAST = 8;
    uint32_t each = TARGET / (span_n > 0 ? span_n : 1);
    each = each > LEAST ? each : LEAST;
    return each < leaf_cap ? each : leaf_cap;
}

/* Bytes keep their place within 16, so that a copy moves whole aligned vectors. */
TG_DEVICE uint32_t tg_place_of(const void *at)
{
    return (uint32_t)((uintptr_t)at % 16);
}

/* Copies `len` bytes from any place in shared memory to any place in memory, by threads `first`, first + stride, ...: whole vectors of 16
 * bytes, and what is before and after them a byte a thread. Up to 19 bytes after them are read. */
TG_DEVICE void tg_copy_by(uint8_t *to, const uint8_t *shared, uint32_t len, uint32_t first, uint32_t stride)
{
    uint32_t place = tg_place_of(to), end = place + len, whole = end / 16, head = place > 0 ? min(16u, end) : 0;
    const uint8_t *bytes = shared - place;
    uint8_t *start = to - place;
    for (uint32_t b = place + first; b < head; b += stride) {
        start[b] = bytes[b];
    }
    for (uint32_t b = max(head, whole * 16) + first; b < end; b += stride) {
        start[b] = bytes[b];
    }
    for (uint32_t v = first + (place > 0 ? 1 : 0); v < whole; v += stride) {
        const uint8_t *here = bytes + v * 16;
        uint32_t shift = (uint32_t)((uintptr_t)here % 4) * 8, words[5];
        const uint32_t *aligned = (const uint32_t *)(const void *)(here - shift / 8);
        for (int i = 0; i < 5; i++) {
            words[i] = aligned[i];
        }
        ((uint4 *)(void *)start)[v] =
            make_uint4(__funnelshift_r(words[0], words[1], shift), __funnelshift_r(words[1], words[2], shift),
                       __funnelshift_r(words[2], words[3], shift), __funnelshift_r(words[3], words[4], shift));
    }
}

/* Loads a leaf of `len` bytes at any address to shared memory. All lanes of a warp. Unless it begins at a multiple of 16, up to 3
 * bytes before and after it must be readable. Ends with a barrier of the warp. */
TG_DEVICE void tg_leaf_load(uint4 *leaf, const uint8_t *from, uint32_t len)
{
    uint32_t lane = threadIdx.x % TG_WARP, whole = len / 16 * 16;
    if (tg_place_of(from) == 0) {
        TG_UNROLL
        for (uint32_t k = 0; k < TG_XXH_VECTORS; k++) {
            uint32_t v = k * TG_WARP + lane;
            if (v * 16 < whole) {
                leaf[v] = ((const uint4 *)(const void *)from)[v];
            }
        }
    } else {
        TG_UNROLL
        for (uint32_t k = 0; k < TG_XXH_VECTORS; k++) {
            uint32_t v = k * TG_WARP + lane;
            if (v * 16 < whole) {
                leaf[v] = tg_load_vector(from + v * 16);
            }
        }
    }
    if (whole + lane < len) {
        ((uint8_t *)(void *)leaf)[whole + lane] = from[whole + lane];
    }
    __syncwarp();
}

/* The hash of a leaf of `len` bytes in shared memory. All lanes of a warp take part and get it. */
TG_DEVICE uint64_t tg_hash_aligned(const uint4 *leaf, uint32_t len)
{
    if (len != TG_LEAF_BYTES) {
        return tg_hash_any((const uint8_t *)(const void *)leaf, len);
    }
    uint4 vectors[TG_XXH_VECTORS];
    TG_UNROLL
    for (int k = 0; k < TG_XXH_VECTORS; k++) {
        vectors[k] = tg_leaf_vector(leaf, k);
    }
    return tg_hash_vectors(vectors);
}

/* Ends a leaf of `len` bytes that the lanes of a warp have written to shared memory: to `to`, any address, and its hash to *hash; NULL:
 * it is not hashed. Begins and ends with a barrier of the warp. */
TG_DEVICE void tg_leaf_end(uint64_t *hash, uint8_t *to, const uint4 *leaf, uint32_t len)
{
    uint32_t lane = threadIdx.x % TG_WARP;
    uint64_t hashed = 0;
    __syncwarp();
    if (len == TG_LEAF_BYTES) {
        bool is_aligned = tg_place_of(to) == 0;
        uint4 vectors[TG_XXH_VECTORS];
        if (!is_aligned) {
            tg_copy_by(to, (const uint8_t *)(const void *)leaf, len, lane, TG_WARP);
        }
        TG_UNROLL
        for (int k = 0; k < TG_XXH_VECTORS; k++) {
            vectors[k] = tg_leaf_vector(leaf, k);
            if (is_aligned) {
                ((uint4 *)(void *)to)[k * (int)TG_WARP + (int)lane] = vectors[k];
            }
        }
        hashed = hash != nullptr ? tg_hash_vectors(vectors) : 0;
    } else {
        tg_copy_by(to, (const uint8_t *)(const void *)leaf, len, lane, TG_WARP);
        hashed = hash != nullptr ? tg_hash_any((const uint8_t *)(const void *)leaf, len) : 0;
    }
    if (hash != nullptr && lane == 0) {
        *hash = hashed;
    }
    __syncwarp();
}

#endif
