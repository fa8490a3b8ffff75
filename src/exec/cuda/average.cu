/* Sums of plain values of several bodies, and whether these are sound, in one kernel: each byte is read once.
 *
 * A block takes one leaf of the frame, of all bodies. Each of its warps has a block of XXH3 of the leaf, 1,024 bytes: it hashes them and
 * adds up their values, body after body, in registers. The last block of a chunk hashes the hashes of its leaves, and the last chunk's
 * compares checksums. Sums are private until the step ends, so they may be written before that. */
#include "exec/cuda/deliver.h"
#include "exec/cuda/ending.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/plain_values.h"

enum { WARPS = TG_XXH_BLOCKS, THREADS = WARPS * (int)TG_WARP, VECTORS = 2, BATCH = 4 };

/* Of each body: what the blocks of a leaf add to its sums of XXH3. */
typedef uint64_t block_sums[TG_GPU_BODIES][TG_XXH_BLOCKS][TG_XXH_SUMS];

/* A leaf of all bodies. */
typedef struct addends {
    const tg_gpu_bodies *bodies;
    const tg_gpu_unit *u;
    const float *sums; /* what is added to; NULL: the first body sets */
    uint64_t in_body;
} addends;

/* Where sums of a leaf go. */
typedef struct results {
    const tg_gpu_piece *piece;
    void *const *averages;
    float *sums;      /* NULL: averages are delivered */
    float *floats;    /* NULL: not at once ... */
    uint16_t *halves; /* ... nor as these */
    uint64_t at;      /* in the unit */
    float divisor;
    bool is_bf16;
} results;

/* ---- one element ----------------------------------------------------------------------------------------------------------- */

/* As a CPU adds it, NaNs included. */
TG_CALLED float sum_slowly(const tg_gpu_bodies *bodies, const tg_gpu_unit *u, const float *sums, uint64_t in_body,
                           uint32_t i)
{
    float sum = sums != nullptr ? sums[i] : tg_plain_value(*u, bodies->at[0] + in_body, i);
    TG_ROLL
    for (uint32_t b = sums != nullptr ? 0 : 1; b < bodies->n; b++) {
        sum = tg_plus(sum, tg_plain_value(*u, bodies->at[b] + in_body, i));
    }
    return sum;
}

TG_DEVICE float sum_one(const addends &a, uint32_t i)
{
    return sum_slowly(a.bodies, a.u, a.sums, a.in_body, i);
}

TG_DEVICE void store_one(const tg_gpu_pass &p, const addends &a, const results &r, uint32_t i, float sum)
{
    if (r.sums != nullptr) {
        r.sums[i] = sum;
    } else {
        tg_store_average(p, *a.u, r.piece, r.averages, r.at + i, tg_average_of(sum, r.divisor));
    }
}

/* ---- 16 bytes a lane at a time ----------------------------------------------------------------------------------------------- */

/* Value i of a vector; a NaN in half precision may become another. */
template <uint32_t EACH> TG_DEVICE float value_of(const uint4 &v, uint32_t i, bool is_bf16)
{
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    return EACH == 4 ? __uint_as_float(words[i]) : tg_any_half(words[i / 2] >> i % 2 * 16 & 0xffffu, is_bf16);
}

/* This lane's vector number k of a leaf. */
TG_DEVICE uint32_t vector_of(uint32_t k)
{
    return threadIdx.x / TG_WARP * VECTORS * TG_WARP + k * TG_WARP + threadIdx.x % TG_WARP;
}

/* Vectors of BATCH bodies from number `first` on; all loads are under way before the first is used. */
TG_DEVICE void load_vectors(uint4 vectors[BATCH][VECTORS], const addends &a, uint32_t first, bool are_aligned)
{
    uint32_t n = a.bodies->n;
    if (are_aligned) {
        TG_UNROLL
        for (uint32_t i = 0; i < BATCH * VECTORS; i++) {
            uint32_t b = first + i / VECTORS;
            const uint4 *from = (const uint4 *)(const void *)(a.bodies->at[min(b, n - 1)] + a.in_body);
            vectors[i / VECTORS][i % VECTORS] = b < n ? __ldcs(from + vector_of(i % VECTORS)) : make_uint4(0, 0, 0, 0);
        }
    } else {
        TG_UNROLL
        for (uint32_t i = 0; i < BATCH * VECTORS; i++) {
            const uint8_t *from = a.bodies->at[min(first + i / VECTORS, n - 1)] + a.in_body;
            vectors[i / VECTORS][i % VECTORS] = tg_load_vector(from + 16 * vector_of(i % VECTORS));
        }
    }
}

