/* LGC (arXiv 2103.08870): what does not depend on the executor. exchange/lgc.c describes the algorithm.
 *
 *     lgc.c             creates and frees the object: roles of tensors, sizes; phases; saved state
 *     host_lgc*.c       the passes of the host; those of a GPU are in cuda/lgc*.c
 *
 * In a step each rank builds a vector, which is averaged over ranks:
 *
 *     phase 1    all elements
 *     phase 2    whole tensors, picked values, coded values
 *     phase 3    whole tensors, picked values, and in a ring the code of the coded values
 *
 * Values of whole tensors, which are all of them in phase 1, and those of a code may have a shorter type on the wire; all others are fp32. */
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
    uint64_t n, at;     /* number of elements, and their offset among those of all tensors */
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

/* Numbers of elements. */
typedef struct tg_lgc_size {
    uint64_t n;                 /* elements of all tensors */
    uint64_t whole_n, sparse_n; /* elements of whole tensors, and of sparse ones (coded and picked) */
    uint64_t coded_n, picked_n; /* indices that a leader selects in coded and in picked tensors */
    uint64_t code_n;            /* floats of a code */
    uint64_t innovation_n;      /* values of an innovation */
    uint64_t feedback_n;        /* floats of error-feedback state */
} tg_lgc_size;

enum { TG_LGC_COUNTERS = 6 };

/* A part of the saved state, in memory of the executor. */
typedef struct tg_lgc_section {
    float *at;
    uint64_t n;
} tg_lgc_section;

typedef struct tg_lgc tg_lgc;

/* The passes of an executor, in the order of a step. Bodies of messages are in memory of the executor; those that are read were
 * hashed, and are otherwise not trusted. */
typedef struct tg_lgc_passes {
    /* Takes memory of its own, l->own, which is NULL before. Sets l->saved. `close` accepts what `open` left unfinished. */
    tg_status (*open)(tg_lgc *l, tg_detail *why);
    void (*close)(tg_lgc *l);

    /* Loads gradients and adds residuals. */
    tg_status (*load)(tg_lgc *l, void *const *grads, tg_detail *why);

    /* The leader: selects indices, chooses the order of the coded values, and encodes them if a server wants the code. Writes the body
     * of its message: lead_len bytes of indices and order, then code_len of the code. */
    void (*lead)(uint8_t *body, uint64_t *lead_len, uint64_t *code_len, tg_lgc *l);

    /* Takes indices, order and code from a leader's message, and this rank's values at these indices. False: the message is
     * invalid. */
    bool (*follow)(tg_lgc *l, const uint8_t *body, uint64_t len);

    /* Fills this rank's vector. */
    void (*fill)(tg_lgc *l);

    /* Elements [from, to) of this rank's vector, or of the average, as bytes. */
    void (*put)(uint8_t *out, const tg_lgc *l, bool of_average, uint64_t from, uint64_t to);

    /* Averages elements [from, to) of all ranks' vectors, in rank order: those of rank p are at bodies[p]. In phase 2, whole vectors:
     * keeps their coded values. */
    void (*average)(tg_lgc *l, const uint8_t *const *bodies, uint64_t from, uint64_t to);

    /* Elements [from, to) of the average from bytes. */
    void (*take)(tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to);

    /* A server's: writes this rank's innovation, and returns its length. Decodes the values of rank p from its innovation and the
     * leader's code; false: it is invalid. Takes the mean of them, after all ranks', to the average after the vector. */
    uint64_t (*innovate)(uint8_t *out, tg_lgc *l);
    bool (*add_innovation)(tg_lgc *l, uint32_t p, const uint8_t *bytes, uint64_t len);
    void (*end_innovations)(tg_lgc *l);

    /* Finds this step's averages of sparse tensors. Applies the policy for NaN and Inf to all averages, and to the residuals that they
     * leave: refuse, set to 0, or pass. The averages are judged alike on all ranks. */
    tg_status (*check)(tg_lgc *l, tg_detail *why);

    /* The step has succeeded on all ranks: writes the averages to the gradients, commits the residuals, and trains the autoencoder.
     * Updates l->progress.error and l->optimizer_steps. */
    void (*finish)(tg_lgc *l, void *const *grads, uint64_t step);
} tg_lgc_passes;

enum { TG_LGC_SECTIONS = 3 };

