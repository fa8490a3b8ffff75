/* LGC's autoencoder on a GPU: its kernels, with the host's order of sums (src/autoencoder), so that codes and weights have the same
 * bits. C and CUDA C include this.
 *
 * A launch covers a batch of sequences. A sequence has a tape, laid out as that of the host (chain.h), and in training a second one of
 * the same layout, with gradients in place of signals. A layer connects a fine signal and a coarse one (layers.c):
 *
 *     tg_gpu_layer_down      coarse = W unfold(fine)      forward to halve, and of points; backward to double
 *     tg_gpu_layer_up        fine = fold(W' coarse)       forward to double; backward to halve
 *     tg_gpu_layer_weights   W += coarse unfold(fine)'    gradients of all layers of a chain, in one launch
 */
#ifndef TG_EXEC_CUDA_AUTOENCODER_H
#define TG_EXEC_CUDA_AUTOENCODER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TG_GPU_CHAIN_CAP = 5 }; /* as TG_CHAIN_CAP */

/* What becomes of a sum. */
enum {
    TG_GPU_SUM_PLAIN, /* nothing */
    TG_GPU_SUM_LEAKY, /* leaky ReLU */
    TG_GPU_SUM_BACK   /* times the slope of the leaky ReLU whose output is in `of` */
};

/* One product of a layer, for a batch. Signals of sequence b begin `stride` floats after those of the one before. */
typedef struct tg_gpu_product {
    float *out;
    const float *in;
    const float *of;   /* of TG_GPU_SUM_BACK: laid out as `out`, with its stride */
    const float *w;    /* element (coarse channel c, row r) at w[c * w_coarse + r * w_row] */
    const float *bias; /* of output channels, added first; NULL: 0 */
    uint64_t out_stride, in_stride, of_stride, w_stride; /* from sequence to sequence */
    uint32_t w_coarse, w_row;
    uint32_t coarse_channels, fine_channels, n; /* n positions of a coarse channel */
    uint32_t taps;                              /* 3, or 1: a point, whose fine signal is as long as the coarse one */
    uint32_t batch;
    uint32_t then; /* TG_GPU_SUM_* */
    void *stream;
} tg_gpu_product;

void tg_gpu_layer_down(const tg_gpu_product *p);
void tg_gpu_layer_up(const tg_gpu_product *p);

/* A layer whose weights get gradients. Offsets are into both tapes. */
typedef struct tg_gpu_trained {
    uint64_t coarse_at, fine_at,
        weight_at; /* of the signals in their tapes; of its gradients, weights first, then biases */
    uint32_t coarse_channels, fine_channels, n, taps;
    uint32_t bias_n, bias_positions; /* output channels, and positions of each */
    uint8_t
        coarse_is_gradient; /* the coarse signal is on the tape of gradients, and the fine one on that of signals; else the
                                        other way round */
    uint8_t zero[7];
} tg_gpu_trained;

/* Blocks of the launch: a tile of weights, or of biases. */
typedef struct tg_gpu_weight_tile {
    uint32_t layer, is_bias;
    uint32_t coarse, row; /* the first of the tile; of biases: the first channel */
} tg_gpu_weight_tile;

enum { TG_GPU_WEIGHT_TILE = 16, TG_GPU_BIAS_TILE = 16 };

/* Adds to the gradients of a chain: of all sequences of a batch, the last one first; or with `apart`, of each sequence to gradients of
 * its own, gradient_stride floats apart. */
typedef struct tg_gpu_weights {
    const tg_gpu_trained *layers;
    const tg_gpu_weight_tile *tiles;
    uint32_t tile_n, batch, apart;
    float *gradients;
    const float *tapes, *backs; /* signals and gradients */
    uint64_t tape_stride, gradient_stride;
    void *stream;
} tg_gpu_weights;

void tg_gpu_layer_weights(const tg_gpu_weights *w);

/* ---- learn.cu: losses and the optimizer ------------------------------------------------------------------------------- */

/* What the device finds out in a training step; the host reads it at the end. 0 everywhere: all is well. */
typedef struct tg_gpu_learned {
    uint32_t is_bad; /* a loss or a gradient is not finite: weights stay as they are */
    uint32_t zero;
    double squares[2]; /* sums of squares of the error, and of the mean of all sequences */
} tg_gpu_learned;

/* Copies n floats of each of a batch, and fills up to `padded` with zeros. */
void tg_gpu_learn_place(float *out, uint64_t out_stride, const float *in, uint64_t in_stride, uint64_t n,
                        uint64_t padded, uint32_t batch, void *stream);

/* Copies those of n floats of each of a batch that are not 0 over `out`. */
void tg_gpu_learn_replace(float *out, uint64_t out_stride, const float *in, uint64_t n, uint32_t batch, void *stream);

/* out = the sum of a batch in order, over their number. With `each`, quotients are added instead. */
void tg_gpu_learn_mean(float *out, const float *in, uint64_t in_stride, uint64_t n, uint32_t batch, int each,
                       void *stream);

/* Gradients of weight * MSE(decoded, wanted), of a batch, zeros from n to `padded`. An error that is not finite is bad. */
void tg_gpu_learn_loss(float *out, uint64_t out_stride, const float *decoded, uint64_t decoded_stride,
                       const float *wanted, uint64_t wanted_stride, uint64_t n, uint64_t padded, uint32_t batch,
                       float factor, tg_gpu_learned *learned, void *stream);

/* The gradient with respect to one code to the codes of a batch, over `divisor`. */
void tg_gpu_learn_share(float *out, uint64_t out_stride, const float *gradient, uint64_t n, uint32_t batch,
                        float divisor, void *stream);

/* Gradients of the similarity of codes, of workers [first, first + batch) of `workers`; that of worker `chosen` gets the sum over all
 * decoders, `decoder_stride` apart, added. Codes that are not finite are bad. */
void tg_gpu_learn_similarity(float *out, uint64_t out_stride, const float *codes, uint64_t n, uint32_t first,
                             uint32_t batch, uint32_t workers, double factor, const float *chosen_gradient,
                             uint32_t chosen, tg_gpu_learned *learned, void *stream);

/* sum = the sum of a batch over `divisor`, in order, continued from `sum` unless `starts`. */
void tg_gpu_learn_add(float *sum, const float *in, uint64_t in_stride, uint64_t n, uint32_t batch, float divisor,
                      int starts, void *stream);

/* squares[0], squares[1]: of decoded - mean and of mean, by leaves, where mean is that of n values of `workers` sequences. `leaves` has
 * space for two numbers each 1,024 values. */
void tg_gpu_learn_error(tg_gpu_learned *learned, double *leaves, const float *decoded, const float *sequences,
                        uint64_t stride, uint64_t n, uint32_t workers, void *stream);

/* Notes gradients that are not finite; then Adam, unless something is bad. */
void tg_gpu_learn_check(tg_gpu_learned *learned, const float *gradients, uint64_t n, void *stream);
void tg_gpu_learn_adam(float *weights, float *moments, const float *gradients, uint64_t n, float step_size, float root,
                       const tg_gpu_learned *learned, void *stream);

/* NaNs become the canonical one. */
void tg_gpu_learn_unify(float *values, uint64_t n, void *stream);

#ifdef __cplusplus
}
#endif
#endif