/* Sums of this lane's values in a whole leaf, of which a vector has EACH, and of its hashes. */
template <uint32_t EACH>
TG_DEVICE void add_leaf(float sum[VECTORS][EACH], block_sums &added, const addends &a, bool are_aligned)
{
    bool is_bf16 = a.u->quantize == TG_GPU_BF16;
    uint32_t warp = threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP, n = a.bodies->n;
    TG_UNROLL
    for (uint32_t i = 0; i < VECTORS * EACH; i++) { /* -0 and a value are the value, be it -0 */
        sum[i / EACH][i % EACH] = a.sums != nullptr ? a.sums[vector_of(i / EACH) * EACH + i % EACH] : -0.0f;
    }
    TG_ROLL
    for (uint32_t first = 0; first < n; first += BATCH) {
        uint4 vectors[BATCH][VECTORS];
        load_vectors(vectors, a, first, are_aligned);
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            if (first + b >= n) {
                continue;
            }
            TG_UNROLL
            for (uint32_t i = 0; i < VECTORS * EACH; i++) {
                sum[i / EACH][i % EACH] += value_of<EACH>(vectors[b][i / EACH], i % EACH, is_bf16);
            }
            uint64_t own[2];
            tg_xxh_add(own, vectors[b], warp + 1 == WARPS);
            uint64_t total = tg_xxh_across(tg_xxh_halve(own[0], own[1], 4));
            if (lane < TG_XXH_SUMS) {
                added[first + b][warp][lane] = total;
            }
        }
    }
}

/* Averages of a vector, or sums that stay, to where they belong. */
template <uint32_t EACH>
TG_DEVICE void store_vector(const tg_gpu_pass &p, const addends &a, const results &r, uint32_t number, float sum[EACH])
{
    uint32_t at = number * EACH;
    bool is_nan = false;
    TG_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        is_nan = is_nan || sum[i] != sum[i];
    }
    if (is_nan || (r.floats == nullptr && r.halves == nullptr)) {
        TG_ROLL
        for (uint32_t i = at; i < at + EACH; i++) {
            store_one(p, a, r, i, sum_one(a, i));
        }
        return;
    }
    TG_UNROLL
    for (uint32_t i = 0; i < EACH && r.sums == nullptr; i++) {
        sum[i] = sum[i] / r.divisor;
    }
    if (r.floats != nullptr) {
        TG_UNROLL
        for (uint32_t i = 0; i < EACH; i += 4) {
            *(float4 *)(void *)(r.floats + at + i) = make_float4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
        }
        return;
    }
    uint32_t words[EACH / 2];
    TG_UNROLL
    for (uint32_t i = 0; i < EACH; i += 2) {
        words[i / 2] = r.is_bf16 ? tg_float_to_bf16(sum[i]) | (uint32_t)tg_float_to_bf16(sum[i + 1]) << 16
                                 : tg_float_to_fp16(sum[i]) | (uint32_t)tg_float_to_fp16(sum[i + 1]) << 16;
    }
    if (EACH == 8) {
        *(uint4 *)(void *)(r.halves + at) = make_uint4(words[0], words[1], words[EACH / 2 - 2], words[EACH / 2 - 1]);
    } else {
        *(uint2 *)(void *)(r.halves + at) = make_uint2(words[0], words[1]);
    }
}

/* ---- leaves ---------------------------------------------------------------------------------------------------------------- */

/* Where the hashes of a chunk's leaves are, of a body. */
TG_DEVICE uint64_t *hashes_of(const tg_gpu_pass &p, const tg_gpu_judging &j, uint32_t body, uint32_t chunk)
{
    return j.leaves + ((uint64_t)body * p.chunk_n + chunk) * j.leaf_cap;
}

