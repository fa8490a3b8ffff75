/* Products of the autoencoder's layers, with the order of sums of src/autoencoder/layers.c: each element is one sum over channels and
 * taps, in order, which begins as the bias; where a layer folds, taps have sums of their own. A block computes a tile of channels times
 * positions; some channels of the input at a time are in shared memory. */
#include "exec/cuda/autoencoder.h"
#include "exec/cuda/kernel.h"

enum { THREADS = 128, ACROSS = 16 /* threads along positions */, EACH = 4 /* positions of a thread, ACROSS apart */ };
enum { POSITIONS = ACROSS * EACH, DOWN = THREADS / ACROSS };

#define SLOPE 0.01f /* of the leaky ReLU below 0 */

/* What becomes of a sum. */
TG_DEVICE float finish(const tg_gpu_product &p, uint32_t sequence, uint64_t at, float sum)
{
    if (p.then == TG_GPU_SUM_LEAKY) {
        return sum > 0 ? sum : SLOPE * sum;
    }
    if (p.then == TG_GPU_SUM_BACK) {
        return sum * (p.of[sequence * p.of_stride + at] > 0 ? 1.0f : SLOPE);
    }
    return sum;
}

/* Which tile a block has. */
typedef struct tile {
    uint32_t sequence, channel, position; /* the first of each */
} tile;

TG_DEVICE tile tile_of(const tg_gpu_product &p, uint32_t channels, uint32_t each)
{
    uint32_t along = (p.n + POSITIONS - 1) / POSITIONS, across = (channels + each - 1) / each, b = blockIdx.x;
    return {b / (along * across), b / along % across * each, b % along * POSITIONS};
}

static uint32_t blocks_of(const tg_gpu_product *p, uint32_t channels, uint32_t each)
{
    return p->batch * ((channels + each - 1) / each) * ((p->n + POSITIONS - 1) / POSITIONS);
}

/* ---- coarse = W unfold(fine) ---------------------------------------------------------------------------------------------- */

enum { OUT = 4 /* output channels of a thread */, OUTS = DOWN * OUT, IN = 8 /* input channels at a time */ };

template <unsigned TAPS> struct down_space {
    alignas(16) float w[IN * TAPS][OUTS + 4];
    float even[IN][POSITIONS]; /* positions 2t, or all of them for points */
    float odd[TAPS == 1 ? 1 : IN][POSITIONS + 1]; /* positions 2t - 1; the last one is 2t + 1 */
};

/* Input channels [first, first + n), and their weights, to shared memory. */
template <unsigned TAPS>
TG_DEVICE void load_down(down_space<TAPS> *s, const tg_gpu_product &p, const tile &at, uint32_t first, uint32_t n)
{
    const float *w = p.w + at.sequence * p.w_stride, *in = p.in + at.sequence * p.in_stride;
    uint32_t rows = n * TAPS;
    for (uint32_t i = threadIdx.x; i < rows * OUTS; i += THREADS) {
        uint32_t row = i % rows, out = i / rows, channel = at.channel + out;
        s->w[row][out] = channel < p.coarse_channels
                             ? w[(uint64_t)channel * p.w_coarse + (uint64_t)(first * TAPS + row) * p.w_row]
                             : 0.0f;
    }
    if constexpr (TAPS == 1) {
        for (uint32_t i = threadIdx.x; i < n * POSITIONS; i += THREADS) {
            uint32_t t = at.position + i % POSITIONS;
            s->even[i / POSITIONS][i % POSITIONS] = t < p.n ? in[(uint64_t)(first + i / POSITIONS) * p.n + t] : 0.0f;
        }
    } else {
        enum { SPAN = 2 * POSITIONS + 1 };
        for (uint32_t i = threadIdx.x; i < n * SPAN; i += THREADS) {
            uint32_t c = i / SPAN, j = i % SPAN;
            int64_t t = 2 * (int64_t)at.position - 1 + j; /* positions outside are 0 */
            bool is_in = t >= 0 && t < 2 * (int64_t)p.n;
            float value = is_in ? in[(uint64_t)(first + c) * 2 * p.n + (uint64_t)t] : 0.0f;
            *(j % 2 == 1 ? &s->even[c][j / 2] : &s->odd[c][j / 2]) = value;
        }
    }
}

/* Adds a row of W times a row of the unfolded signal. */
TG_DEVICE void add_row(float (&sums)[OUT][EACH], const float *w, const float *x)
{
    unsigned along = threadIdx.x % ACROSS, out = threadIdx.x / ACROSS * OUT;
    const float4 weights = *(const float4 *)(w + out);
    const float by[OUT] = {weights.x, weights.y, weights.z, weights.w};
    TG_UNROLL
    for (unsigned j = 0; j < EACH; j++) {
        float value = x[along + j * ACROSS];
        TG_UNROLL
        for (unsigned i = 0; i < OUT; i++) {
            sums[i][j] += by[i] * value;
        }
    }
}

