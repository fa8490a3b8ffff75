/* LGC: vectors that are averaged, values at entries, sequences of the autoencoder, and innovations. Sums are in rank order, as on the
 * host. */
#include "exec/cuda/lgc.h"
#include "exec/cuda/load.h"
#include "exec/cuda/values.h"

enum { THREADS = 256, BLOCKS_MAX = 4096 };

static uint32_t blocks_for(uint64_t n)
{
    uint64_t blocks = (n + THREADS - 1) / THREADS;
    return blocks < BLOCKS_MAX ? (uint32_t)blocks : (uint32_t)BLOCKS_MAX;
}

/* use(i) for all i below n, over all threads. */
template <class Use> TG_DEVICE void each(uint64_t n, Use use)
{
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (uint64_t)gridDim.x * THREADS) {
        use(i);
    }
}

/* ---- values and vectors --------------------------------------------------------------------------------------------------- */

__global__ static void pick(tg_gpu_lgc l)
{
    each(l.entry_n, [&](uint64_t entry) {
        const tg_gpu_lgc_tensor &t = l.tensors[l.entry_tensor[entry]];
        l.own[t.value_at + (entry - t.entry_at)] = l.u[t.at + (l.coordinates[entry] - t.sparse_at)];
    });
}

void tg_gpu_lgc_pick(const tg_gpu_lgc *l)
{
    TG_LAUNCH(pick, blocks_for(l->entry_n), THREADS, l->stream, *l);
}

__global__ static void gather_whole(tg_gpu_lgc l, float *vector)
{
    const tg_gpu_lgc_tile tile = l.tiles[blockIdx.x];
    const tg_gpu_lgc_tensor &t = l.tensors[tile.of];
    uint64_t end = t.n - tile.from < TG_GPU_LGC_TILE ? t.n : tile.from + TG_GPU_LGC_TILE;
    for (uint64_t i = tile.from + threadIdx.x; t.role == TG_GPU_LGC_WHOLE && i < end; i += THREADS) {
        vector[t.whole_at + i] = l.u[t.at + i];
    }
}

void tg_gpu_lgc_gather_whole(const tg_gpu_lgc *l, float *vector)
{
    TG_LAUNCH(gather_whole, l->tile_n, THREADS, l->stream, *l, vector);
}

/* ---- values on the wire --------------------------------------------------------------------------------------------------- */

TG_DEVICE float get_value(const uint8_t *bytes, uint32_t dtype)
{
    if (dtype == 0) {
        return __uint_as_float(tg_load32(bytes));
    }
    uint16_t half = (uint16_t)(bytes[0] | bytes[1] << 8);
    return dtype == 1 ? tg_fp16_to_float(half) : tg_bf16_to_float(half);
}

__global__ static void put(uint8_t *out, const float *values, uint64_t n, uint32_t dtype)
{
    unsigned len = dtype == 0 ? 4 : 2;
    each(n, [&](uint64_t i) {
        float value = values[i];
        uint32_t bits = dtype == 0 ? __float_as_uint(value) : dtype == 1 ? tg_float_to_fp16(value) : tg_float_to_bf16(value);
        tg_store_bytes(out + i * len, bits, len);
    });
}

void tg_gpu_lgc_put(uint8_t *out, const float *values, uint64_t n, uint32_t dtype, void *stream)
{
    TG_LAUNCH(put, blocks_for(n), THREADS, stream, out, values, n, dtype);
}

__global__ static void get(float *values, const uint8_t *bytes, uint64_t n, uint32_t dtype, const tg_gpu_lgc_verdict *verdict)
{
    unsigned len = dtype == 0 ? 4 : 2;
    bool is_bad = verdict != nullptr && verdict->is_bad;
    const uint8_t *at = bytes + (verdict != nullptr && !is_bad ? verdict->mask_len : 0);
    each(n, [&](uint64_t i) { values[i] = is_bad ? 0.0f : get_value(at + i * len, dtype); });
}

void tg_gpu_lgc_get(float *values, const uint8_t *bytes, uint64_t n, uint32_t dtype, const tg_gpu_lgc_verdict *mask_len_too,
                    void *stream)
{
    TG_LAUNCH(get, blocks_for(n), THREADS, stream, values, bytes, n, dtype, mask_len_too);
}

/* ---- averages ------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint64_t len_of(uint64_t n, uint32_t dtype)
{
    return n * (dtype == 0 ? 4 : 2);
}

/* Bodies begin at multiples of four bytes. */
TG_DEVICE float body_value(const uint8_t *body, uint64_t i, const tg_gpu_lgc_spans &spans)
{
    if (i < spans.n[0]) {
        return spans.dtype[0] == 0 ? ((const float *)body)[i] : get_value(body + 2 * i, spans.dtype[0]);
    }
    body += len_of(spans.n[0], spans.dtype[0]);
    i -= spans.n[0];
    if (i < spans.n[1]) {
        return get_value(body + 4 * i, 0);
    }
    i -= spans.n[1];
    return get_value(body + 4 * spans.n[1] + len_of(i, spans.dtype[2]), spans.dtype[2]);
}

TG_DEVICE float sum_bodies(const uint8_t *const *bodies, uint32_t world, uint64_t i, const tg_gpu_lgc_spans &spans, float share)
{
    float sum = tg_times(share, body_value(bodies[0], i, spans));
    for (uint32_t p = 1; p < world; p++) {
        sum = tg_plus(sum, tg_times(share, body_value(bodies[p], i, spans)));
    }
    return sum;
}

