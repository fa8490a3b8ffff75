/* mxfp8, mxfp4 and nvfp4 on the GPU; see routes/blocks.c and blocks.h. A block takes a tile, a warp spans of 128 values of it. nvfp4
 * takes the largest magnitude of a chunk first, which waits in space.overflows. */
#include "exec/cuda/blocks.h"
#include "exec/cuda/quantize_buckets.h"

enum { THREADS = 256, WARPS = THREADS / 32, SPAN_DRAWS = TG_SPAN / TG_DRAWS_EACH + 1 };

TG_DEVICE bool is_mine(const tg_gpu_pass &p, uint32_t number, bool is_sparse)
{
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    return tg_is_scaled(u) && tg_unit_sends(u, is_sparse);
}

/* A value of a tile that is not finite in place, or not in place at all: by the policy. */
TG_DEVICE float load_value(const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t i)
{
    return b.is_sparse ? b.floats[i] : tg_bucket_element(p, b, i);
}

/* The span of a tile that begins with its value number `first`; 0 after the end. */
TG_DEVICE void load_span(float v[TG_SPAN_LANE], const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t first)
{
    uint32_t from = first + threadIdx.x % TG_WARP, most = TG_KEY_INF, n = b.n;
    if (b.floats != nullptr || b.halves != nullptr) {
        const float *floats = b.floats + from, *residual = b.residual + from;
        const uint16_t *halves = b.halves + from;
        bool is_half = b.halves != nullptr, is_bf16 = b.is_bf16, adds = b.residual != nullptr;
        most = 0;
        TG_UNROLL
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            bool has = from + 32 * k < n;
            if (is_half) {
                uint16_t half = has ? halves[32 * k] : (uint16_t)0;
                v[k] = is_bf16 ? tg_bf16_to_float(half) : tg_fp16_to_float(half);
            } else {
                v[k] = has ? floats[32 * k] : 0.0f;
            }
        }
        TG_UNROLL
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            v[k] = adds && from + 32 * k < n ? v[k] + b.decay * residual[32 * k] : v[k];
            most = max(most, tg_key(v[k]));
        }
    }
    if (most >= TG_KEY_INF) {
        TG_ROLL
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            float value = from + 32 * k < n ? load_value(p, b, from + 32 * k) : 0.0f;
            TG_UNROLL
            for (unsigned j = 0; j < TG_SPAN_LANE; j++) {
                v[j] = j == k ? value : v[j];
            }
        }
    }
}

/* use(place in the chunk, place in the tile, values of the chunk) for the spans of a warp in all tiles of a block; b is the tile, in
 * shared memory. */
template <class Use>
TG_DEVICE void each_span(const tg_gpu_pass &p, uint32_t blocks_each, bool is_sparse, tg_gpu_bucket &b, Use use)
{
    tg_gpu_tiles t = tg_tiles_of_block(p, blocks_each, is_sparse);
    uint32_t count = tg_value_count(p, t.chunk);
    for (uint32_t at = t.from; at < min(t.to, count); at += t.stride) {
        if (threadIdx.x == 0) {
            b = tg_bucket_of(p, t.chunk, at, TG_GPU_TILE, count);
        }
        __syncthreads();
        for (uint32_t first = threadIdx.x / TG_WARP * TG_SPAN; first < b.n; first += WARPS * TG_SPAN) {
            use(at + first, first, count);
        }
        __syncthreads(); /* readers of the tile are done */
    }
}

/* ---- the largest of a chunk -------------------------------------------------------------------------------------------------- */

__global__ static void clear_largest(tg_gpu_pass p, bool is_sparse)
{
    uint32_t number = blockIdx.x * THREADS + threadIdx.x;
    if (number < p.chunk_n && is_mine(p, p.first + number, is_sparse) &&
        p.units[p.chunks[p.first + number].unit].head_len != 0) {
        p.space.overflows[p.first + number] = 0;
    }
}

__global__ static void __launch_bounds__(THREADS) find_largest(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    __shared__ tg_gpu_bucket b;
    uint32_t chunk = tg_tiles_of_block(p, blocks_each, is_sparse).chunk, largest = 0;
    const tg_gpu_unit &u = p.units[p.chunks[chunk].unit];
    if (!is_mine(p, chunk, is_sparse) || u.head_len == 0) {
        return;
    }
    each_span(p, blocks_each, is_sparse, b, [&](uint32_t at, uint32_t first, uint32_t count) {
        float v[TG_SPAN_LANE];
        load_span(v, p, b, first);
        if (u.rotation != 0) {
            tg_rotate(v, u, at, count);
        }
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            largest = max(largest, tg_key(v[k]));
        }
    });
    largest = __reduce_max_sync(TG_ALL_LANES, largest);
    if (threadIdx.x % TG_WARP == 0 && largest != 0) {
        atomicMax(&p.space.overflows[chunk], largest);
    }
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------------ */

