/* Sums to where they belong: averages in the dtypes of tensors, or the domain laid end to end. Those of plain values are computed on the
 * way, of all bodies at once. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"
#include "exec/cuda/plain_fours.h"
#include "exec/cuda/values.h"

enum { THREADS = 256, FOURS = TG_GPU_TILE / THREADS / 4 }; /* a thread's part of a whole tile */

/* The average of values that were scaled by `share`, as tg_average_shared of kernels/range.c. */
TG_DEVICE float average_shared(float sum, float share, uint32_t value_n)
{
    float average = tg_with_nan(sum / ((float)value_n * share), sum, sum);
    return tg_is_finite(sum) && !tg_is_finite(average) ? copysignf(TG_FLOAT_MAX, average) : average;
}

TG_DEVICE float average_of(float sum, float divisor)
{
    return tg_with_nan(sum / divisor, sum, sum);
}

TG_DEVICE bool is_aligned(const void *at)
{
    return (uintptr_t)at % sizeof(float4) == 0;
}

/* Where the average of a tensor goes. */
TG_DEVICE void *average_of_tensor(const tg_gpu_pass &p, void *const *averages, uint32_t tensor)
{
    return averages != nullptr ? averages[tensor] : (void *)(uintptr_t)p.few[tensor];
}

/* Where the average of one element is in its tensor. */
typedef struct spot {
    void *to;
    uint64_t place;
    uint32_t dtype;
} spot;

/* Element `at` of a unit; `near` is a piece that it may be in. */
TG_DEVICE spot spot_of(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *near, void *const *averages, uint64_t at)
{
    const tg_gpu_piece *piece = at < near->at + near->n ? near : tg_piece_at(p, u, at);
    return {average_of_tensor(p, averages, piece->tensor), at - piece->at, piece->dtype};
}

TG_DEVICE void store_average(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *near, void *const *averages, uint64_t at,
                             float average)
{
    spot s = spot_of(p, u, near, averages, at);
    if (s.dtype == 0) {
        ((float *)s.to)[s.place] = average;
    } else {
        ((uint16_t *)s.to)[s.place] = s.dtype == 1 ? tg_float_to_fp16(average) : tg_float_to_bf16(average);
    }
}

/* Whether the average that was stored last is finite. */
TG_DEVICE bool is_stored_finite(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *near, void *const *averages, uint64_t at)
{
    spot s = spot_of(p, u, near, averages, at);
    if (s.dtype == 0) {
        return tg_is_finite(((const float *)s.to)[s.place]);
    }
    uint16_t exponent = s.dtype == 1 ? 0x7c00 : 0x7f80;
    return (((const uint16_t *)s.to)[s.place] & exponent) != exponent;
}

/* A whole tile of one tensor in fp32, four elements at a time. Returns whether an average of this thread is not finite. */
TG_DEVICE bool deliver_tile(float *to, const float *sums, float divisor)
{
    float4 four[FOURS];
    bool overflows = false;
    TG_UNROLL
    for (unsigned k = 0; k < FOURS; k++) {
        four[k] = ((const float4 *)(const void *)sums)[threadIdx.x + k * THREADS];
    }
    TG_UNROLL
    for (unsigned k = 0; k < FOURS; k++) {
        float4 out = make_float4(average_of(four[k].x, divisor), average_of(four[k].y, divisor), average_of(four[k].z, divisor),
                                 average_of(four[k].w, divisor));
        overflows = overflows || !tg_is_finite(out.x) || !tg_is_finite(out.y) || !tg_is_finite(out.z) || !tg_is_finite(out.w);
        ((float4 *)(void *)to)[threadIdx.x + k * THREADS] = out;
    }
    return overflows;
}

