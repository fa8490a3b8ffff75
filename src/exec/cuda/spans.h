/* Spans of a body, its headers and chunks, as every block of a kernel finds them by itself; hashes of their leaves, warp by warp. */
#ifndef TG_EXEC_CUDA_SPANS_H
#define TG_EXEC_CUDA_SPANS_H

#include "exec/cuda/ending.h"
#include "exec/cuda/leaf.h"

/* In shared memory. Span 0 is that of headers, span 1 + i that of chunk i. */
typedef struct tg_found {
    uint64_t start[TG_GPU_LISTS_MAX + 1];      /* of chunks in the body, and the end */
    uint32_t leaf_first[TG_GPU_LISTS_MAX + 2]; /* of spans: leaves of all spans before */
} tg_found;

/* A leaf of a span. */
typedef struct tg_found_leaf {
    uint32_t span, number, leaf_n; /* leaves of the span */
    uint64_t at;                   /* in the body */
    uint32_t in_span, len;
} tg_found_leaf;

TG_DEVICE uint32_t tg_leaves_of(uint64_t len)
{
    return (uint32_t)((len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES);
}

/* Leaf `number` of all `span_n` spans. */
TG_DEVICE tg_found_leaf tg_leaf_of(const tg_found &f, uint32_t span_n, uint64_t headers_len, uint32_t number)
{
    uint32_t low = 0, high = span_n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        bool is_below = f.leaf_first[middle] <= number;
        low = is_below ? middle : low;
        high = is_below ? high : middle;
    }
    uint64_t start = low == 0 ? 0 : f.start[low - 1], end = low == 0 ? headers_len : f.start[low];
    uint32_t leaf = number - f.leaf_first[low], in_span = leaf * TG_LEAF_BYTES;
    uint64_t left = end - start - in_span;
    return {
        low, leaf, tg_leaves_of(end - start), start + in_span, in_span, (uint32_t)min(left, (uint64_t)TG_LEAF_BYTES)};
}

/* Notes the hash of a leaf; the last one of a span makes that of the span, to words[1 + span]. `space` is shared memory of a leaf. All
 * lanes of a warp. */
TG_DEVICE void tg_leaf_is_hashed(uint64_t *space, const tg_gpu_ending &e, uint32_t *leaves_done, const tg_found_leaf &l,
                                 uint64_t hash)
{
    uint32_t lane = threadIdx.x % TG_WARP, before = 0;
    uint64_t *leaves = (uint64_t *)e.leaves + (uint64_t)l.span * e.leaf_cap;
    if (l.leaf_n > 1) {
        if (lane == 0) {
            leaves[l.number] = hash;
            __threadfence();
            before = atomicAdd(&leaves_done[l.span], 1u);
            if (before + 1 == l.leaf_n) {
                __threadfence();
            }
        }
        if (__shfl_sync(TG_ALL_LANES, before, 0) + 1 < l.leaf_n) {
            return;
        }
        hash = tg_hash_words(space, leaves, l.leaf_n);
    }
    if (lane == 0) {
        e.words[1 + l.span] = hash;
        leaves_done[l.span] = 0;
    }
}

enum { TG_CHECKSUM_WARPS = (TG_GPU_LISTS_MAX + 2 + TG_LEAF_BYTES / 8 - 1) / (TG_LEAF_BYTES / 8) };

/* The checksum of a frame: H of its words; all threads of the last block, of at least WARPS warps. The first warps hash, the first of all
 * has it then. */
template <unsigned WARPS>
TG_DEVICE uint64_t tg_checksum_of(const tg_gpu_ending &e, uint4 (&staged)[WARPS][TG_LEAF_VECTORS])
{
    enum { EACH = TG_LEAF_BYTES / 8 };
    static_assert(TG_CHECKSUM_WARPS <= (int)WARPS, "a warp has one");
    __shared__ uint64_t hashes[TG_CHECKSUM_WARPS];
    uint32_t n = 2 + e.chunk_n, leaf_n = (n + EACH - 1) / EACH, warp = threadIdx.x / TG_WARP;
    if (warp < leaf_n) {
        uint64_t hash = tg_hash_words((uint64_t *)(void *)staged[warp], e.words + warp * EACH,
                                      min(n - warp * EACH, (uint32_t)EACH));
        if (threadIdx.x % TG_WARP == 0) {
            hashes[warp] = hash;
        }
    }
    __syncthreads();
    return warp > 0 ? 0 : leaf_n == 1 ? hashes[0] : tg_hash_any((const uint8_t *)hashes, leaf_n * 8);
}

#endif
