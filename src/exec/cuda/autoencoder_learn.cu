/* Losses of the autoencoder and their gradients, its error, and Adam: element by element, with the operations of
 * src/autoencoder/training.c and adam.c. */
#include "exec/cuda/autoencoder.h"
#include "exec/cuda/load.h"
#include "exec/cuda/sums.h"

enum { THREADS = 256, WARPS = THREADS / 32, BLOCKS_MAX = 2048 };

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

/* ---- sequences and codes -------------------------------------------------------------------------------------------------- */

__global__ static void place(float *out, uint64_t out_stride, const float *in, uint64_t in_stride, uint64_t n, uint64_t padded,
                             uint32_t batch)
{
    each(padded * batch, [&](uint64_t i) {
        uint64_t b = i / padded, t = i % padded;
        out[b * out_stride + t] = t < n ? in[b * in_stride + t] : 0.0f;
    });
}

void tg_gpu_learn_place(float *out, uint64_t out_stride, const float *in, uint64_t in_stride, uint64_t n, uint64_t padded,
                        uint32_t batch, void *stream)
{
    TG_LAUNCH(place, blocks_for(padded * batch), THREADS, stream, out, out_stride, in, in_stride, n, padded, batch);
}

__global__ static void replace(float *out, uint64_t out_stride, const float *in, uint64_t n, uint32_t batch)
{
    each(n * batch, [&](uint64_t i) {
        if (in[i] != 0) {
            out[i / n * out_stride + i % n] = in[i];
        }
    });
}

void tg_gpu_learn_replace(float *out, uint64_t out_stride, const float *in, uint64_t n, uint32_t batch, void *stream)
{
    TG_LAUNCH(replace, blocks_for(n * batch), THREADS, stream, out, out_stride, in, n, batch);
}

__global__ static void mean(float *out, const float *in, uint64_t in_stride, uint64_t n, uint32_t batch, bool quotients)
{
    each(n, [&](uint64_t i) {
        float sum = 0;
        for (uint32_t b = 0; b < batch; b++) {
            float value = in[b * in_stride + i];
            sum += quotients ? value / (float)batch : value;
        }
        out[i] = quotients ? sum : sum / (float)batch;
    });
}

void tg_gpu_learn_mean(float *out, const float *in, uint64_t in_stride, uint64_t n, uint32_t batch, int quotients, void *stream)
{
    TG_LAUNCH(mean, blocks_for(n), THREADS, stream, out, in, in_stride, n, batch, quotients != 0);
}

__global__ static void add(float *sum, const float *in, uint64_t in_stride, uint64_t n, uint32_t batch, float divisor,
                           bool starts)
{
    each(n, [&](uint64_t i) {
        float s = starts ? 0.0f : sum[i];
        for (uint32_t b = 0; b < batch; b++) {
            s += in[b * in_stride + i] / divisor;
        }
        sum[i] = s;
    });
}

void tg_gpu_learn_add(float *sum, const float *in, uint64_t in_stride, uint64_t n, uint32_t batch, float divisor, int starts,
                      void *stream)
{
    TG_LAUNCH(add, blocks_for(n), THREADS, stream, sum, in, in_stride, n, batch, divisor, starts != 0);
}

__global__ static void unify(float *values, uint64_t n)
{
    each(n, [&](uint64_t i) { values[i] = values[i] != values[i] ? __uint_as_float(0x7fc00000u) : values[i]; });
}

void tg_gpu_learn_unify(float *values, uint64_t n, void *stream)
{
    TG_LAUNCH(unify, blocks_for(n), THREADS, stream, values, n);
}

/* ---- losses --------------------------------------------------------------------------------------------------------------- */

__global__ static void loss(float *out, uint64_t out_stride, const float *decoded, uint64_t decoded_stride, const float *wanted,
                            uint64_t wanted_stride, uint64_t n, uint64_t padded, uint32_t batch, float factor,
                            tg_gpu_learned *learned)
{
    each(padded * batch, [&](uint64_t i) {
        uint64_t b = i / padded, t = i % padded;
        float error = t < n ? decoded[b * decoded_stride + t] - wanted[b * wanted_stride + t] : 0.0f;
        if (!tg_is_finite(error)) {
            atomicOr(&learned->is_bad, 1u);
        }
        out[b * out_stride + t] = t < n ? factor * error : 0.0f;
    });
}

void tg_gpu_learn_loss(float *out, uint64_t out_stride, const float *decoded, uint64_t decoded_stride, const float *wanted,
                       uint64_t wanted_stride, uint64_t n, uint64_t padded, uint32_t batch, float factor, tg_gpu_learned *learned,
                       void *stream)
{
    TG_LAUNCH(loss, blocks_for(padded * batch), THREADS, stream, out, out_stride, decoded, decoded_stride, wanted, wanted_stride, n,
              padded, batch, factor, learned);
}

__global__ static void share_gradient(float *out, uint64_t out_stride, const float *gradient, uint64_t n, uint32_t batch,
                                      float divisor)
{
    each(n * batch, [&](uint64_t i) { out[i / n * out_stride + i % n] = gradient[i % n] / divisor; });
}

void tg_gpu_learn_share(float *out, uint64_t out_stride, const float *gradient, uint64_t n, uint32_t batch, float divisor,
                        void *stream)
{
    TG_LAUNCH(share_gradient, blocks_for(n * batch), THREADS, stream, out, out_stride, gradient, n, batch, divisor);
}