template <unsigned TAPS> __global__ static void __launch_bounds__(THREADS) down(tg_gpu_product p)
{
    __shared__ down_space<TAPS> s;
    const tile at = tile_of(p, p.coarse_channels, OUTS);
    unsigned along = threadIdx.x % ACROSS, first_out = at.channel + threadIdx.x / ACROSS * OUT;
    float sums[OUT][EACH];
    TG_UNROLL
    for (unsigned i = 0; i < OUT; i++) {
        bool has_bias = p.bias != nullptr && first_out + i < p.coarse_channels;
        float bias = has_bias ? p.bias[at.sequence * p.w_stride + first_out + i] : 0.0f;
        TG_UNROLL
        for (unsigned j = 0; j < EACH; j++) {
            sums[i][j] = bias;
        }
    }
    for (uint32_t first = 0; first < p.fine_channels; first += IN) {
        uint32_t n = p.fine_channels - first < IN ? p.fine_channels - first : (uint32_t)IN;
        load_down<TAPS>(&s, p, at, first, n);
        __syncthreads();
        for (uint32_t c = 0; c < n; c++) {
            if constexpr (TAPS == 1) {
                add_row(sums, s.w[c], s.even[c]);
            } else {
                add_row(sums, s.w[c * TAPS], s.odd[c]);
                add_row(sums, s.w[c * TAPS + 1], s.even[c]);
                add_row(sums, s.w[c * TAPS + 2], s.odd[c] + 1);
            }
        }
        __syncthreads();
    }
    TG_UNROLL
    for (unsigned i = 0; i < OUT; i++) {
        TG_UNROLL
        for (unsigned j = 0; j < EACH; j++) {
            uint32_t t = at.position + along + j * ACROSS;
            if (first_out + i < p.coarse_channels && t < p.n) {
                uint64_t place = (uint64_t)(first_out + i) * p.n + t;
                p.out[at.sequence * p.out_stride + place] = finish(p, at.sequence, place, sums[i][j]);
            }
        }
    }
}

void tg_gpu_layer_down(const tg_gpu_product *p)
{
    uint32_t blocks = blocks_of(p, p->coarse_channels, OUTS);
    if (p->taps == 1) {
        TG_LAUNCH(down<1>, blocks, THREADS, p->stream, *p);
    } else {
        TG_LAUNCH(down<3>, blocks, THREADS, p->stream, *p);
    }
}

/* ---- fine = fold(W' coarse) ------------------------------------------------------------------------------------------------ */

enum { FINE = 2 /* fine channels of a thread */, FINES = DOWN * FINE, TAPS = 3, COARSE = 16 /* channels at a time */ };

typedef struct up_space {
    float w[COARSE][FINES * TAPS];
    float x[COARSE][POSITIONS + 1];
} up_space;

TG_DEVICE void load_up(up_space *s, const tg_gpu_product &p, const tile &at, uint32_t first, uint32_t n)
{
    const float *w = p.w + at.sequence * p.w_stride, *in = p.in + at.sequence * p.in_stride;
    for (uint32_t i = threadIdx.x; i < n * FINES * TAPS; i += THREADS) {
        uint32_t c = i / (FINES * TAPS), row = i % (FINES * TAPS);
        bool is_in = at.channel * TAPS + row < p.fine_channels * TAPS;
        s->w[c][row] = is_in ? w[(uint64_t)(first + c) * p.w_coarse + (uint64_t)(at.channel * TAPS + row) * p.w_row] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n * (POSITIONS + 1); i += THREADS) {
        uint32_t c = i / (POSITIONS + 1), t = at.position + i % (POSITIONS + 1);
        s->x[c][i % (POSITIONS + 1)] = t < p.n ? in[(uint64_t)(first + c) * p.n + t] : 0.0f;
    }
}

__global__ static void __launch_bounds__(THREADS) up(tg_gpu_product p)
{
    __shared__ up_space s;
    const tile at = tile_of(p, p.fine_channels, FINES);
    unsigned along = threadIdx.x % ACROSS, own = threadIdx.x / ACROSS * FINE;
    float sums[TAPS][FINE][EACH]; /* for position 2t + 1 of the next t, 2t, 2t + 1 */
    TG_UNROLL
    for (unsigned i = 0; i < TAPS * FINE * EACH; i++) {
        sums[i / (FINE * EACH)][i / EACH % FINE][i % EACH] = 0;
    }
    for (uint32_t first = 0; first < p.coarse_channels; first += COARSE) {
        uint32_t n = p.coarse_channels - first < COARSE ? p.coarse_channels - first : (uint32_t)COARSE;
        load_up(&s, p, at, first, n);
        __syncthreads();
        for (uint32_t c = 0; c < n; c++) {
            float w[FINE][TAPS];
            TG_UNROLL
            for (unsigned i = 0; i < FINE * TAPS; i++) {
                w[i / TAPS][i % TAPS] = s.w[c][own * TAPS + i];
            }
            TG_UNROLL
            for (unsigned j = 0; j < EACH; j++) {
                float here = s.x[c][along + j * ACROSS], next = s.x[c][along + j * ACROSS + 1];
                TG_UNROLL
                for (unsigned i = 0; i < FINE; i++) {
                    sums[0][i][j] += w[i][0] * next;
                    sums[1][i][j] += w[i][1] * here;
                    sums[2][i][j] += w[i][2] * here;
                }
            }
        }
        __syncthreads();
    }
    TG_UNROLL
    for (unsigned i = 0; i < FINE; i++) {
        uint32_t channel = at.channel + own + i;
        if (channel >= p.fine_channels) {
            continue;
        }
        float bias = p.bias != nullptr ? p.bias[at.sequence * p.w_stride + channel] : 0.0f;
        TG_UNROLL
        for (unsigned j = 0; j < EACH; j++) {
            uint32_t t = at.position + along + j * ACROSS;
            if (t >= p.n) {
                continue;
            }
            uint64_t place = (uint64_t)channel * 2 * p.n + 2 * (uint64_t)t;
            float *out = p.out + at.sequence * p.out_stride + place;
            float odd = bias + sums[2][i][j];
            odd = t + 1 < p.n ? odd + sums[0][i][j] : odd;
            out[0] = finish(p, at.sequence, place, bias + sums[1][i][j]);
            out[1] = finish(p, at.sequence, place + 1, odd);
        }
    }
}

void tg_gpu_layer_up(const tg_gpu_product *p)
{
    TG_LAUNCH(up, blocks_of(p, p->fine_channels, FINES), THREADS, p->stream, *p);
}