/* The key of the largest magnitude of the block of each of a lane's values. */
TG_DEVICE void largest_of_blocks(uint32_t key[TG_SPAN_LANE], const float v[TG_SPAN_LANE], uint32_t block)
{
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        key[k] = tg_key(v[k]);
        for (unsigned by = 1; by < min(block, TG_WARP); by *= 2) {
            key[k] = max(key[k], __shfl_xor_sync(TG_ALL_LANES, key[k], (int)by));
        }
    }
    if (block >= 64) {
        key[0] = key[1] = max(key[0], key[1]);
        key[2] = key[3] = max(key[2], key[3]);
    }
    if (block >= 128) {
        key[0] = key[1] = key[2] = key[3] = max(key[0], key[2]);
    }
}

/* What all values of a chunk share. */
typedef struct rounding {
    tg_gpu_small f;
    bool is_nv, is_random;
    float whole; /* of nvfp4 */
    uint64_t key;
} rounding;

/* The scale of a block, as it is written. */
TG_DEVICE uint32_t scale_of(const rounding &r, uint32_t key)
{
    if (r.is_nv) {
        const tg_gpu_small e4m3 = tg_small_e4m3();
        if (!(r.whole > 0)) {
            return 0;
        }
        float quotient = __uint_as_float(key) / (6 * r.whole), limited = quotient < e4m3.largest ? quotient : e4m3.largest;
        uint32_t symbol = tg_small_nearest(limited, e4m3);
        return symbol + (r.is_random && tg_small_value(symbol, e4m3) < limited ? 1 : 0);
    }
    if (key >= TG_KEY_INF) {
        return TG_BLOCK_NAN;
    }
    uint32_t exponent = (key >> 23) + (r.is_random && (key & 0x7fffffu) > r.f.fraction ? 1 : 0);
    exponent = exponent > r.f.exponent ? exponent - r.f.exponent : 0;
    return min(exponent, 254 - r.f.exponent);
}

/* A magnitude over its scale, at most the largest value of the format. */
TG_DEVICE float over_scale(const rounding &r, float value, uint32_t scale)
{
    float magnitude = 0;
    if (r.is_nv) {
        float step = tg_small_value(scale, tg_small_e4m3()) * r.whole;
        magnitude = step > 0 ? fabsf(value) / step : 0.0f;
    } else {
        magnitude = fabsf(value) * __uint_as_float((254 - scale) << 23);
    }
    return magnitude < r.f.largest ? magnitude : r.f.largest;
}

/* The symbol of value number `at` of a unit, by 16 random bits where it is random, and by all where they do not decide. */
TG_DEVICE uint32_t round_one(const tg_gpu_pass &p, const rounding &r, float value, uint32_t scale, uint32_t draw, uint64_t at)
{
    if ((!r.is_nv && scale == TG_BLOCK_NAN) || r.whole != r.whole) {
        return 0;
    }
    float magnitude = over_scale(r, value, scale);
    uint32_t sign = __float_as_uint(value) >> 31 != 0 ? r.f.sign : 0u;
    if (!r.is_random) {
        return tg_small_nearest(magnitude, r.f) | sign;
    }
    uint32_t binade = tg_small_binade(magnitude, r.f);
    float steps = magnitude * __uint_as_float((254 + r.f.fraction_bits - binade) << 23);
    uint32_t below = (uint32_t)steps;
    float rest = steps - (float)below;
    int lead = tg_lead({__float_as_uint(fmaf(rest, 65536.0f, 0x1p23f)), 0, 0}, draw);
    bool is_up = lead < 0;
    if (lead == 0 || lead == 1) {
        is_up = tg_draws_below(tg_draw_bits(r.key, at, p.is_answer), 1.0f, rest);
    }
    return (below + (is_up ? 1 : 0) + ((binade - (128 - r.f.bias)) << r.f.fraction_bits)) | sign;
}

