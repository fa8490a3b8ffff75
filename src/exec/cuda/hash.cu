/* Hashes of spans of memory (hash.h), and the checksum of a frame. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/leaf.h"

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

enum { WARPS = 8 };

/* `each` warps a span, a leaf at a time. Leaf i of span s goes to hashes[s * leaf_cap + i]; of a span of one leaf that is its hash. */
__global__ static void __launch_bounds__(WARPS *TG_WARP, 3)
    hash_leaves(uint64_t *hashes, const tg_gpu_span *spans, uint32_t span_n, uint32_t leaf_cap, uint32_t each)
{
    __shared__ uint4 staged[WARPS][TG_LEAF_VECTORS]; /* of short leaves, whose words are not loaded at once */
    uint32_t warp = threadIdx.x / TG_WARP, number = blockIdx.x * WARPS + warp, span = number / each;
    uint64_t len = span < span_n ? spans[span].len : 0;
    for (uint64_t leaf = number % each; span < span_n && (leaf == 0 || leaf * TG_LEAF_BYTES < len); leaf += each) {
        const uint8_t *bytes = spans[span].bytes + leaf * TG_LEAF_BYTES;
        uint64_t left = len - leaf * TG_LEAF_BYTES, hash;
        if (left >= TG_LEAF_BYTES) {
            hash = tg_hash_whole(bytes);
        } else {
            tg_leaf_load(staged[warp], bytes, (uint32_t)left);
            hash = tg_hash_any((const uint8_t *)(const void *)staged[warp], (unsigned)left);
        }
        if (threadIdx.x % TG_WARP == 0) {
            hashes[span * (uint64_t)leaf_cap + leaf] = hash;
        }
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
    uint64_t leaf_n = (spans[span].len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
    uint64_t hash = leaf_n <= 1 ? leaves[0] : tg_hash_any((const uint8_t *)leaves, (unsigned)leaf_n * 8);
    if (threadIdx.x % TG_WARP == 0) {
        out[span] = hash;
    }
}

void tg_gpu_hash(uint64_t *out, uint64_t *leaves, const tg_gpu_span *spans, uint32_t span_n, uint32_t leaf_cap,
                 void *stream)
{
    if (span_n > 0) {
        uint32_t each = tg_leaf_warps(span_n, leaf_cap);
        TG_LAUNCH(hash_leaves, ((uint64_t)span_n * each + WARPS - 1) / WARPS, WARPS * TG_WARP, stream, leaves, spans,
                  span_n, leaf_cap, each);
        tg_gpu_hash_spans(out, leaves, spans, span_n, leaf_cap, stream);
    }
}

void tg_gpu_hash_spans(uint64_t *out, const uint64_t *leaves, const tg_gpu_span *spans, uint32_t span_n,
                       uint32_t leaf_cap, void *stream)
{
    TG_LAUNCH(hash_spans, (span_n + WARPS - 1) / WARPS, WARPS * TG_WARP, stream, out, leaves, spans, span_n, leaf_cap);
}

/* One block: the checksum of a frame, by the leaves of the words, a warp each, then their hashes. The first warp has it. */
TG_DEVICE uint64_t checksum_of(uint64_t *words, uint32_t n, uint64_t front, bool has_headers)
{
    __shared__ uint64_t leaves[TG_LEAF_BYTES / 8];
    unsigned warp = threadIdx.x / TG_WARP;
    uint64_t len = (uint64_t)n * 8, leaf_n = (len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
    if (threadIdx.x == 0) {
        words[0] = front;
        words[1] = has_headers ? words[1] : TG_HASH_OF_NOTHING;
    }
    __syncthreads();
    for (uint64_t leaf = warp; leaf < leaf_n; leaf += WARPS) {
        uint64_t left = len - leaf * TG_LEAF_BYTES;
        uint64_t hash = tg_hash_any((const uint8_t *)words + leaf * TG_LEAF_BYTES,
                                    left < TG_LEAF_BYTES ? (unsigned)left : (unsigned)TG_LEAF_BYTES);
        if (threadIdx.x % TG_WARP == 0) {
            leaves[leaf] = hash;
        }
    }
    __syncthreads();
    return warp != 0 ? 0 : leaf_n == 1 ? leaves[0] : tg_hash_any((const uint8_t *)leaves, (unsigned)leaf_n * 8);
}

TG_DEVICE void put_front(uint8_t *frame, const tg_gpu_front &front)
{
    for (uint32_t i = threadIdx.x; i < front.len; i += WARPS * TG_WARP) {
        frame[i] = i < TG_GPU_FRONT ? front.header[i] : front.description[i - TG_GPU_FRONT];
    }
}

__global__ static void seal_frame(uint8_t *frame, const __grid_constant__ tg_gpu_front front, uint64_t body_len,
                                  uint64_t *words, uint32_t n, bool has_headers)
{
    put_front(frame, front);
    uint64_t checksum = checksum_of(words, n, front.hash, has_headers);
    if (threadIdx.x == 0) {
        tg_store_bytes(frame + front.len + body_len, checksum, 8);
    }
}

void tg_gpu_seal_frame(uint8_t *frame, const tg_gpu_front *front, uint64_t body_len, uint64_t *words, uint32_t n,
                       int has_headers, void *stream)
{
    TG_LAUNCH(seal_frame, 1, WARPS * TG_WARP, stream, frame, *front, body_len, words, n, has_headers != 0);
}

__global__ static void put_seal(uint8_t *frame, const __grid_constant__ tg_gpu_front front, uint64_t body_len,
                                uint64_t checksum)
{
    tg_next_may_begin(); /* nothing is read that the kernel before this one may still write: it was not launched early */
    put_front(frame, front);
    if (threadIdx.x < 8) {
        frame[front.len + body_len + threadIdx.x] = (uint8_t)(checksum >> 8 * threadIdx.x);
    }
}

void tg_gpu_put_seal(uint8_t *frame, const tg_gpu_front *front, uint64_t body_len, uint64_t checksum, void *stream)
{
    TG_LAUNCH(put_seal, 1, WARPS * TG_WARP, stream, frame, *front, body_len, checksum);
}

/* A block a body: the hashes of its chunks, a warp each, then its checksum. */
__global__ static void __launch_bounds__(WARPS *TG_WARP, 3) judge_bodies(tg_gpu_pass p, tg_gpu_judging j)
{
    uint32_t b = blockIdx.x, lane = threadIdx.x % TG_WARP;
    const uint8_t *at = j.bodies.at[b] + j.body_len;
    uint64_t *words = j.words + (uint64_t)b * (2 + p.chunk_n);
    for (uint32_t i = threadIdx.x / TG_WARP; i < p.chunk_n; i += WARPS) {
        const uint64_t *leaves = j.leaves + ((uint64_t)b * p.chunk_n + i) * j.leaf_cap;
        uint32_t leaf_n = (p.chunks[p.first + i].len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
        uint64_t hash = leaf_n == 1 ? leaves[0] : tg_hash_leaf((const uint8_t *)leaves, leaf_n * 8);
        if (lane == 0) {
            words[2 + i] = hash;
        }
    }
    uint64_t checksum = checksum_of(words, 2 + p.chunk_n, j.fronts[b], false);
    if (threadIdx.x == 0 && tg_xxh_load(at, 8) != checksum) {
        uint32_t own = 0xffffffffu - (j.number + b);
        *j.late_to = max(atomicMax(j.late, own), own);
    }
    if (b == 0 && threadIdx.x == 0) {
        *p.verdict = tg_gpu_verdict{};
    }
}

void tg_gpu_judge_bodies(const tg_gpu_pass *p, const tg_gpu_judging *j)
{
    TG_LAUNCH(judge_bodies, j->bodies.n, WARPS * TG_WARP, p->stream, *p, *j);
}