__global__ static void __launch_bounds__(THREADS) deliver(tg_gpu_pass p, void *const *averages, float *flat, float divisor, float share,
                               uint32_t value_n)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (share > 0 && p.space.overflows[tile.chunk] == 0) {
        return;
    }
    uint32_t n = chunk.n - tile.from < TG_GPU_TILE ? chunk.n - tile.from : (uint32_t)TG_GPU_TILE;
    uint64_t at = chunk.at + tile.from;
    const float *sums = p.space.sums + u.flat_at + (at - u.lo);
    const tg_gpu_piece *first = tg_piece_at(p, u, at);
    bool overflows = false;
    float *to = flat != nullptr ? flat + u.flat_at + (at - u.lo) : (float *)average_of_tensor(p, averages, first->tensor) + (at - first->at);
    bool is_whole = n == TG_GPU_TILE && share == 0 && is_aligned(sums) && is_aligned(to) &&
                    (flat != nullptr || (first->dtype == 0 && at + n <= first->at + first->n));
    if (is_whole) {
        overflows = deliver_tile(to, sums, divisor);
        n = 0;
    }
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        if (share > 0 && (flat != nullptr ? tg_is_finite(to[i]) : is_stored_finite(p, u, first, averages, at + i))) {
            continue; /* as average_scaled of exec/host_sum.c */
        }
        float average = share > 0 ? average_shared(sums[i], share, value_n) : average_of(sums[i], divisor);
        overflows = overflows || !tg_is_finite(average);
        if (flat != nullptr) {
            to[i] = average;
            continue;
        }
        store_average(p, u, first, averages, at + i, average);
    }
    if (overflows && share == 0 && divisor != 1.0f && divisor == (float)value_n) {
        atomicOr(&p.verdict->overflows, 1u);
        p.space.overflows[tile.chunk] = 1;
    }
}

void tg_gpu_deliver(const tg_gpu_pass *p, void *const *averages, float *flat, float divisor, float share, uint32_t value_n)
{
    TG_LAUNCH(deliver, p->tile_n, THREADS, p->stream, *p, averages, flat, divisor, share, value_n);
}

/* ---- plain values of several bodies ---------------------------------------------------------------------------------------- */

/* The bodies of a tile: where its values are in each, and what they are added to. */
typedef struct addends {
    const uint8_t *bytes[TG_GPU_BODIES];
    const float *sums; /* NULL: the first body sets */
    uint32_t n;
    bool are_aligned; /* to four values */
} addends;

/* One element as a CPU adds it, NaNs included. */
TG_DEVICE float sum_slowly(const addends &a, const tg_gpu_unit &u, uint32_t i)
{
    float sum = a.sums != nullptr ? a.sums[i] : a.n > 0 ? tg_plain_value(u, a.bytes[0], i) : 0.0f;
    TG_ROLL
    for (uint32_t b = a.sums != nullptr ? 0 : 1; b < a.n; b++) {
        sum = tg_plus(sum, tg_plain_value(u, a.bytes[b], i));
    }
    return sum;
}

/* The whole fours of this thread in a tile of n elements. All words of BATCH bodies are under way before the first is used. */
template <unsigned WORDS, unsigned BATCH>
TG_DEVICE void sum_fours(float4 sum[TG_FOURS], const addends &a, const tg_gpu_unit &u, uint32_t n)
{
    bool is_bf16 = u.quantize == TG_GPU_BF16;
    uint32_t last = (n / TG_FOUR - 1) * TG_FOUR;
    TG_UNROLL
    for (uint32_t k = 0; k < TG_FOURS; k++) { /* -0 and a value are the value, be it -0 */
        bool has = a.sums != nullptr && tg_four_at(k) + TG_FOUR <= n;
        sum[k] = has ? *(const float4 *)(const void *)(a.sums + tg_four_at(k)) : make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    }
    TG_ROLL
    for (uint32_t from = 0; from < a.n; from += BATCH) {
        uint32_t words[BATCH][TG_FOURS][WORDS];
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint8_t *bytes = a.bytes[min(from + b, a.n - 1)];
            TG_UNROLL
            for (uint32_t k = 0; k < TG_FOURS; k++) {
                uint32_t i = min(tg_four_at(k), last); /* instead of a four that is not in the tile */
                if (BATCH > 1) {
                    tg_load_aligned<WORDS>(words[b][k], bytes + i * WORDS);
                } else {
                    tg_load_words<WORDS>(words[b][k], bytes + i * WORDS);
                }
            }
        }
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            TG_UNROLL
            for (uint32_t k = 0; k < TG_FOURS; k++) {
                float4 v = tg_plain_four<WORDS>(words[b][k], is_bf16), s = sum[k];
                if (from + b < a.n) {
                    sum[k] = make_float4(s.x + v.x, s.y + v.y, s.z + v.z, s.w + v.w);
                }
            }
        }
    }
}

