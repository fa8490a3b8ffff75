/* LGC's kernels (exec/lgc.h): gradients and residuals, selection, indices and their order as bytes, vectors and sequences. The
 * autoencoder is in learner.h. Pointers are to device memory. C and CUDA C include this.
 *
 * An entry is an index that the leader selects; entries are numbered in the order of tensors, and each tensor has as many in every step.
 * A rank's values at entries have coded tensors' first, then those of picked ones. */
#ifndef TG_EXEC_CUDA_LGC_H
#define TG_EXEC_CUDA_LGC_H

#include "exec/cuda/select.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TG_GPU_LGC_TILE = 4096, TG_GPU_LGC_CHUNK = 262144, TG_GPU_LGC_HEADER = 6 };
enum { TG_GPU_LGC_WHOLE, TG_GPU_LGC_CODED, TG_GPU_LGC_PICKED }; /* tg_lgc_role */

typedef struct tg_gpu_lgc_tensor {
    uint64_t at, n;       /* its elements among all */
    uint64_t whole_at;    /* among those of whole tensors */
    uint64_t sparse_at;   /* among those of sparse ones */
    uint64_t entry_at, k; /* its entries */
    uint64_t value_at;    /* of the values at them */
    uint64_t feedback_at; /* of its residuals; plane p is p * n further */
    uint64_t leaf_at;     /* of its leaves, in space for sums of all tensors */
    double clip;          /* the largest norm of its gradient; 0: no limit */
    float factor;         /* decay of `ef`, or that of `momentum` */
    uint32_t planes, feedback, role, dtype, zero;
} tg_gpu_lgc_tensor;

/* Up to TG_GPU_LGC_TILE elements of a tensor, or of a segment. */
typedef struct tg_gpu_lgc_tile {
    uint64_t from;
    uint32_t of, zero;
} tg_gpu_lgc_tile;

/* What kernels find out; the host reads it. */
typedef struct tg_gpu_lgc_verdict {
    uint64_t refused;   /* the least of 2 * tensor + kind of what is refused; all ones: nothing. Written by atomicMin */
    uint64_t mask_len;  /* bytes of indices that were written or read */
    uint32_t is_bad;    /* a message is invalid */
    uint32_t overflows; /* a sum is not finite */
} tg_gpu_lgc_verdict;

/* What all launches share. */
typedef struct tg_gpu_lgc {
    const tg_gpu_lgc_tensor *tensors;
    const tg_gpu_lgc_tile *tiles;
    uint32_t tensor_n, tile_n;
    const uint32_t *entry_tensor; /* of each entry */
    const uint32_t *coded_tensor; /* of each coded value */
    uint64_t n, whole_n, entry_n, coded_n, picked_n;
    void *const *grads;    /* by tensor */
    float *u, *g;          /* gradient plus residual, and the gradient alone */
    float *kept;           /* residuals */
    float *scales;         /* of tensors */
    float *clips;          /* factors that bound norms */
    double *leaves;        /* sums of leaves */
    uint64_t *coordinates; /* of entries, among the elements of sparse tensors */
    float *own;            /* this rank's values */
    uint32_t *order;       /* order[i] is the coded value at position i of a sequence */
    tg_gpu_lgc_verdict *verdict;
    uint8_t nonfinite; /* tg_nonfinite */
    uint8_t is_dense;  /* this phase sends all elements */
    void *stream;
} tg_gpu_lgc;

/* ---- lgc_load.cu ------------------------------------------------------------------------------------------------------- */

/* Gradients to u and g, clipped, with residuals added. Kinds of refusals: 0 NaN or Inf, 1 an overflow. */
void tg_gpu_lgc_load(const tg_gpu_lgc *l, int clips);

/* Applies the policy for NaN and Inf to averages of whole tensors, and to means at entries. Kinds: 0 an average that is not finite, 1 a
 * residual. `subtracts`: means of coded values are subtracted from this rank's. */
void tg_gpu_lgc_check(const tg_gpu_lgc *l, float *average, float *means, int subtracts);

/* Residuals, and averages to the gradients. `sent`: what was sent of coded values, this rank's own or their means. */
void tg_gpu_lgc_settle(const tg_gpu_lgc *l, const float *average, const float *means, const float *sent_coded);

/* Scales of coded tensors from means. */
void tg_gpu_lgc_update_scales(const tg_gpu_lgc *l, const float *means);

/* ---- lgc_select.cu: the largest magnitudes ------------------------------------------------------------------------------ */

/* Values of which the k largest are selected, ties to lower places. */
typedef struct tg_gpu_lgc_segment {
    const float *values;
    uint64_t n, k;
    uint64_t entry_at; /* where the coordinates of the selected ones go ... */
    uint64_t base;     /* ... which is added to their places */
    uint32_t tile_first, tile_n;
} tg_gpu_lgc_segment;

enum { TG_GPU_LGC_ROUNDS = 3, TG_GPU_LGC_CELLS = 1 << 11 };

typedef struct tg_gpu_lgc_selection {
    const tg_gpu_lgc_segment *segments;
    const tg_gpu_lgc_tile *tiles;
    uint32_t segment_n, tile_n;
    uint32_t *cells;  /* segment_n * ROUNDS * CELLS numbers of keys */
    uint32_t *kth;    /* of each segment: the k-th largest key, as far as it is known */
    uint64_t *rank;   /* of each: its rank among the keys that begin as it does */
    uint32_t *counts; /* of each tile: keys above the k-th, then those equal to it */
    uint64_t *starts; /* of each tile: where its first entry goes, then how many that equal the k-th are taken */
} tg_gpu_lgc_selection;

