/* The inside of a reducer: reducer.c has what callers call, reducer_pump.c makes progress. */
#ifndef TG_LINK_REDUCER_H
#define TG_LINK_REDUCER_H

#include "exchange/exchange.h"

#include <pthread.h>

enum {
    TG_CONTROL_CHANNEL,
    TG_LENGTHS_CHANNEL,                                          /* of slot 0 */
    TG_GROUP_CHANNEL = TG_LENGTHS_CHANNEL + TG_ANNOUNCEMENT_MAX, /* of group 0 */
};

typedef enum tg_flight { TG_GROUNDED, TG_AWAITS_LENGTHS, TG_IN_FLIGHT, TG_LANDED } tg_flight;

/* A group. */
typedef struct tg_group_state {
    tg_flight flight;
    tg_op op;
    uint64_t started_ns; /* its operation, or its wait for lengths */
    size_t tensor_n;
    size_t missing;    /* tensors that are not ready; under the lock */
    uint64_t ready_ns; /* when the last one became ready; under the lock */
} tg_group_state;

struct tg_reducer {
    tg_exchange *x;
    tg_link *link;
    bool has_thread;
    pthread_t thread;

    /* Of whoever pumps. */
    tg_group_state *groups;
    bool votes; /* an operation on the control channel is under way */
    tg_op control;
    bool announces[TG_ANNOUNCEMENT_MAX]; /* one on the channel of each slot is */
    tg_op lengths[TG_ANNOUNCEMENT_MAX];
    bool is_over; /* the step has ended, and the caller does not know it yet */
    tg_outcome outcome;
    uint32_t under_way; /* operations ... */
    uint64_t since_ns;  /* ... and since when there are any */

    /* Shared, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t news, end;
    bool has_news, quits;
    bool is_begun, is_ended; /* of a step */
    bool is_awaited;         /* tensors that are still missing fail the step */
    bool *is_ready;          /* of each tensor */
    tg_outcome misuse;
};

/* Does all that can be done without waiting, and tells the caller if the step has ended. Returns whether there was something to
 * do. */
bool tg_reducer_pump(tg_reducer *r);

/* Whether a step has begun and not ended. For whoever pumps. */
bool tg_reducer_is_busy(const tg_reducer *r);

/* Takes over what the caller has done wrong. */
void tg_reducer_heed_misuse(tg_reducer *r);

/* Ends a step, and tells the caller. From then on the exchange is the caller's, who may begin the next step at once. */
void tg_reducer_end(tg_reducer *r, tg_status status, const tg_detail *why);

#endif
