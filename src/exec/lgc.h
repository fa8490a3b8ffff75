/* LGC's computations on the host (arXiv 2103.08870). exchange/lgc.c describes the algorithm.
 *
 *     lgc.c           creates and frees the object; saved state
 *     lgc_vector.c    the gradient plus residual, and the vector that is summed over ranks
 *     lgc_sequence.c  the input and output sequences of the autoencoder
 *     lgc_learn.c     trains the autoencoder, changes phases, ends a step
 */
#ifndef TG_EXEC_LGC_H
#define TG_EXEC_LGC_H

#include "autoencoder/autoencoder.h"
#include "exec/exec.h"
#include "quantize/autoencoder.h"

/* How a tensor is sent in phases 2 and 3. */
typedef enum tg_lgc_role {
    TG_LGC_WHOLE, /* dense: the first layer, and tensors exempt from the recipe */
    TG_LGC_CODED, /* sparse: its values at the leader's indices are encoded by the autoencoder */
    TG_LGC_PICKED /* sparse: its values at the leader's indices are sent in fp32; the last layer */
} tg_lgc_role;

typedef struct tg_lgc_tensor {
    tg_lgc_role role;
    uint64_t n, at;     /* number of elements, and their offset in input.u */
    uint64_t sparse_at; /* their offset among the elements of sparse tensors (coded and picked) */
    uint64_t k;         /* number of indices that a leader selects */
    const tg_feedback_part *feedback;
    const double *feedback_params, *select_params;
    uint64_t feedback_at; /* offset of its error-feedback state, if it has any */
} tg_lgc_tensor;

/* Progress of a run; the same on all ranks. */
typedef struct tg_lgc_progress {
    uint32_t phase;    /* of the next step */
    uint32_t left;     /* steps until this phase may end; in the last phase: until it learns again */
    uint32_t extended; /* how often the learning phase was extended because its error was too large */
    float error;       /* relative error of the autoencoder, a moving average; negative: not known yet */
} tg_lgc_progress;

typedef struct tg_lgc tg_lgc;

/* Numbers of elements. */
typedef struct tg_lgc_size {
    uint64_t n;                 /* elements of all tensors */
    uint64_t whole_n, sparse_n; /* elements of whole tensors, and of sparse ones (coded and picked) */
    uint64_t coded_n, picked_n; /* indices that a leader selects in coded and in picked tensors */
    uint64_t code_n;            /* floats of a code */
    uint64_t innovation_n;      /* values of an innovation */
} tg_lgc_size;

/* State between steps. */
typedef struct tg_lgc_state {
    float *saved; /* error-feedback state, scales, and space for the rest of the saved state */
    float *next;  /* error-feedback state after this step, until it is committed */
    uint64_t feedback_n;
    float *scales; /* of each tensor, inside `saved`: a moving RMS of its averaged values */
} tg_lgc_state;

/* The leader's indices. */
typedef struct tg_lgc_lead {
    uint64_t *mask;          /* over the elements of sparse tensors */
    uint64_t *part;          /* scratch: the mask of one tensor, or of an innovation */
    void *scratch;           /* of the select part */
    uint64_t *keys;          /* scratch: sort keys */
    uint32_t *order;         /* order[i] is the coded value at position i of a sequence */
    uint32_t *order_scratch; /* of tg_ordering_read and tg_ordering_write */
} tg_lgc_lead;

/* Values at the leader's indices. */
typedef struct tg_lgc_values {
    float *values;      /* of each rank: in index order, coded values first, then picked values */
    float *sequences;   /* of each rank: its coded values, permuted by `order` and normalised */
    float *innovations; /* of each rank: its sequence with all but the largest values set to 0 */
    const float **rows; /* pointers to the sequences of all ranks, then to their innovations */
    float *code, *mean_code, *decoded;
} tg_lgc_values;

struct tg_lgc {
    tg_allocator allocator;
    const tg_layout *layout;
    const double *params;
    bool is_server;
    tg_nonfinite nonfinite;
    uint32_t rank, world;
    tg_autoencoder *autoencoder;
    tg_lgc_tensor *tensors;
    tg_lgc_size size;
    tg_lgc_progress progress;
    struct {
        uint32_t last_phase; /* of the last step that succeeded; 0: there was none */
        uint64_t lead_len;   /* bytes that this rank sent in a step for indices and their order */
        uint64_t coded_len;  /* bytes that it sent for coded values: raw values, a code, or an innovation */
    } sent;
    struct {
        float *u, *g; /* gradient plus residual, and the gradient alone */
    } input;
    tg_lgc_state state;
    tg_lgc_lead lead;
    tg_lgc_values of;
    struct {
        float *vector, *average; /* this rank's vector, and its average over ranks */
        float *means;            /* averages at the leader's indices, coded values first, then picked values */
    } sum;
};