/* After add_leaf: hashes of the leaf, eight lanes each; all threads. */
TG_DEVICE void hash_whole(const tg_gpu_pass &p, const tg_gpu_judging &j, const block_sums &added, uint32_t chunk,
                          uint32_t number)
{
    uint32_t body = threadIdx.x / TG_XXH_SUMS, of = min(body, j.bodies.n - 1);
    uint64_t own[TG_XXH_BLOCKS];
    __syncthreads();
    TG_UNROLL
    for (uint32_t b = 0; b < TG_XXH_BLOCKS; b++) {
        own[b] = added[of][b][threadIdx.x % TG_XXH_SUMS];
    }
    uint64_t hash = tg_hash_blocks(own);
    if (body < j.bodies.n && threadIdx.x % TG_XXH_SUMS == 0) {
        hashes_of(p, j, body, chunk)[number] = hash;
    }
}

/* Hashes of a leaf that is not whole, a warp a body. */
TG_DEVICE void hash_part(uint4 (&spaces)[WARPS][TG_LEAF_VECTORS], const tg_gpu_pass &p, const tg_gpu_judging &j,
                         uint64_t in_body, uint32_t len, uint32_t chunk, uint32_t number)
{
    uint4 *space = spaces[threadIdx.x / TG_WARP];
    for (uint32_t b = threadIdx.x / TG_WARP; b < j.bodies.n; b += WARPS) {
        tg_leaf_load(space, j.bodies.at[b] + in_body, len);
        uint64_t hash = tg_hash_any((const uint8_t *)(const void *)space, len);
        if (threadIdx.x % TG_WARP == 0) {
            hashes_of(p, j, b, chunk)[number] = hash;
        }
        __syncwarp();
    }
}

/* Where sums of n elements from `first` of a chunk on go. */
TG_DEVICE results results_of(const tg_gpu_pass &p, const tg_gpu_averaging &to, const tg_gpu_chunk &chunk,
                             const tg_gpu_unit &u, uint32_t first, uint32_t n)
{
    results r = {};
    r.at = chunk.at + first;
    r.divisor = to.divisor;
    r.averages = to.averages;
    if (!to.is_last) {
        r.sums = p.space.sums + u.flat_at + (r.at - u.lo);
        r.floats = tg_is_aligned(r.sums) ? r.sums : nullptr;
        return r;
    }
    r.piece = tg_piece_at(p, u, r.at);
    uint8_t *start = (uint8_t *)tg_average_tensor(p, to.averages, r.piece->tensor) +
                     (int64_t)(r.at - r.piece->at) * (r.piece->dtype == 0 ? 4 : 2);
    if (r.at + n <= r.piece->at + r.piece->n && tg_is_aligned(start)) {
        r.floats = r.piece->dtype == 0 ? (float *)(void *)start : nullptr;
        r.halves = r.piece->dtype == 0 ? nullptr : (uint16_t *)(void *)start;
        r.is_bf16 = r.piece->dtype == 2;
    }
    return r;
}

template <uint32_t EACH>
TG_DEVICE void store_leaf(const tg_gpu_pass &p, const addends &a, const results &r, float sum[VECTORS][EACH])
{
    TG_UNROLL
    for (uint32_t k = 0; k < VECTORS; k++) {
        store_vector<EACH>(p, a, r, vector_of(k), sum[k]);
    }
}

/* ---- judgement --------------------------------------------------------------------------------------------------------------- */

/* The words of a body's checksum: one of the front, one of headers, then of chunks. */
TG_DEVICE uint64_t *words_of(const tg_gpu_pass &p, const tg_gpu_judging &j, uint32_t body)
{
    return j.words + (uint64_t)body * (2 + p.chunk_n);
}

/* Hashes of a chunk, a warp a body. */
TG_DEVICE void hash_chunk(uint64_t *space, const tg_gpu_pass &p, const tg_gpu_judging &j, uint32_t chunk,
                          uint32_t leaf_n)
{
    for (uint32_t b = threadIdx.x / TG_WARP; b < j.bodies.n; b += WARPS) {
        const uint64_t *leaves = hashes_of(p, j, b, chunk);
        uint64_t hash = leaf_n == 1 ? __ldcg(leaves) : tg_hash_words(space, leaves, leaf_n);
        if (threadIdx.x % TG_WARP == 0) {
            words_of(p, j, b)[2 + chunk] = hash;
        }
    }
}

