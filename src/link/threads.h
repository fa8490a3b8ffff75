/* Internal to the threads link: the hub that its ranks share. */
#ifndef TG_LINK_THREADS_H
#define TG_LINK_THREADS_H

#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TG_THREADS_CHANNELS = 64 };

/* One rank on one channel. All members are guarded by the hub's lock, but `state` may be read without it, and the rank itself
 * may read what only it writes. */
typedef struct tg_threads_slot {
    const tg_op *op;   /* the operation under way, or NULL */
    uint64_t number;   /* of the last operation that was started, from 1 */
    uint64_t sequence; /* of its start, among all starts of the hub */
    uint64_t began_ms;
    uint64_t sent_len;
    uint32_t left;    /* ranks with which messages are still to be exchanged */
    atomic_int state; /* tg_threads_state */
} tg_threads_slot;

typedef enum tg_threads_state { TG_THREADS_IDLE, TG_THREADS_UNDER_WAY, TG_THREADS_DONE } tg_threads_state;

/* One rank. */
typedef struct tg_threads_end {
    tg_link link; /* must be first: a tg_link pointer is cast to tg_threads_end */
    tg_threads *hub;
    uint32_t rank;
    uint32_t copies;     /* other ranks that now copy from or to the buffers of this one */
    pthread_cond_t wake; /* an operation is done, the link has failed, or `copies` or `calls` has become 0 */
    void (*notify)(void *context);
    void *context;
    bool listens;
    uint32_t calls; /* of notify: under way, or due */
    bool is_due;    /* is in the hub's list `due` */
    struct tg_threads_end *next_due;
} tg_threads_end;

struct tg_threads {
    tg_allocator allocator;
    pthread_mutex_t lock;
    uint32_t world, timeout_ms;
    uint64_t sequence;
    tg_threads_end *ends;
    tg_threads_slot *slots; /* of channel c, rank r: slots[c * world + r] */
    tg_threads_end
        *due; /* ends whose notify is to be called, by whoever holds the lock, before it returns to its caller */
    atomic_bool failed; /* permanently: where the other ranks are is unknown */
    tg_detail why;
    /* The watch notices timeouts for ranks that listen, because these call `test` only when they are notified. */
    pthread_t watch;
    pthread_cond_t watch_wake;
    bool watch_runs, watch_ends;
    uint32_t listener_n;
};

/* threads.c. Call with the lock held: notifies all ends that are due. The lock is released during each call. */
void tg_threads_notify_due(tg_threads *hub);

/* threads_carry.c: the functions of tg_link. */
tg_status tg_threads_carry(tg_link *self, const tg_op *op, tg_detail *why);
tg_status tg_threads_start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why);
tg_status tg_threads_test(tg_link *self, uint32_t channel, tg_detail *why);
void tg_threads_abort(tg_link *self, const char *reason);

/* threads_carry.c. Call with the lock held: fails the link if the rank's operation on the channel has been under way for too
 * long and some rank has not joined it. */
void tg_threads_check_timeout(tg_threads *hub, uint32_t channel, uint32_t rank);

#endif