void tg_gpu_lgc_select(uint64_t *coordinates, const tg_gpu_lgc_selection *s, void *stream);

/* ---- lgc_mask.cu: coordinates as bytes ---------------------------------------------------------------------------------- */

/* Coordinates below n, k of them, in chunks as in a frame. */
typedef struct tg_gpu_lgc_mask {
    uint64_t n, k;
    uint32_t chunk_n;
    tg_gpu_pass pass; /* of kernels for indices */
    tg_gpu_chunk *chunks;
    tg_gpu_selection selection;
    uint64_t *offsets; /* of chunks in the bytes, and one more */
} tg_gpu_lgc_mask;

/* Writes coordinates; their length goes to the verdict. */
void tg_gpu_lgc_write_mask(uint8_t *out, const tg_gpu_lgc_mask *m, const uint64_t *coordinates,
                           tg_gpu_lgc_verdict *verdict, void *stream);

/* Reads coordinates from `len` bytes, after which `rest_len` bytes must follow. Trusts nothing: what is wrong goes to the verdict.
 * Coordinates are then in range, but otherwise as they come. */
void tg_gpu_lgc_read_mask(uint64_t *coordinates, const tg_gpu_lgc_mask *m, const uint8_t *bytes, uint64_t len,
                          uint64_t rest_len, tg_gpu_lgc_verdict *verdict, void *stream);

/* Refuses entries that are not in their tensors. */
void tg_gpu_lgc_check_entries(const tg_gpu_lgc *l);

/* ---- lgc_order.cu ------------------------------------------------------------------------------------------------------- */

/* Digits of a permutation that are written as one number (exec/ordering.h). */
typedef struct tg_gpu_lgc_digits {
    uint64_t bit_at;
    uint32_t first, n, bits, zero;
} tg_gpu_lgc_digits;

typedef struct tg_gpu_lgc_ordering {
    const tg_gpu_lgc_digits *groups;
    uint32_t group_n;
    uint64_t n, len; /* elements, and bytes */
    uint64_t *keys;
    uint32_t *digits;
    uint32_t *words; /* space for the bytes, in whole words */
} tg_gpu_lgc_ordering;

/* Sorts this rank's coded values, divided by their scales: sets l->order. */
void tg_gpu_lgc_choose_order(const tg_gpu_lgc *l, const tg_gpu_lgc_ordering *o);

/* The order as bytes, in o->words. */
void tg_gpu_lgc_write_order(const tg_gpu_lgc *l, const tg_gpu_lgc_ordering *o);

/* The order from `bytes` + verdict->mask_len. If the verdict is bad already, nothing is read. */
void tg_gpu_lgc_read_order(const tg_gpu_lgc *l, const tg_gpu_lgc_ordering *o, const uint8_t *bytes);

/* ---- lgc_values.cu: vectors, values and sequences ------------------------------------------------------------------------- */

/* This rank's values at entries. */
void tg_gpu_lgc_pick(const tg_gpu_lgc *l);

/* Whole tensors of u, one after the other. */
void tg_gpu_lgc_gather_whole(const tg_gpu_lgc *l, float *vector);

/* n floats in a type of the wire (tg_dtype), and back. Bytes are at any address; with `mask_len_too`, verdict->mask_len further, and
 * nothing is read if the verdict is bad. */
void tg_gpu_lgc_put(uint8_t *out, const float *values, uint64_t n, uint32_t dtype, void *stream);
void tg_gpu_lgc_get(float *values, const uint8_t *bytes, uint64_t n, uint32_t dtype,
                    const tg_gpu_lgc_verdict *mask_len_too, void *stream);

/* Elements of a message by their types (tg_dtype), as tg_lgc_spans has them. Those in the middle are floats. */
typedef struct tg_gpu_lgc_spans {
    uint64_t n[3];
    uint32_t dtype[3];
} tg_gpu_lgc_spans;

/* The average of n elements of `world` vectors. If a sum is not finite, all are summed again with values scaled down. */
void tg_gpu_lgc_average(const tg_gpu_lgc *l, float *average, const uint8_t *const *bodies, uint32_t world, uint64_t n,
                        const tg_gpu_lgc_spans *spans);

/* Permutes and normalises coded values of a batch of ranks into sequences; and a sequence back. */
void tg_gpu_lgc_to_sequences(const tg_gpu_lgc *l, float *sequences, const float *values, uint64_t value_stride,
                             uint32_t batch);
void tg_gpu_lgc_from_sequence(const tg_gpu_lgc *l, float *values, const float *sequence);

/* The innovation of a sequence: its values at k coordinates, which also go to out[i] in their order if that is not NULL; all others 0. */
void tg_gpu_lgc_keep(float *innovation, uint8_t *out, const float *sequence, uint64_t n, const uint64_t *coordinates,
                     uint64_t k, void *stream);

/* An innovation from k values at `bytes` + verdict->mask_len. */
void tg_gpu_lgc_take_kept(float *innovation, const uint8_t *bytes, uint64_t n, const uint64_t *coordinates, uint64_t k,
                          const tg_gpu_lgc_verdict *verdict, void *stream);

/* values[i] / divisor. */
void tg_gpu_lgc_divide(float *out, const float *values, float divisor, uint64_t n, void *stream);

#ifdef __cplusplus
}
#endif
#endif
