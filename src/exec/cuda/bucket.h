/* A bucket of a chunk on the GPU: loads its values, and stores symbols and residuals.
 *
 * A warp loads a leaf, 1,024 values, into registers: lane l has values l, l + 32, ... of it, as sums by leaves need them. Values
 * that lie side by side in one tensor and are finite are loaded in place; all others element by element, by load.h. */
#ifndef TG_EXEC_CUDA_BUCKET_H
#define TG_EXEC_CUDA_BUCKET_H

#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/sums.h"

typedef struct tg_gpu_bucket {
    const tg_gpu_unit *u;
    uint32_t unit, n;
    uint64_t at;               /* of its first value in the unit; of a sparse chunk: of the chunk, plus its number */
    const float *floats;       /* its values in place, or ... */
    const uint16_t *halves;    /* ... in half precision; NULL both: element by element */
    const float *residual;     /* that is added to them; NULL: none */
    float *next;               /* where the next residual goes; NULL: there is none */
    const uint32_t *positions; /* of sparse values, relative to next */
    uint64_t next_at;          /* of next[0] in the unit */
    uint8_t *symbols, *side;
    float decay;
    bool is_bf16, is_wide; /* symbols of 2 bytes */
    bool is_sparse;
} tg_gpu_bucket;

/* Finds where values are in place, if they are: in the piece of their first one, whole. */
TG_DEVICE void tg_bucket_find(tg_gpu_bucket &b, const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece &piece)
{
    const float clip = p.space.clips[b.unit];
    const uint64_t in_flat = u.flat_at + (b.at - u.lo);
    TG_LOADED(in_flat);
    bool is_plain = u.feedback != TG_GPU_FEEDBACK_MOMENTUM || u.planes == 0;
    b.floats = nullptr;
    b.halves = nullptr;
    if (!is_plain || clip != 1.0f || b.at < piece.at || b.at + b.n > piece.at + piece.n) {
        return;
    }
    if (p.flat != nullptr) {
        b.floats = p.flat + in_flat;
    } else if (piece.dtype == 0) {
        b.floats = (const float *)tg_grad_of(p, piece.tensor) + (b.at - piece.at);
    } else {
        b.halves = (const uint16_t *)tg_grad_of(p, piece.tensor) + (b.at - piece.at);
        b.is_bf16 = piece.dtype == 2;
    }
}

/* Whether values of a unit are sent, all of them or, with `is_sparse`, those of some coordinates. */
__host__ __device__ static __forceinline__ bool tg_unit_sends(const tg_gpu_unit &u, bool is_sparse)
{
    const bool has_values = u.route != TG_GPU_ROUTE_NONE && u.route != TG_GPU_ROUTE_LEADER;
    return ((u.coordinates != TG_GPU_AT_EVERY) == is_sparse) & has_values;
}

/* The values from number `first` on, up to `n`, of a chunk that has `count` of them. */
TG_DEVICE tg_gpu_bucket tg_bucket_of(const tg_gpu_pass &p, uint32_t chunk_number, uint32_t first, uint32_t n,
                                     uint32_t count)
{
    const tg_gpu_chunk &chunk = p.chunks[chunk_number];
    const uint64_t side = p.space.views[chunk_number].side;
    uint8_t *const out = p.space.out[chunk_number]; /* what depends on the chunk is loaded at once */
    TG_LOADED(side);
    TG_LOADED(out);
    const tg_gpu_unit &u = p.units[chunk.unit];
    const uint64_t lo = u.lo, residual_at = u.residual_at;
    TG_LOADED(lo);
    TG_LOADED(residual_at);
    tg_gpu_bucket b;
    b.u = &u;
    b.unit = chunk.unit;
    b.n = count - first < n ? count - first : n;
    b.at = chunk.at + first;
    b.is_sparse = u.coordinates != TG_GPU_AT_EVERY;
    b.is_wide = u.base > 256;
    b.is_bf16 = false;
    b.symbols = p.space.symbols + 2 * chunk.element_at + (uint64_t)first * (b.is_wide ? 2 : 1);
    b.side = out + side;
    b.side += u.bucket_n == 0 ? 0 : (uint64_t)(first / u.bucket_n) * u.side_len;
    b.decay = (float)u.feedback_params[0];
    b.next_at = b.is_sparse ? chunk.at : b.at;
    b.next = u.planes > 0 ? p.next + residual_at + (b.next_at - lo) : nullptr;
    b.positions = nullptr;
    b.residual = nullptr;
    b.halves = nullptr;
    if (b.is_sparse) {
        b.floats = p.space.values + chunk.element_at + first;
        b.positions = p.space.positions + chunk.element_at + first;
    } else {
        b.residual = u.planes > 0 ? p.now + residual_at + (b.at - lo) : nullptr;
        tg_bucket_find(b, p, u, *tg_piece_at(p, u, b.at));
    }
    return b;
}

/* How many values of a chunk are sent. */
TG_DEVICE uint32_t tg_value_count(const tg_gpu_pass &p, uint32_t chunk)
{
    return p.units[p.chunks[chunk].unit].coordinates == TG_GPU_AT_EVERY ? p.chunks[chunk].n
                                                                        : p.space.views[chunk].count;
}

/* Tiles that a block takes where values share nothing: one of a dense chunk, or of a sparse one every so manieth. */
typedef struct tg_gpu_tiles {
    uint32_t chunk, from, to, stride;
} tg_gpu_tiles;