struct tg_lgc {
    tg_allocator allocator;
    const tg_executor *executor;
    const tg_device *device;
    tg_run *run; /* whose stream is used */
    const tg_layout *layout;
    const double *params;
    bool is_server;
    tg_nonfinite nonfinite;
    uint32_t rank, world;
    tg_autoencoder_config config;
    tg_lgc_tensor *tensors;
    tg_lgc_size size;
    tg_lgc_progress progress;
    uint64_t optimizer_steps;
    struct {
        uint32_t last_phase; /* of the last step that succeeded; 0: there was none */
        uint64_t lead_len;   /* bytes that this rank sent in a step for indices and their order */
        uint64_t coded_len;  /* bytes that it sent for coded values: raw values, a code, or an innovation */
    } sent;
    tg_lgc_section saved[TG_LGC_SECTIONS]; /* residuals, then scales of tensors; weights; moments of the optimizer */
    float counters[TG_LGC_COUNTERS];       /* progress as it is saved, after the first section */
    void *own;                             /* of the passes */
};

enum { TG_LGC_PHASE_DENSE = 1, TG_LGC_PHASE_LEARN, TG_LGC_PHASE_CODE };

/* Where gradients are, and who works on them. */
typedef struct tg_lgc_place {
    const tg_executor *executor;
    const tg_device *device;
    tg_run *run;
    uint32_t rank, world;
} tg_lgc_place;

/* On failure the caller must still pass *out to tg_lgc_free. Refuses an executor without passes. */
tg_status tg_lgc_new(tg_lgc **out, const tg_layout *layout, tg_nonfinite nonfinite, const tg_lgc_place *place,
                     const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_lgc_free(tg_lgc *l);

/* The longest form of a mask of n elements, in chunks as in a frame. */
static inline uint64_t tg_lgc_mask_bound(uint64_t n)
{
    return (n + TG_CHUNK - 1) / TG_CHUNK * (TG_INDEX_HEADER + 1) + n / 8;
}

/* Number of coded values of tensor t. */
static inline uint64_t tg_lgc_coded(const tg_lgc *l, size_t t)
{
    return l->tensors[t].role == TG_LGC_CODED ? l->tensors[t].k : 0;
}

/* The rank whose indices all use in a step, and whose code a server gets. */
static inline uint32_t tg_lgc_leader(const tg_lgc *l, uint64_t step)
{
    return (uint32_t)(step % l->world);
}

/* Length of the vector in this phase, and of the bytes of its elements [from, to). */
uint64_t tg_lgc_vector_n(const tg_lgc *l);
uint64_t tg_lgc_bytes_of(const tg_lgc *l, uint64_t from, uint64_t to);

/* The type of a code's values on the wire. */
tg_dtype tg_lgc_code_type(const tg_lgc *l);

/* Neighbours in the vector that have one type on the wire. */
typedef struct tg_lgc_span {
    uint64_t n;
    tg_dtype type;
} tg_lgc_span;

/* Elements [from, to) of the vector: those of whole tensors, other values, and those of a code. */
enum { TG_LGC_SPANS = 3 };
void tg_lgc_spans(tg_lgc_span spans[TG_LGC_SPANS], const tg_lgc *l, uint64_t from, uint64_t to);

/* Whether the residual of coded values is u minus their average, not u minus this rank's values. */
bool tg_lgc_subtracts_average(const tg_lgc *l);

/* Notes the error of the autoencoder in a step in which it was trained. */
void tg_lgc_note_error(tg_lgc *l, double error);

/* Ends a step that has succeeded: passes->finish, then the phase of the next step. */
void tg_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step);

/* Sentences: an average that is not finite; a residual that it leaves. */
tg_status tg_lgc_refuse(const tg_lgc *l, size_t tensor, bool average_is_finite, tg_detail *why) TG_CHECKED;

/* The residual of tensor t, and its share of what this rank sent in the last step. Bytes that tensors have in common are shared
 * out by their numbers of entries. */
void tg_lgc_residual(float *out, const tg_lgc *l, size_t t);
void tg_lgc_traffic(tg_traffic *out, const tg_lgc *l, size_t t);

/* The saved state: n numbers from number `at` on. After all are loaded, call tg_lgc_restored. */
uint64_t tg_lgc_saved_n(const tg_lgc *l);
void tg_lgc_save(float *out, tg_lgc *l, uint64_t at, uint64_t n);
void tg_lgc_load_saved(tg_lgc *l, uint64_t at, const float *values, uint64_t n);
void tg_lgc_restored(tg_lgc *l);

#endif