enum { TG_LGC_PHASE_DENSE = 1, TG_LGC_PHASE_LEARN, TG_LGC_PHASE_CODE };

/* Number of coded values of tensor t. */
static inline uint64_t tg_lgc_coded(const tg_lgc *l, size_t t)
{
    return l->tensors[t].role == TG_LGC_CODED ? l->tensors[t].k : 0;
}

/* ---- lgc_vector.c ---------------------------------------------------------------------------------------------------- */

/* Computes gradients plus residuals into l->input. */
tg_status tg_lgc_load(tg_lgc *l, void *const *grads, tg_detail *why) TG_CHECKED;

/* Length of the vector in this phase. */
uint64_t tg_lgc_vector_n(const tg_lgc *l);

/* Fills l->sum.vector with this rank's values. */
void tg_lgc_fill_vector(tg_lgc *l);

/* This rank's values at the leader's indices, coded values first; tg_lgc_pick_values copies them from l->input.u. */
float *tg_lgc_own_values(const tg_lgc *l);
void tg_lgc_pick_values(const tg_lgc *l);

/* Elements [from, to) of a vector as bytes, and back. put_stretch returns the end of what it wrote. */
uint64_t tg_lgc_stretch_len(const tg_lgc *l, uint64_t from, uint64_t to);
uint8_t *tg_lgc_put_stretch(uint8_t *out, const tg_lgc *l, const float *vector, uint64_t from, uint64_t to);
void tg_lgc_get_stretch(float *vector, const tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to);

/* Writes a code's value, rounded to its type, or reads it. Both return the position after it. */
tg_dtype tg_lgc_code_type(const tg_lgc *l);
uint8_t *tg_lgc_put_code(uint8_t *out, tg_dtype type, float value);
const uint8_t *tg_lgc_get_code(float *value, tg_dtype type, const uint8_t *bytes);

/* ---- lgc_sequence.c -------------------------------------------------------------------------------------------------- */

/* Marks the largest magnitudes among n values in `mask`, which must be 0; the ratio in `params` tells how many. */
void tg_lgc_mark_largest(uint64_t *mask, const tg_lgc *l, const float *values, uint64_t n, const double *params);

/* Sorts the leader's coded values; sets l->lead.order. */
void tg_lgc_choose_order(tg_lgc *l, const float *values);

/* Permutes and normalises a rank's coded values into a sequence, and back. */
void tg_lgc_to_sequence(float *sequence, const tg_lgc *l, const float *values);
void tg_lgc_from_sequence(float *values, const tg_lgc *l, const float *sequence);

/* The innovation of a sequence: its largest values, all others 0. `mask` marks the largest ones. */
void tg_lgc_innovate(float *innovation, uint64_t *mask, const tg_lgc *l, const float *sequence);

/* ---- lgc_learn.c ----------------------------------------------------------------------------------------------------- */

/* Computes this step's averages of sparse tensors into l->sum.means. Applies the policy for NaN and Inf to all averages, and to
 * the residuals that they leave: refuse, set to 0, or pass. The averages are judged alike on all ranks. */
tg_status tg_lgc_check_averages(tg_lgc *l, tg_detail *why) TG_CHECKED;

/* Called when the step has succeeded on all ranks: writes the averages to the gradients, commits the residuals, and trains the
 * autoencoder. */
void tg_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step);

/* ---- lgc.c ----------------------------------------------------------------------------------------------------------- */

/* On failure the caller must still pass *out to tg_lgc_free. */
tg_status tg_lgc_new(tg_lgc **out, const tg_layout *layout, uint32_t rank, uint32_t world, tg_nonfinite nonfinite,
                     const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_lgc_free(tg_lgc *l);

/* The residual of tensor t, and its share of what this rank sent in the last step. Bytes that tensors have in common are shared
 * out by their numbers of entries. */
void tg_lgc_residual(float *out, const tg_lgc *l, size_t t);
void tg_lgc_traffic(tg_traffic *out, const tg_lgc *l, size_t t);

/* The saved state, *n floats. After loading into it, call tg_lgc_restored. */
float *tg_lgc_saved(tg_lgc *l, uint64_t *n);
void tg_lgc_restored(tg_lgc *l);

#endif
