/* mxfp8, mxfp4 and nvfp4 on the GPU; see routes/blocks.c and blocks.h. A warp takes a span of 128 values. nvfp4 takes the largest
 * magnitude of a chunk first, which waits in space.overflows. */
#include "exec/cuda/blocks.h"
#include "exec/cuda/philox.h"
#include "exec/cuda/quantize.h"

enum { THREADS = 256 };

TG_DEVICE bool is_mine(const tg_gpu_pass &p, uint32_t number, bool is_sparse)
{
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    return tg_is_scaled(u) && tg_unit_sends(u, is_sparse);
}

/* A value of a span: in place where that is finite, else by the policy. */
TG_DEVICE float load_value(const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t i)
{
    if (b.floats == nullptr && b.halves == nullptr) {
        return tg_bucket_element(p, b, i);
    }
    float v = b.floats != nullptr ? b.floats[i] : b.is_bf16 ? tg_bf16_to_float(b.halves[i]) : tg_fp16_to_float(b.halves[i]);
    v = b.residual != nullptr ? v + b.decay * b.residual[i] : v;
    return tg_is_finite(v) || b.is_sparse ? v : tg_bucket_element(p, b, i);
}

TG_DEVICE void load_span(float v[TG_SPAN_LANE], const tg_gpu_pass &p, const tg_gpu_bucket &b)
{
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        uint32_t i = threadIdx.x % TG_WARP + 32 * k;
        v[k] = i < b.n ? load_value(p, b, i) : 0.0f;
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
    tg_gpu_spans s = tg_spans_of_warp(p, blocks_each, is_sparse);
    const tg_gpu_unit &u = p.units[p.chunks[s.chunk].unit];
    if (!is_mine(p, s.chunk, is_sparse) || u.head_len == 0) {
        return;
    }
    uint32_t count = tg_value_count(p, s.chunk), largest = 0;
    for (uint32_t at = s.from; at < min(s.to, count); at += s.stride) {
        float v[TG_SPAN_LANE];
        load_span(v, p, tg_bucket_of(p, s.chunk, at, TG_SPAN, count));
        if (u.rotation != 0) {
            tg_rotate(v, u, at, count);
        }
        for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
            largest = max(largest, tg_key(v[k]));
        }
    }
    largest = __reduce_max_sync(TG_ALL_LANES, largest);
    if (threadIdx.x % TG_WARP == 0 && largest != 0) {
        atomicMax(&p.space.overflows[s.chunk], largest);
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

/* The symbol of value number `at` of a unit. */
TG_DEVICE uint32_t round_one(const tg_gpu_pass &p, const rounding &r, float value, uint32_t scale, uint64_t at)
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
    tg_decision is_up = tg_draw_below(tg_draw_half(r.key, at, TG_DRAWS_UPPER, p.is_answer), 1.0f, rest);
    bool up = is_up.is_certain ||
              (is_up.is_possible && tg_draw_unit(tg_draw_bits(r.key, at, p.is_answer)) * 1.0f < rest);
    return (below + (up ? 1 : 0) + ((binade - (128 - r.f.bias)) << r.f.fraction_bits)) | sign;
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

/* Rounds a span and stores all of it. `side` is that of the chunk. */
TG_DEVICE void round_span(const tg_gpu_pass &p, const tg_gpu_unit &u, const rounding &r, const tg_gpu_bucket &b,
                          uint8_t *side, uint32_t at, uint32_t count)
{
    uint32_t from = threadIdx.x % TG_WARP, keys[TG_SPAN_LANE], bad = 0;
    float v[TG_SPAN_LANE], turned[TG_SPAN_LANE];
    load_span(v, p, b);
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        turned[k] = v[k];
    }
    if (u.rotation != 0) {
        tg_rotate(turned, u, at, count);
    }
    largest_of_blocks(keys, turned, u.bucket_n);
    for (unsigned k = 0; k < TG_SPAN_LANE; k++) {
        uint32_t i = from + 32 * k, scale = scale_of(r, keys[k]);
        uint32_t symbol = round_one(p, r, turned[k], scale, b.at + i);
        if (i < b.n) {
            b.symbols[i] = (uint8_t)symbol;
            if ((at + i) % u.bucket_n == 0) {
                side[u.head_len + (at + i) / u.bucket_n] = (uint8_t)scale;
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
    tg_gpu_spans s = tg_spans_of_warp(p, blocks_each, is_sparse);
    if (!is_mine(p, s.chunk, is_sparse)) {
        return;
    }
    const tg_gpu_unit &u = p.units[p.chunks[s.chunk].unit];
    uint32_t count = tg_value_count(p, s.chunk);
    const rounding r = rounding_of(p, u, s.chunk);
    uint8_t *side = p.space.out[s.chunk] + p.space.views[s.chunk].side;
    for (uint32_t at = s.from; at < min(s.to, count); at += s.stride) {
        if (r.is_nv && at == 0 && threadIdx.x % TG_WARP == 0) {
            tg_store_float(side, r.whole);
        }
        round_span(p, u, r, tg_bucket_of(p, s.chunk, at, TG_SPAN, count), side, at, count);
    }
}

void tg_launch_blocks(const tg_gpu_pass *p, bool is_sparse)
{
    uint32_t each = is_sparse ? tg_blocks_each(p->chunk_n) : 1, blocks = is_sparse ? p->chunk_n * each : p->tile_n;
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_BLOCKS)) {
        return;
    }
    TG_LAUNCH(clear_largest, (p->chunk_n + THREADS - 1) / THREADS, THREADS, p->stream, *p, is_sparse);
    TG_LAUNCH(find_largest, blocks, THREADS, p->stream, *p, each, is_sparse);
    TG_LAUNCH(round_blocks, blocks, THREADS, p->stream, *p, each, is_sparse);
}
