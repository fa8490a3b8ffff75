/* Tersegrad for tests and studies: runs all ranks in one thread, observes every message, and reports how far an exchange has
 * learned. Training needs none of it, and it may change in any version. The rules of tersegrad.h apply. */
#ifndef TERSEGRAD_EXPERIMENTAL_H
#define TERSEGRAD_EXPERIMENTAL_H

#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- lockstep: all ranks in one thread ------------------------------------------------------------------ */

/* The result of a step on one rank. */
typedef struct tg_outcome {
    tg_status status;
    tg_detail why;
} tg_outcome;

/* A callback that receives every message of a lockstep run, after it was copied and before it is used. It may count the
 * message, change it, or make the operation fail by returning an error. */
typedef struct tg_tap {
    tg_status (*message)(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len);
    void *context;
} tg_tap;

/* Runs one step of `world` ranks in the calling thread. ranks[r] is the exchange of rank r and grads[r] its gradients. The
 * result of each rank is written to outcomes[r]; `outcomes` and `tap` may be NULL. Returns the result of the first rank that
 * failed, or TG_OK. Ranks may have devices: messages are then copied from device memory to device memory, and there is no tap. */
TG_API tg_status tg_lockstep_reduce(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, uint64_t step,
                                    void *const *const *grads, const tg_tap *tap, tg_detail *why) TG_CHECKED;

/* The same in two parts, so that the gradients of one rank can be encoded while those of the next are computed. tg_lockstep_begin,
 * once for each rank, in any order, begins the step on a rank and goes as far as it can without the others; tg_lockstep_end does the rest.
 *
 * All ranks would compute the same averages. With `takes` 0 a rank does not check and decode what only leads to its averages, and
 * its gradients are undefined afterwards; it sends, receives and keeps what it always does. At least one rank should take them. In
 * steps that verify_every names, all do. */
TG_API tg_status tg_lockstep_begin(tg_exchange *x, uint64_t step, void *const *grads, uint32_t takes,
                                   tg_detail *why) TG_CHECKED;
TG_API tg_status tg_lockstep_end(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, const tg_tap *tap,
                                 tg_detail *why) TG_CHECKED;

/* ---- sums that nobody reads yet -------------------------------------------------------------------------- */

/* As tg_decode_add, for sums that are private until this returns: checks a frame while it adds it, and so reads it once, where
 * tg_decode_add checks it whole before it adds. Refuses what tg_decode_add refuses, with the same status and sentence. On
 * failure, sums may hold part of the frame: discard them. */
TG_API tg_status tg_decode_add_private(tg_codec *c, float *const *sums, float weight, const void *src, size_t src_len,
                                       tg_detail *why) TG_CHECKED;

/* ---- counts of papers ---------------------------------------------------------------------------------- */

/* Bytes that tensor t would have taken in the last frame, or in the last step, by the count of its scheme's paper (AdaComp: 8 or
 * 16 bits an entry, and a scale); 0 for recipes without such a count, and if there is no such tensor. */
TG_API uint64_t tg_codec_paper_len(const tg_codec *c, size_t tensor);
TG_API uint64_t tg_exchange_paper_len(const tg_exchange *x, size_t tensor);

/* ---- exchanges that learn ------------------------------------------------------------------------------ */

/* The progress of an exchange that learns during the run (lgc-ring, lgc-server). */
typedef struct tg_learning {
    uint32_t phase;    /* of the next step. 1: dense, 2: training, 3: compressed; 0: the exchange does not learn */
    uint32_t left;     /* minimum number of steps until the phase ends */
    uint32_t extended; /* how often training was extended because the error was too large */
    double error;      /* relative error of reconstruction in the last steps of phase 2; negative: not measured yet */
} tg_learning;

/* Writes the progress of an exchange to *out. */
TG_API void tg_exchange_learning(tg_learning *out, const tg_exchange *x);

/* ---- outlines: a step without gradients ------------------------------------------------------------------ */

/* A pass over gradients or frames. */
typedef enum tg_pass {
    TG_PASS_ENCODE = 0,    /* gradients to frames */
    TG_PASS_CHECK = 1,     /* checks frames that have arrived */
    TG_PASS_SUM = 2,       /* frames that were checked to averages */
    TG_PASS_CHECK_SUM = 3, /* both at once, to averages that are private */
    TG_PASS_COPY = 4,      /* averages that were private to the gradients */
    TG_PASS_MULTIPLY = 5,  /* of PowerSGD: a product with every matrix; a step has three */
    /* Of LGC, beside ENCODE (adds residuals) and COPY (writes averages and residuals) of all tensors: */
    TG_PASS_LEAD = 6,   /* the leader selects indices; with a server, encodes its values there */
    TG_PASS_FOLLOW = 7, /* takes the leader's indices and this rank's values there; in a ring, encodes them */
    TG_PASS_DECODE = 8  /* decodes a code; elements are values of a code's sequence */
} tg_pass;
#define TG_PASS_N 9

/* The size of a pass. A chunk is what is encoded by itself: a tensor's share of a frame, or a piece of it. */
typedef struct tg_work {
    tg_pass pass;
    uint64_t frames;                       /* that are written, checked, or summed */
    uint64_t elements, chunks;             /* of tensors that the recipe compresses; of sums, in one frame */
    uint64_t dense_elements, dense_chunks; /* of tensors that are sent as they are */
} tg_work;

typedef enum tg_talk {
    TG_TALK_MESSAGES = 0, /* of a group */
    TG_TALK_LENGTHS = 1,  /* announces those of a group */
    TG_TALK_CLOSING = 2   /* the vote at the end of a step; there is no group */
} tg_talk;

/* Receives what a rank does in a step, in this order: for each group its passes and operations, then the closing operations, then
 * the passes after them. `group` is the number of groups after the last of them. */
typedef struct tg_outline_visitor {
    void (*work)(void *context, size_t group, const tg_work *work);
    /* The sends of `op` have the lengths of messages. Its receives have them only where all lengths are known beforehand. */
    void (*carry)(void *context, size_t group, tg_talk talk, const tg_op *op);
    void *context;
} tg_outline_visitor;

typedef struct tg_outline {
    char exchange[16];
    size_t groups;
    uint64_t residual_len; /* bytes of residual state that this rank keeps */
    int is_exact;          /* all lengths are; 0: some are by `bits` */
    uint32_t phase;        /* of the step, if the exchange learns (tg_learning); 0: it does not */
} tg_outline;

/* Describes a step of rank `rank` without gradients and without memory for them: an exchange is made as by tg_exchange_new, and goes
 * through a step in which nothing is encoded. Lengths that depend on gradients are bits[t] for each element of tensor t, or, if
 * `bits` is NULL, the longest possible. A leader of coordinates is rank 0.
 *
 * Of LGC it is a step of the last phase, as if all before it had been done. There, bits[t] are those of the leader's indices for
 * each element of a tensor that is not sent whole, and innovations have the longest possible length. */
TG_API tg_status tg_exchange_outline(tg_outline *out, const tg_outline_visitor *visitor, const char *recipe,
                                     const tg_tensor *tensors, size_t tensor_n, uint32_t rank, uint32_t world,
                                     const tg_options *opt, const double *bits, tg_detail *why) TG_CHECKED;

#ifdef __cplusplus
}
#endif

#endif
