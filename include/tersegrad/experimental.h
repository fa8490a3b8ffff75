/* Tersegrad for tests and studies: all ranks of a world in one thread, a look at every message, how far an exchange has
 * learned. Training does not need any of it, and it may change with any version. The rules of tersegrad.h hold. */
#ifndef TERSEGRAD_EXPERIMENTAL_H
#define TERSEGRAD_EXPERIMENTAL_H

#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- lockstep: all ranks in one thread ------------------------------------------------------------------ */

/* How a step ended on one rank. */
typedef struct tg_outcome {
    tg_status status;
    tg_detail why;
} tg_outcome;

/* Sees every message of a lockstep run after it was copied and before it is used; may count it, damage it,
 * or fail the operation by returning an error. */
typedef struct tg_tap {
    tg_status (*message)(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len);
    void *context;
} tg_tap;

/* One step of `world` ranks in the calling thread: ranks[r] with grads[r]. `outcomes` (world of them) and
 * `tap` may be NULL. Returns the outcome of the first rank that failed. */
TG_API tg_status tg_lockstep_reduce(tg_outcome *outcomes, tg_exchange *const *ranks, uint32_t world, uint64_t step,
                                    void *const *const *grads, const tg_tap *tap, tg_detail *why) TG_CHECKED;

/* ---- counts of papers ---------------------------------------------------------------------------------- */

/* Bytes that tensor t would have taken in the last frame, or in the last step, by the count of its scheme's paper (AdaComp: 8 or
 * 16 bits an entry, and a scale); 0 for recipes without such a count, and if there is no such tensor. */
TG_API uint64_t tg_codec_paper_len(const tg_codec *c, size_t tensor);
TG_API uint64_t tg_exchange_paper_len(const tg_exchange *x, size_t tensor);

/* ---- exchanges that learn ------------------------------------------------------------------------------ */

/* How far an exchange has learned that learns during the run (lgc-ring, lgc-server). */
typedef struct tg_learning {
    uint32_t phase;    /* of the next step: 1 all is sent, 2 it learns, 3 codes travel; 0: it is none that learns */
    uint32_t left;     /* steps until that phase may end */
    uint32_t extended; /* how often it went on learning, because what it had learned was not enough */
    double error; /* relative error of what it would have sent in place of the values, over the last steps of phase 2;
                          negative before there were such steps */
} tg_learning;

TG_API void tg_exchange_learning(tg_learning *out, const tg_exchange *x);

#ifdef __cplusplus
}
#endif

#endif