__global__ static void sum(tg_gpu_lgc l, float *average, const uint8_t *const *bodies, uint32_t world, uint64_t n, tg_gpu_lgc_spans spans)
{
    bool overflows = false;
    each(n, [&](uint64_t i) {
        float value = sum_bodies(bodies, world, i, spans, 1.0f);
        overflows = overflows || !tg_is_finite(value);
        average[i] = value;
    });
    if (overflows) {
        atomicOr(&l.verdict->overflows, 1u);
    }
}

/* As tg_average_share and tg_average_shared of kernels/range.c. */
__global__ static void divide_sums(tg_gpu_lgc l, float *average, const uint8_t *const *bodies, uint32_t world, uint64_t n,
                                   tg_gpu_lgc_spans spans)
{
    bool again = l.verdict->overflows != 0;
    float share = again ? 0.5f : 1.0f;
    for (uint64_t reach = 1; again && reach < world; reach *= 2) {
        share *= 0.5f;
    }
    float divisor = (float)world * share;
    each(n, [&](uint64_t i) {
        float value = again ? sum_bodies(bodies, world, i, spans, share) : average[i];
        float quotient = tg_with_nan(value / divisor, value, value);
        average[i] = tg_is_finite(value) && !tg_is_finite(quotient) ? copysignf(TG_FLOAT_MAX, quotient) : quotient;
    });
}

void tg_gpu_lgc_average(const tg_gpu_lgc *l, float *average, const uint8_t *const *bodies, uint32_t world, uint64_t n,
                        const tg_gpu_lgc_spans *spans)
{
    TG_LAUNCH(sum, blocks_for(n), THREADS, l->stream, *l, average, bodies, world, n, *spans);
    TG_LAUNCH(divide_sums, blocks_for(n), THREADS, l->stream, *l, average, bodies, world, n, *spans);
}

/* ---- sequences ------------------------------------------------------------------------------------------------------------ */

TG_DEVICE float scale_of(const tg_gpu_lgc &l, uint64_t coded)
{
    float scale = l.scales[l.coded_tensor[coded]];
    return scale > 0 ? scale : 1.0f;
}

__global__ static void to_sequences(tg_gpu_lgc l, float *sequences, const float *values, uint64_t value_stride, uint32_t batch)
{
    each(l.coded_n * batch, [&](uint64_t i) {
        uint32_t coded = l.order[i % l.coded_n];
        float value = values[i / l.coded_n * value_stride + coded];
        sequences[i] = tg_with_nan(value / scale_of(l, coded), value, value);
    });
}

void tg_gpu_lgc_to_sequences(const tg_gpu_lgc *l, float *sequences, const float *values, uint64_t value_stride, uint32_t batch)
{
    TG_LAUNCH(to_sequences, blocks_for(l->coded_n * batch), THREADS, l->stream, *l, sequences, values, value_stride, batch);
}

__global__ static void from_sequence(tg_gpu_lgc l, float *values, const float *sequence)
{
    each(l.coded_n, [&](uint64_t i) {
        uint32_t coded = l.order[i];
        values[coded] = tg_times(sequence[i], scale_of(l, coded));
    });
}

void tg_gpu_lgc_from_sequence(const tg_gpu_lgc *l, float *values, const float *sequence)
{
    TG_LAUNCH(from_sequence, blocks_for(l->coded_n), THREADS, l->stream, *l, values, sequence);
}

__global__ static void clear(float *values, uint64_t n)
{
    each(n, [&](uint64_t i) { values[i] = 0; });
}

__global__ static void keep(float *innovation, uint8_t *out, const float *sequence, const uint64_t *coordinates, uint64_t k)
{
    each(k, [&](uint64_t i) {
        float value = sequence[coordinates[i]];
        innovation[coordinates[i]] = value;
        if (out != nullptr) {
            tg_store_bytes(out + 4 * i, __float_as_uint(value), 4);
        }
    });
}

void tg_gpu_lgc_keep(float *innovation, uint8_t *out, const float *sequence, uint64_t n, const uint64_t *coordinates, uint64_t k,
                     void *stream)
{
    TG_LAUNCH(clear, blocks_for(n), THREADS, stream, innovation, n);
    TG_LAUNCH(keep, blocks_for(k), THREADS, stream, innovation, out, sequence, coordinates, k);
}

__global__ static void take_kept(float *innovation, const uint8_t *bytes, const uint64_t *coordinates, uint64_t k,
                                 const tg_gpu_lgc_verdict *verdict)
{
    if (verdict->is_bad) {
        return;
    }
    each(k, [&](uint64_t i) { innovation[coordinates[i]] = get_value(bytes + verdict->mask_len + 4 * i, 0); });
}

void tg_gpu_lgc_take_kept(float *innovation, const uint8_t *bytes, uint64_t n, const uint64_t *coordinates, uint64_t k,
                          const tg_gpu_lgc_verdict *verdict, void *stream)
{
    TG_LAUNCH(clear, blocks_for(n), THREADS, stream, innovation, n);
    TG_LAUNCH(take_kept, blocks_for(k), THREADS, stream, innovation, bytes, coordinates, k, verdict);
}

__global__ static void divide(float *out, const float *values, float divisor, uint64_t n)
{
    each(n, [&](uint64_t i) { out[i] = tg_with_nan(values[i] / divisor, values[i], values[i]); });
}

void tg_gpu_lgc_divide(float *out, const float *values, float divisor, uint64_t n, void *stream)
{
    TG_LAUNCH(divide, blocks_for(n), THREADS, stream, out, values, divisor, n);
}
