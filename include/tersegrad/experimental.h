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
 * failed, or TG_OK. */
TG_API tg_status tg_lockstep_reduce(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, uint64_t step,
                                    void *const *const *grads, const tg_tap *tap, tg_detail *why) TG_CHECKED;

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

#ifdef __cplusplus
}
#endif

#endif