TG_DEVICE rounding rounding_of(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t chunk)
{
    rounding r = {tg_small_of(u), u.quantize == TG_GPU_NVFP4, false, 0, 0};
    r.is_random = u.draws != 0;
    r.key = r.is_random ? tg_stream_key(p.seed, tg_step_of(p), p.chunks[chunk].unit, p.rank + 1) : 0;
    if (r.is_nv) {
        uint32_t largest = p.space.overflows[chunk];
        r.whole = largest < TG_KEY_INF ? __uint_as_float(largest) / (448.0f * 6.0f) : __uint_as_float(TG_ONE_NAN);
    }
    return r;
}

/* Rounds the span that begins with value number `first` of a tile, `at` of the chunk, and stores all of it. `side` is that of the
 * chunk; `draws` has space for those of a span. */
TG_DEVICE void round_span(const tg_gpu_pass &p, const tg_gpu_unit &u, const rounding &r, const tg_gpu_bucket &b,
                          uint4 *draws, uint8_t *side, uint32_t at, uint32_t first, uint32_t count)
{
    uint32_t lane = threadIdx.x % TG_WARP, from = first + lane, keys[TG_SPAN_LANE], bad = 0;
    float v[TG_SPAN_LANE], turned[TG_SPAN_LANE];
    load_span(v, p, b, first);
    const uint16_t *drawn = nullptr;
    if (r.is_random) {
        drawn = tg_draw_leaf(draws, r.key, b.at + first, min((uint32_t)TG_SPAN, b.n - first), p.is_answer);
    }
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        turned[k] = v[k];
    }
    if (u.rotation != 0) {
        tg_rotate(turned, u, at, count);
    }
    largest_of_blocks(keys, turned, u.bucket_n);
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        uint32_t i = from + 32 * k, place = at + lane + 32 * k, scale = scale_of(r, keys[k]);
        uint32_t draw = r.is_random && i < b.n ? drawn[lane + 32 * k] : 0;
        uint32_t symbol = round_one(p, r, turned[k], scale, draw, b.at + i);
        if (i < b.n) {
            b.symbols[i] = (uint8_t)symbol;
            if (place % u.bucket_n == 0) {
                side[u.head_len + place / u.bucket_n] = (uint8_t)scale;
            }
        }
        float step = r.is_nv ? tg_small_value(scale, tg_small_e4m3())
                             : __uint_as_float(scale == TG_BLOCK_NAN ? TG_ONE_NAN : scale == 0 ? 0x00400000u : scale << 23);
        turned[k] = tg_small_value(symbol, r.f) * step;
        turned[k] = tg_one_nan(r.is_nv ? turned[k] * r.whole : turned[k]);
    }
    if (b.next == nullptr) {
        return; /* of all lanes */
    }
    if (u.rotation != 0) {
        tg_turn_back(turned, u, at, count);
    }
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        bool is_fine = from + 32 * k >= b.n || tg_keep_residual(b, from + 32 * k, v[k] - turned[k]);
        bad |= (is_fine ? 0u : 1u) << k;
    }
    tg_refuse_residuals(p, b, from, bad);
}

__global__ static void __launch_bounds__(THREADS) round_blocks(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    __shared__ tg_gpu_bucket b;
    __shared__ uint4 draws[WARPS][SPAN_DRAWS];
    uint32_t chunk = tg_tiles_of_block(p, blocks_each, is_sparse).chunk;
    if (!is_mine(p, chunk, is_sparse)) {
        return;
    }
    const tg_gpu_unit &u = p.units[p.chunks[chunk].unit];
    const rounding r = rounding_of(p, u, chunk);
    uint8_t *side = p.space.out[chunk] + p.space.views[chunk].side;
    each_span(p, blocks_each, is_sparse, b, [&](uint32_t at, uint32_t first, uint32_t count) {
        if (r.is_nv && at == 0 && threadIdx.x % TG_WARP == 0) {
            tg_store_float(side, r.whole);
        }
        round_span(p, u, r, b, draws[threadIdx.x / TG_WARP], side, at, first, count);
    });
}

void tg_launch_blocks(const tg_gpu_pass *p, bool is_sparse)
{
    uint32_t each = is_sparse ? tg_blocks_each(p->chunk_n) : 1, blocks = is_sparse ? p->chunk_n * each : p->tile_n;
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_BLOCKS)) {
        return;
    }
    if (tg_pass_has(p, TG_KIND_HEAD)) {
        TG_LAUNCH(clear_largest, (p->chunk_n + THREADS - 1) / THREADS, THREADS, p->stream, *p, is_sparse);
        TG_LAUNCH(find_largest, blocks, THREADS, p->stream, *p, each, is_sparse);
    }
    TG_LAUNCH(round_blocks, blocks, THREADS, p->stream, *p, each, is_sparse);
}