TG_DEVICE tg_gpu_tiles tg_tiles_of_block(const tg_gpu_pass &p, uint32_t blocks_each, bool is_sparse)
{
    if (is_sparse) {
        return {p.first + blockIdx.x / blocks_each, blockIdx.x % blocks_each * TG_GPU_TILE, 0xffffffffu,
                blocks_each * TG_GPU_TILE};
    }
    tg_gpu_tile tile = p.tiles[blockIdx.x];
    return {tile.chunk, tile.from, tile.from + TG_GPU_TILE, TG_GPU_TILE};
}

TG_DEVICE uint32_t tg_key(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

#define TG_KEY_INF 0x7f800000u

/* A key that orders as values do; 0 and -0 have the same. Keys of neighbours are 1 apart, so that halving ends. */
TG_DEVICE uint32_t tg_order_of(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits >> 31 != 0 ? 0u - bits : bits | 0x80000000u;
}

TG_DEVICE float tg_from_order(uint32_t key)
{
    return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : 0u - key);
}

/* One value, by the policy for NaN and Inf, clips and feedback; updates what the feedback keeps beside the residual. */
TG_DEVICE float tg_bucket_element(const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t i)
{
    const tg_gpu_unit &u = *b.u;
    const tg_gpu_piece *piece = tg_piece_at(p, u, b.at + i);
    float g = tg_load_gradient(p, u, b.unit, piece, b.at + i);
    float sum = tg_add_residual(p, u, piece, g, b.at + i);
    tg_keep_state(p, u, g, b.at + i, false);
    return g != g ? tg_quiet(g) : sum; /* the NaN that a CPU would give */
}

/* v[k] = value, for a k that is not known when this is compiled, so that v stays in registers. */
TG_DEVICE void tg_lane_put(float v[TG_LANE_N], unsigned k, float value)
{
    TG_UNROLL
    for (unsigned j = 0; j < TG_LANE_N; j++) {
        v[j] = j == k ? value : v[j];
    }
}

TG_DEVICE float tg_lane_get(const float v[TG_LANE_N], unsigned k)
{
    float value = 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_LANE_N; j++) {
        value = j == k ? v[j] : value;
    }
    return value;
}

/* With IS_WHOLE, no value of the leaf is after the end of the bucket. */
template <bool IS_WHOLE> TG_DEVICE void tg_load_in_place(float v[TG_LANE_N], const tg_gpu_bucket &b, uint32_t from)
{
    uint32_t n = b.n;
    if (b.halves == nullptr) {
        const float *floats = b.floats + from;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            v[k] = IS_WHOLE || from + 32 * k < n ? floats[32 * k] : 0.0f;
        }
    } else {
        const uint16_t *halves = b.halves + from;
        bool is_bf16 = b.is_bf16;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            uint16_t half = IS_WHOLE || from + 32 * k < n ? halves[32 * k] : (uint16_t)0;
            v[k] = is_bf16 ? tg_bf16_to_float(half) : tg_fp16_to_float(half);
        }
    }
    if (b.residual != nullptr) {
        const float *residual = b.residual + from;
        float decay = b.decay;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            v[k] = IS_WHOLE || from + 32 * k < n ? v[k] + decay * residual[32 * k] : 0.0f;
        }
    }
}

/* A leaf of a bucket into a warp's registers, 0 after its end. Returns the largest key of a lane's values. */
TG_DEVICE uint32_t tg_load_leaf(float v[TG_LANE_N], const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf)
{
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP, most = TG_KEY_INF;
    if (b.floats != nullptr || b.halves != nullptr) {
        if ((leaf + 1) * TG_LEAF_N <= b.n) {
            tg_load_in_place<true>(v, b, from);
        } else {
            tg_load_in_place<false>(v, b, from);
        }
        most = 0;
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            most = max(most, tg_key(v[k]));
        }
    }
    if (most < TG_KEY_INF || b.is_sparse) {
        return most;
    }
    most = 0;
    TG_ROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        float value = from + 32 * k < b.n ? tg_bucket_element(p, b, from + 32 * k) : 0.0f;
        tg_lane_put(v, k, value);
        most = max(most, tg_key(value));
    }
    return most;
}

TG_DEVICE void tg_store_symbol(const tg_gpu_bucket &b, uint32_t i, unsigned symbol)
{
    if (b.is_wide) {
        ((uint16_t *)(void *)b.symbols)[i] = (uint16_t)symbol;
    } else {
        b.symbols[i] = (uint8_t)symbol;
    }
}

/* The next residual of value i; returns whether it is finite. It is 0 if it is not. */
TG_DEVICE bool tg_keep_residual(const tg_gpu_bucket &b, uint32_t i, float residual)
{
    bool is_fine = tg_is_finite(residual);
    b.next[b.positions != nullptr ? b.positions[i] : i] = is_fine ? residual : 0.0f;
    return is_fine;
}

/* Refuses the tensors of values whose residual is not finite, if the policy does so; bit k of `bad` is value from + 32 k. */
TG_DEVICE void tg_refuse_residuals(const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t from, uint32_t bad)
{
    for (; bad != 0 && p.nonfinite == TG_GPU_ERROR; bad &= bad - 1) {
        uint32_t i = from + 32 * ((unsigned)__ffs((int)bad) - 1);
        uint64_t at = b.next_at + (b.positions != nullptr ? b.positions[i] : i);
        tg_refuse_residual(p, tg_piece_at(p, *b.u, at)->tensor);
    }
}

TG_DEVICE void tg_store32(uint8_t *at, uint32_t value)
{
    tg_store_bytes(at, value, 4);
}

TG_DEVICE void tg_store_float(uint8_t *at, float value)
{
    tg_store_bytes(at, __float_as_uint(value), 4);
}

TG_DEVICE float tg_read_float(const uint8_t *at)
{
    return __uint_as_float(tg_load32(at));
}

#endif
