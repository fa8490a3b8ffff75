/* Sums to where they belong: averages in the dtypes of tensors, or the domain laid end to end. */
#include "exec/cuda/deliver.h"
#include "exec/cuda/kernels.h"

enum { THREADS = 256, FOURS = TG_GPU_TILE / THREADS / 4 }; /* a thread's part of a whole tile */

/* The average of values that were scaled by `share`, as tg_average_shared of kernels/range.c. */
TG_DEVICE float average_shared(float sum, float share, uint32_t value_n)
{
    float average = tg_with_nan(sum / ((float)value_n * share), sum, sum);
    return tg_is_finite(sum) && !tg_is_finite(average) ? copysignf(TG_FLOAT_MAX, average) : average;
}

/* Whether the average that was stored last is finite. */
TG_DEVICE bool is_stored_finite(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *near, void *const *averages, uint64_t at)
{
    tg_spot s = tg_spot_of(p, u, near, averages, at);
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
        float4 out = make_float4(tg_average_of(four[k].x, divisor), tg_average_of(four[k].y, divisor), tg_average_of(four[k].z, divisor),
                                 tg_average_of(four[k].w, divisor));
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
    float *to = flat != nullptr ? flat + u.flat_at + (at - u.lo) : (float *)tg_average_tensor(p, averages, first->tensor) + (at - first->at);
    bool is_whole = n == TG_GPU_TILE && share == 0 && tg_is_aligned(sums) && tg_is_aligned(to) &&
                    (flat != nullptr || (first->dtype == 0 && at + n <= first->at + first->n));
    if (is_whole) {
        overflows = deliver_tile(to, sums, divisor);
        n = 0;
    }
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        if (share > 0 && (flat != nullptr ? tg_is_finite(to[i]) : is_stored_finite(p, u, first, averages, at + i))) {
            continue; /* as average_scaled of exec/host_sum.c */
        }
        float average = share > 0 ? average_shared(sums[i], share, value_n) : tg_average_of(sums[i], divisor);
        overflows = overflows || !tg_is_finite(average);
        if (flat != nullptr) {
            to[i] = average;
            continue;
        }
        tg_store_average(p, u, first, averages, at + i, average);
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
