/* LGC's computations on the host (arXiv 2103.08870); exchange/lgc.c says what they are for.
 *
 *     lgc.c           makes one; saved state
 *     lgc_vector.c    the gradient with its residual, and the vector that is summed over ranks
 *     lgc_sequence.c  values as the autoencoder sees them
 *     lgc_learn.c     the autoencoder, phases, and the end of a step
 */
#ifndef TG_EXEC_LGC_H
#define TG_EXEC_LGC_H

#include "autoencoder/autoencoder.h"
#include "exec/exec.h"
#include "quantize/autoencoder.h"

/* How a tensor travels once not all is sent any more. */
typedef enum tg_lgc_role {
    TG_LGC_WHOLE, /* as it is: the first layer, and what is exempt from the recipe */
    TG_LGC_CODED, /* its values at the leader's coordinates as part of the code */
    TG_LGC_PICKED /* these values as they are: the last layer */
} tg_lgc_role;

typedef struct tg_lgc_tensor {
    tg_lgc_role role;
    uint64_t n, at;     /* elements, and where they are in u */
    uint64_t sparse_at; /* where they are among those of all tensors that are not whole */
    uint64_t k;         /* coordinates that a leader chooses */
    const tg_feedback_part *feedback;
    const double *feedback_params, *select_params;
    uint64_t memory_at; /* of its residual state, if the feedback has any */
} tg_lgc_tensor;

/* What a run has come to; the same on all ranks. */
typedef struct tg_lgc_progress {
    uint32_t phase;    /* of the next step */
    uint32_t left;     /* steps until this phase may end; of the last one: until it learns again */
    uint32_t extended; /* how often learning went on because it was not enough */
    float error;       /* relative, of the autoencoder, over the last steps; negative: not known yet */
} tg_lgc_progress;

typedef struct tg_lgc tg_lgc;

/* Numbers of elements and values. */
typedef struct tg_lgc_size {
    uint64_t n;                 /* elements of all tensors */
    uint64_t whole_n, sparse_n; /* of those that travel whole, and of the others */
    uint64_t coded_n, picked_n; /* coordinates that a leader chooses in tensors of either role */
    uint64_t code_n;            /* floats of a code */
    uint64_t innovation_n;      /* values of an innovation */
} tg_lgc_size;

/* What is kept between steps. */
typedef struct tg_lgc_state {
    float *saved; /* residual state, scales, and space for the rest of what is saved */
    float *next;  /* residual state after this step */
    uint64_t memory_n;
    float *scales; /* of each tensor, in `saved`: a moving root mean square of the average at its coordinates */
} tg_lgc_state;

/* The leader's coordinates. */
typedef struct tg_lgc_lead {
    uint64_t *mask;  /* among the elements of sparse tensors */
    uint64_t *part;  /* mask of one tensor, or of an innovation */
    void *scratch;   /* of the select part */
    uint64_t *keys;  /* to sort by */
    uint32_t *order; /* which coded value is at each place of a sequence */
    uint32_t *space;
} tg_lgc_lead;

/* Values at the leader's coordinates. */
typedef struct tg_lgc_values {
    float *values;      /* in index order: of each rank, coded ones first */
    float *sequences;   /* of each rank: coded values in order, normalised */
    float *innovations; /* of each rank, as sequences */
    const float **rows; /* of sequences, then of innovations */
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
        uint64_t lead_len;   /* bytes that this rank has sent in a step of coordinates and their order, ... */
        uint64_t coded_len;  /* ... and of coded values: themselves, a code, or an innovation */
    } said;
    struct {
        float *u, *g; /* gradient + residual, and the gradient alone */
    } input;
    tg_lgc_state state;
    tg_lgc_lead lead;
    tg_lgc_values of;
    struct {
        float *vector, *average; /* what is summed over ranks, laid end to end */
        float *means;            /* at the leader's coordinates, coded ones first */
    } sum;
};

enum { TG_LGC_PHASE_DENSE = 1, TG_LGC_PHASE_LEARN, TG_LGC_PHASE_CODE };