__global__ static void similarity(float *out, uint64_t out_stride, const float *codes, uint64_t n, uint32_t first, uint32_t batch,
                                  uint32_t workers, double factor, const float *chosen_gradient, uint32_t chosen,
                                  tg_gpu_learned *learned)
{
    each(n * batch, [&](uint64_t i) {
        uint64_t b = i / n, k = i % n, worker = first + b;
        double own = (double)codes[worker * n + k], sum = 0;
        for (uint32_t j = 0; j < workers; j++) {
            sum += own - (double)codes[j * n + k];
        }
        if (workers > 1 && !tg_is_finite((float)own)) {
            atomicOr(&learned->is_bad, 1u);
        }
        float gradient = (float)(factor * sum);
        out[b * out_stride + k] = worker == chosen ? gradient + chosen_gradient[k] : gradient;
    });
}

void tg_gpu_learn_similarity(float *out, uint64_t out_stride, const float *codes, uint64_t n, uint32_t first, uint32_t batch,
                             uint32_t workers, double factor, const float *chosen_gradient, uint32_t chosen,
                             tg_gpu_learned *learned, void *stream)
{
    TG_LAUNCH(similarity, blocks_for(n * batch), THREADS, stream, out, out_stride, codes, n, first, batch, workers, factor,
              chosen_gradient, chosen, learned);
}

/* ---- the error ------------------------------------------------------------------------------------------------------------ */

/* A warp a leaf. */
__global__ static void error_leaves(double *leaves, const float *decoded, const float *sequences, uint64_t stride, uint64_t n,
                                    uint32_t workers)
{
    uint64_t leaf = (uint64_t)blockIdx.x * WARPS + threadIdx.x / TG_WARP, leaf_n = (n + TG_LEAF_N - 1) / TG_LEAF_N;
    double of_error = 0, of_mean = 0;
    for (uint64_t i = leaf * TG_LEAF_N + threadIdx.x % TG_WARP; i < n && i < (leaf + 1) * TG_LEAF_N; i += TG_WARP) {
        float sum = 0;
        for (uint32_t p = 0; p < workers; p++) {
            sum += sequences[p * stride + i];
        }
        float average = sum / (float)workers, error = decoded[i] - average;
        of_error += (double)error * (double)error;
        of_mean += (double)average * (double)average;
    }
    of_error = tg_fold(of_error);
    of_mean = tg_fold(of_mean);
    if (threadIdx.x % TG_WARP == 0 && leaf < leaf_n) {
        leaves[leaf] = of_error;
        leaves[leaf_n + leaf] = of_mean;
    }
}

__global__ static void error_sums(tg_gpu_learned *learned, const double *leaves, uint64_t leaf_n)
{
    if (threadIdx.x < 2) {
        tg_leaf_tree tree;
        tree.n = 0;
        for (uint64_t i = 0; i < leaf_n; i++) {
            tg_leaf_add(&tree, leaves[threadIdx.x * leaf_n + i]);
        }
        learned->squares[threadIdx.x] = tg_leaf_sum(&tree);
    }
}

void tg_gpu_learn_error(tg_gpu_learned *learned, double *leaves, const float *decoded, const float *sequences, uint64_t stride,
                        uint64_t n, uint32_t workers, void *stream)
{
    uint64_t leaf_n = (n + TG_LEAF_N - 1) / TG_LEAF_N;
    TG_LAUNCH(error_leaves, (leaf_n + WARPS - 1) / WARPS, THREADS, stream, leaves, decoded, sequences, stride, n, workers);
    TG_LAUNCH(error_sums, 1, TG_WARP, stream, learned, leaves, leaf_n);
}

/* ---- the optimizer -------------------------------------------------------------------------------------------------------- */

__global__ static void check(tg_gpu_learned *learned, const float *gradients, uint64_t n)
{
    bool is_bad = false;
    each(n, [&](uint64_t i) { is_bad = is_bad || !tg_is_finite(gradients[i]); });
    if (is_bad) {
        atomicOr(&learned->is_bad, 1u);
    }
}

void tg_gpu_learn_check(tg_gpu_learned *learned, const float *gradients, uint64_t n, void *stream)
{
    TG_LAUNCH(check, blocks_for(n), THREADS, stream, learned, gradients, n);
}

__global__ static void adam(float *weights, float *moments, const float *gradients, uint64_t n, float step_size, float root,
                            const tg_gpu_learned *learned)
{
    if (learned->is_bad != 0) {
        return;
    }
    each(n, [&](uint64_t i) {
        float g = gradients[i];
        float first = 0.9f * moments[i] + 0.1f * g, second = 0.999f * moments[n + i] + 0.001f * (g * g);
        moments[i] = first;
        moments[n + i] = second;
        weights[i] -= step_size * first / (sqrtf(second) / root + 1e-8f);
    });
}

void tg_gpu_learn_adam(float *weights, float *moments, const float *gradients, uint64_t n, float step_size, float root,
                       const tg_gpu_learned *learned, void *stream)
{
    TG_LAUNCH(adam, blocks_for(n), THREADS, stream, weights, moments, gradients, n, step_size, root, learned);
}