/* Compares the checksum of a body with that of its words, by a warp. Hashes of leaves of the words take their place. */
TG_DEVICE void judge_body(uint64_t *space, const tg_gpu_pass &p, const tg_gpu_judging &j, uint32_t body)
{
    uint32_t lane = threadIdx.x % TG_WARP, n = 2 + p.chunk_n, each = TG_LEAF_BYTES / 8, leaf_n = (n + each - 1) / each;
    uint64_t *words = words_of(p, j, body), hash = 0;
    if (lane == 0) {
        words[0] = j.fronts[body];
        words[1] = TG_HASH_OF_NOTHING; /* there are no headers */
    }
    __syncwarp();
    TG_ROLL
    for (uint32_t leaf = 0; leaf < leaf_n; leaf++) {
        hash = tg_hash_words(space, words + leaf * each, min(n - leaf * each, each));
        __syncwarp();
        if (lane == 0) {
            words[leaf] = hash;
        }
        __syncwarp();
    }
    hash = leaf_n == 1 ? hash : tg_hash_words(space, words, leaf_n);
    if (lane == 0 && tg_xxh_load(j.bodies.at[body] + j.body_len, 8) != hash) {
        uint32_t own = 0xffffffffu - (j.number + body);
        *j.late_to = max(atomicMax(j.late, own), own);
    }
}

__global__ static void __launch_bounds__(THREADS)
    average_leaves(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_judging j,
                   const __grid_constant__ tg_gpu_averaging to)
{
    __shared__ uint4 spaces[WARPS][TG_LEAF_VECTORS];
    __shared__ block_sums added;
    uint64_t *space = (uint64_t *)(void *)spaces[threadIdx.x / TG_WARP];
    if (p.leaf_n > 0) { /* else bodies are empty */
        const tg_gpu_leaf leaf = p.leaves[blockIdx.x];
        const tg_gpu_chunk &chunk = p.chunks[leaf.chunk];
        const tg_gpu_unit &u = p.units[leaf.unit];
        uint32_t i = leaf.chunk - p.first, from = leaf.number * TG_LEAF_BYTES,
                 len = min(chunk.len - from, TG_LEAF_BYTES);
        uint32_t first = from / u.plain_len, n = len / u.plain_len, before;
        results r = results_of(p, to, chunk, u, first, n);
        const float *sums = to.is_first ? nullptr : p.space.sums + u.flat_at + (r.at - u.lo);
        const addends a = {&j.bodies, &u, sums, chunk.body_at + from};
        bool are_aligned = j.are_aligned && a.in_body % 16 == 0;
        if (len < TG_LEAF_BYTES) {
            hash_part(spaces, p, j, a.in_body, len, i, leaf.number);
            before = tg_block_arrives(j.done + 1 + i);
            for (uint32_t k = threadIdx.x; k < n; k += THREADS) {
                store_one(p, a, r, k, sum_one(a, k));
            }
        } else if (u.plain_len == 2) {
            float sum[VECTORS][8];
            add_leaf<8>(sum, added, a, are_aligned);
            hash_whole(p, j, added, i, leaf.number);
            before = tg_block_arrives(j.done + 1 + i);
            store_leaf<8>(p, a, r, sum);
        } else {
            float sum[VECTORS][4];
            add_leaf<4>(sum, added, a, are_aligned);
            hash_whole(p, j, added, i, leaf.number);
            before = tg_block_arrives(j.done + 1 + i);
            store_leaf<4>(p, a, r, sum);
        }
        uint32_t leaf_n = (chunk.len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
        if (!tg_block_is_last(j.done + 1 + i, before, leaf_n)) {
            return;
        }
        hash_chunk(space, p, j, i, leaf_n);
        if (!tg_block_is_last(j.done, tg_block_arrives(j.done), p.chunk_n)) {
            return;
        }
    }
    for (uint32_t b = threadIdx.x / TG_WARP; b < j.bodies.n; b += WARPS) {
        judge_body(space, p, j, b);
    }
}

void tg_gpu_average_plain(const tg_gpu_pass *p, const tg_gpu_judging *j, const tg_gpu_averaging *to)
{
    TG_LAUNCH(average_leaves, p->leaf_n > 0 ? p->leaf_n : 1, THREADS, p->stream, *p, *j, *to);
}
