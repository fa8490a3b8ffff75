/* Gradients with respect to the weights and biases of a chain of layers: W += coarse unfold(fine)'. Each element is one sum over
 * sequences, the last one first, and over positions, in order, as on the host. That is one long chain; so all layers are in one launch,
 * and a thread has one element. */
#include "exec/cuda/autoencoder.h"
#include "exec/cuda/kernel.h"

enum { TILE = TG_GPU_WEIGHT_TILE, THREADS = TILE * TILE, SPAN = 64 /* positions in shared memory */, TAPS = 3 };

/* Rows are apart so that eight of them have different banks. */
typedef struct space {
    alignas(16) float coarse[TILE][SPAN + 4];
    alignas(16) float fine[TILE][SPAN + 4];
} space;

/* A layer's signals of one sequence. */
typedef struct signals {
    const float *coarse, *fine;
} signals;

TG_DEVICE signals signals_of(const tg_gpu_weights &w, const tg_gpu_trained &l, uint32_t sequence)
{
    const float *tape = w.tapes + sequence * w.tape_stride, *back = w.backs + sequence * w.tape_stride;
    return {(l.coarse_is_gradient ? back : tape) + l.coarse_at, (l.coarse_is_gradient ? tape : back) + l.fine_at};
}

/* Element t of row number `row` of the unfolded signal. */
TG_DEVICE float unfolded(const tg_gpu_trained &l, const float *fine, uint32_t row, uint32_t t)
{
    if (l.taps == 1) {
        return fine[(uint64_t)row * l.n + t];
    }
    int64_t at = 2 * (int64_t)t + row % TAPS - 1;
    return at < 0 ? 0.0f : fine[(uint64_t)(row / TAPS) * 2 * l.n + (uint64_t)at];
}

TG_DEVICE void load(space *s, const tg_gpu_trained &l, const signals &of, const tg_gpu_weight_tile &tile, uint32_t from,
                    uint32_t n)
{
    uint32_t rows = l.fine_channels * l.taps;
    for (uint32_t i = threadIdx.x; i < TILE * SPAN; i += THREADS) {
        uint32_t which = i / SPAN, t = i % SPAN, c = tile.coarse + which, row = tile.row + which;
        s->coarse[which][t] = t < n && c < l.coarse_channels ? of.coarse[(uint64_t)c * l.n + from + t] : 0.0f;
        s->fine[which][t] = t < n && row < rows ? unfolded(l, of.fine, row, from + t) : 0.0f;
    }
}

/* Adds n products of a row of both signals in order. */
TG_DEVICE float add_products(float sum, const float *coarse, const float *fine, uint32_t n)
{
    uint32_t t = 0;
    for (; n - t >= 4; t += 4) {
        float4 a = *(const float4 *)(coarse + t), b = *(const float4 *)(fine + t);
        sum += a.x * b.x;
        sum += a.y * b.y;
        sum += a.z * b.z;
        sum += a.w * b.w;
    }
    for (; t < n; t++) {
        sum += coarse[t] * fine[t];
    }
    return sum;
}

/* The gradients of a chain that a block adds to, and its sequences [from, to). */
typedef struct share {
    float *gradients;
    uint32_t from, to;
} share;

TG_DEVICE share share_of(const tg_gpu_weights &w)
{
    uint32_t part = blockIdx.x / w.tile_n;
    return {w.gradients + part * w.gradient_stride, w.apart ? part : 0, w.apart ? part + 1 : w.batch};
}

TG_DEVICE void add_weights(space *s, const tg_gpu_weights &w, const tg_gpu_trained &l, const tg_gpu_weight_tile &tile,
                           const share &of)
{
    uint32_t rows = l.fine_channels * l.taps, c = tile.coarse + threadIdx.x / TILE, row = tile.row + threadIdx.x % TILE;
    bool is_in = c < l.coarse_channels && row < rows;
    float *out = of.gradients + l.weight_at + (uint64_t)c * rows + row, sum = is_in ? *out : 0.0f;
    for (uint32_t sequence = of.to; sequence-- > of.from;) {
        const signals here = signals_of(w, l, sequence);
        for (uint32_t from = 0; from < l.n; from += SPAN) {
            uint32_t n = l.n - from < SPAN ? l.n - from : (uint32_t)SPAN;
            load(s, l, here, tile, from, n);
            __syncthreads();
            sum = add_products(sum, s->coarse[threadIdx.x / TILE], s->fine[threadIdx.x % TILE], n);
            __syncthreads();
        }
    }
    if (is_in) {
        *out = sum;
    }
}

/* Of each channel 16 sums, of every 16th value, which are then added in order. */
TG_DEVICE void add_biases(const tg_gpu_weights &w, const tg_gpu_trained &l, const tg_gpu_weight_tile &tile, const share &of)
{
    enum { PARTS = THREADS / TG_GPU_BIAS_TILE };
    uint32_t channel = tile.coarse + threadIdx.x / PARTS, part = threadIdx.x % PARTS;
    bool is_in = channel < l.bias_n;
    float *out = of.gradients + l.weight_at + (uint64_t)l.coarse_channels * l.fine_channels * l.taps + channel;
    float total = is_in ? *out : 0.0f;
    for (uint32_t sequence = of.to; sequence-- > of.from;) {
        const signals here = signals_of(w, l, sequence);
        const float *values = (l.coarse_is_gradient ? here.coarse : here.fine) + (uint64_t)channel * l.bias_positions;
        float sum = 0;
        for (uint32_t i = part; is_in && i < l.bias_positions; i += PARTS) {
            sum += values[i];
        }
        float first = sum;
        for (int j = 1; j < PARTS; j++) {
            float other = __shfl_down_sync(TG_ALL_LANES, sum, (unsigned)j);
            first += other;
        }
        total += first; /* of use to the first part alone */
    }
    if (is_in && part == 0) {
        *out = total;
    }
}

__global__ static void __launch_bounds__(THREADS) weights(tg_gpu_weights w)
{
    __shared__ space s;
    const tg_gpu_weight_tile tile = w.tiles[blockIdx.x % w.tile_n];
    const tg_gpu_trained &l = w.layers[tile.layer];
    if (tile.is_bias) {
        add_biases(w, l, tile, share_of(w));
    } else {
        add_weights(&s, w, l, tile, share_of(w));
    }
}

void tg_gpu_layer_weights(const tg_gpu_weights *w)
{
    TG_LAUNCH(weights, w->tile_n * (w->apart ? w->batch : 1), THREADS, w->stream, *w);
}