/* The same, by the width of values and where they are. */
TG_DEVICE void sum_any_fours(float4 sum[TG_FOURS], const addends &a, const tg_gpu_unit &u, uint32_t n)
{
    if (u.plain_len == 2 && a.are_aligned) {
        sum_fours<2, 4>(sum, a, u, n);
    } else if (u.plain_len == 2) {
        sum_fours<2, 1>(sum, a, u, n);
    } else if (a.are_aligned) {
        sum_fours<4, 2>(sum, a, u, n);
    } else {
        sum_fours<4, 1>(sum, a, u, n);
    }
}

__global__ static void __launch_bounds__(TG_FOURS_THREADS)
    average_plain(tg_gpu_pass p, tg_gpu_bodies bodies, bool is_first, void *const *averages, float divisor, bool delivers)
{
    __shared__ addends a;
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    const tg_gpu_piece *piece = p.pieces + tile.piece;
    float *sums = p.space.sums + u.flat_at + (tile.at - u.lo);
    bool are_aligned = true;
    if (threadIdx.x < bodies.n) {
        const uint8_t *bytes = bodies.at[threadIdx.x] + p.chunks[tile.chunk].body_at + (uint64_t)tile.from * u.plain_len;
        a.bytes[threadIdx.x] = bytes;
        are_aligned = u.plain_len != 0 && (uintptr_t)bytes % (4 * u.plain_len) == 0;
    }
    are_aligned = __syncthreads_and(are_aligned ? 1 : 0) != 0;
    if (threadIdx.x == 0) {
        a.sums = is_first ? nullptr : sums;
        a.n = tg_unit_sends(u, false) ? bodies.n : 0;
        a.are_aligned = are_aligned;
    }
    __syncthreads();
    float *to = delivers ? nullptr : sums;
    if (delivers && piece->dtype == 0 && tile.is_whole) {
        to = (float *)average_of_tensor(p, averages, piece->tensor) + (tile.at - piece->at);
    }
    bool has_fours = is_aligned(sums) && is_aligned(to) && tile.n >= TG_FOUR && a.n > 0;
    float4 sum[TG_FOURS];
    if (has_fours) {
        sum_any_fours(sum, a, u, tile.n);
    }
    TG_UNROLL
    for (uint32_t k = 0; k < TG_FOURS; k++) {
        uint32_t i = tg_four_at(k);
        if (!has_fours || i + TG_FOUR > tile.n) {
            continue;
        }
        float4 s = sum[k];
        if (tg_has_nan(s)) {
            s = make_float4(sum_slowly(a, u, i), sum_slowly(a, u, i + 1), sum_slowly(a, u, i + 2), sum_slowly(a, u, i + 3));
        }
        if (delivers) {
            s = make_float4(average_of(s.x, divisor), average_of(s.y, divisor), average_of(s.z, divisor), average_of(s.w, divisor));
        }
        if (to != nullptr) {
            *(float4 *)(void *)(to + i) = s;
        } else {
            store_average(p, u, piece, averages, tile.at + i, s.x);
            store_average(p, u, piece, averages, tile.at + i + 1, s.y);
            store_average(p, u, piece, averages, tile.at + i + 2, s.z);
            store_average(p, u, piece, averages, tile.at + i + 3, s.w);
        }
    }
    for (uint32_t i = (has_fours ? tile.n / TG_FOUR * TG_FOUR : 0) + threadIdx.x; i < tile.n; i += TG_FOURS_THREADS) {
        float s = sum_slowly(a, u, i);
        if (delivers) {
            store_average(p, u, piece, averages, tile.at + i, average_of(s, divisor));
        } else {
            sums[i] = s;
        }
    }
}

void tg_gpu_average_plain(const tg_gpu_pass *p, const tg_gpu_bodies *bodies, int is_first, int is_last, void *const *averages, float divisor)
{
    TG_LAUNCH(average_plain, p->tile_n, TG_FOURS_THREADS, p->stream, *p, *bodies, is_first != 0, averages, divisor, is_last != 0);
}