/* Coded values of tensor t. */
static inline uint64_t tg_lgc_coded(const tg_lgc *l, size_t t)
{
    return l->tensors[t].role == TG_LGC_CODED ? l->tensors[t].k : 0;
}

/* ---- lgc_vector.c ---------------------------------------------------------------------------------------------------- */

/* This step's gradients plus residuals, into l->input. */
tg_status tg_lgc_load(tg_lgc *l, void *const *grads, tg_detail *why) TG_CHECKED;

/* Elements of the vector in this phase. */
uint64_t tg_lgc_vector_n(const tg_lgc *l);

/* This rank's vector into l->vector. */
void tg_lgc_fill_vector(tg_lgc *l);

/* This rank's own values at the leader's coordinates, coded ones first; and how they are picked out of u. */
float *tg_lgc_own_values(const tg_lgc *l);
void tg_lgc_pick_values(const tg_lgc *l);

/* Elements [from, to) of a vector as bytes, and back. */
uint64_t tg_lgc_stretch_len(const tg_lgc *l, uint64_t from, uint64_t to);
uint8_t *tg_lgc_put_stretch(uint8_t *out, const tg_lgc *l, const float *vector, uint64_t from, uint64_t to);
void tg_lgc_get_stretch(float *vector, const tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to);

/* A value of a code in its type, rounded to it; what is behind it in the bytes. */
tg_dtype tg_lgc_code_type(const tg_lgc *l);
uint8_t *tg_lgc_put_code(uint8_t *out, tg_dtype type, float value);
const uint8_t *tg_lgc_get_code(float *value, tg_dtype type, const uint8_t *bytes);

/* ---- lgc_sequence.c -------------------------------------------------------------------------------------------------- */

/* Marks the largest magnitudes of a stretch of values, as many as the ratio says, in a mask that is clear. */
void tg_lgc_mark_largest(uint64_t *mask, const tg_lgc *l, const float *values, uint64_t n, const double *params);

/* The order in which coded values stand in a sequence, by those of the leader. */
void tg_lgc_choose_order(tg_lgc *l, const float *values);

/* Coded values of a rank as a sequence, and a sequence as values again. */
void tg_lgc_to_sequence(float *sequence, const tg_lgc *l, const float *values);
void tg_lgc_from_sequence(float *values, const tg_lgc *l, const float *sequence);

/* The innovation in a sequence: its largest values, the rest 0; and where they are. */
void tg_lgc_innovate(float *innovation, uint64_t *mask, const tg_lgc *l, const float *sequence);

/* ---- lgc_learn.c ----------------------------------------------------------------------------------------------------- */

/* All averages of this step into l->sum.means, but for tensors that travel whole; where one is NaN or Inf, or what it leaves of
 * this rank's own values is, by the policy: refused, set to 0, or let through. All ranks come to the same verdict of the
 * averages. */
tg_status tg_lgc_check_averages(tg_lgc *l, tg_detail *why) TG_CHECKED;

/* All ranks are well: averages to the gradients, residuals committed, the autoencoder trained. */
void tg_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step);

/* ---- lgc.c ----------------------------------------------------------------------------------------------------------- */

/* On failure *out is left for tg_lgc_free. */
tg_status tg_lgc_new(tg_lgc **out, const tg_layout *layout, uint32_t rank, uint32_t world, tg_nonfinite nonfinite,
                     const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_lgc_free(tg_lgc *l);

/* The residual of tensor t; and what tensor t took of what this rank sent in the last step, of what tensors have in common
 * their shares by entries. */
void tg_lgc_residual(float *out, const tg_lgc *l, size_t t);
void tg_lgc_traffic(tg_traffic *out, const tg_lgc *l, size_t t);

/* All that is saved, n floats, and what to do once they were loaded. */
float *tg_lgc_saved(tg_lgc *l, uint64_t *n);
void tg_lgc_restored(tg_lgc *l);

#endif
