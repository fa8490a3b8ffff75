/* LGC's autoencoder on a GPU: chains of layers over a batch of sequences, and training steps, with the bits of the host's
 * (autoencoder/autoencoder.h). Weights and the optimizer's state are in device memory. */
#ifndef TG_EXEC_CUDA_LEARNER_H
#define TG_EXEC_CUDA_LEARNER_H

#include "autoencoder/chains.h"
#include "exec/cuda/autoencoder.h"
#include "exec/cuda/gpu.h"

/* A chain and its tables for gradients, in device memory. */
typedef struct tg_gpu_chain {
    tg_chain chain;
    tg_gpu_trained *layers;
    tg_gpu_weight_tile *tiles;
    uint32_t tile_n;
    uint32_t cap;         /* sequences that have tapes */
    float *tapes, *backs; /* of these: signals, and gradients */
} tg_gpu_chain;

typedef struct tg_gpu_learner {
    const tg_gpu *gpu;
    tg_allocator allocator;
    tg_autoencoder_config config;
    size_t padded_n, weight_n, code_n;
    uint32_t workers;
    tg_gpu_chain encoder, decoder;

    /* device memory */
    float *weights, *moments, *gradients;
    float *codes; /* of all workers */
    float *mean, *mean_code, *code_gradient, *decoded;
    double *leaves;
    tg_gpu_learned *learned, *learned_here; /* on the device, and in pinned memory */
} tg_gpu_learner;

/* `kept`: floats of tapes that may be kept for a chain, for as many sequences as that is; of others they are computed again. The result
 * does not depend on it. On failure the caller must still call tg_gpu_learner_close. */
tg_status tg_gpu_learner_open(tg_gpu_learner *l, const tg_gpu *gpu, const tg_autoencoder_config *config,
                              uint32_t workers, uint64_t seed, uint64_t kept, const tg_allocator *a,
                              tg_detail *why) TG_CHECKED;
void tg_gpu_learner_close(tg_gpu_learner *l);

/* As tg_autoencoder_encode and tg_autoencoder_decode, of device memory; NaNs are the canonical one. */
void tg_gpu_learner_encode(float *code, tg_gpu_learner *l, const float *values);
void tg_gpu_learner_decode(float *values, tg_gpu_learner *l, uint32_t decoder, const float *code,
                           const float *innovation);

/* A training step on the sequences of all workers, value_n floats each, one after the other: for averaged codes (ring), or for a common
 * code (server), that of `chosen`, with innovations. Also measures the error of the autoencoder before the step: what it decodes,
 * averaged, less the mean of the sequences, relative to that. `step` counts from 1. Waits. If the loss or a gradient is not finite, fails
 * with TG_E_NONFINITE and changes nothing. */
tg_status tg_gpu_learner_train_mean(double *error, tg_gpu_learner *l, const float *sequences, uint64_t step,
                                    tg_detail *why) TG_CHECKED;
tg_status tg_gpu_learner_train_common(double *error, tg_gpu_learner *l, const float *sequences,
                                      const float *innovations, uint32_t chosen, uint64_t step,
                                      tg_detail *why) TG_CHECKED;

#endif
