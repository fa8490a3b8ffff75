/* A slow link, emulated: hands every operation to another link, and holds the rank back until its bytes could have travelled on a link
 * of a given rate and latency. Every rank has a port of that rate in each direction, which the operations on all channels share.
 * Bytes begin to travel when the inner link is done, which is when all ranks concerned have started the operation, and when the port
 * has sent, or received, the bytes of earlier operations. So an operation alone takes
 *
 *     latency + 8 * max(bytes sent, bytes received) / rate
 *
 * and operations on several channels share the rate, while their latencies overlap. Bytes between ranks of a host take no time.
 * What Ethernet and TCP add is left out, and so is congestion. */
#ifndef TR_SLOW_H
#define TR_SLOW_H

#include "tersegrad/tersegrad.h"

#include <pthread.h>

enum { TR_SLOW_CHANNELS = 64 };

/* An operation on a channel: none; the inner link has it; the inner link is done, and it is held back. */
typedef enum tr_slow_state { TR_SLOW_IDLE, TR_SLOW_INNER, TR_SLOW_HELD } tr_slow_state;

typedef struct tr_slow_channel {
    tr_slow_state state;
    double out, in; /* bytes */
    double due;     /* when it may be done; seconds of the monotonic clock */
    int is_told;    /* the timer: `notify` was called after `due` */
} tr_slow_channel;

typedef struct tr_slow {
    tg_link link; /* first, so that a link is its emulation */
    tg_link *inner;
    double bits;              /* a second */
    double latency;           /* seconds */
    uint32_t host_size;       /* ranks of a host; 0: 1 */
    double out_free, in_free; /* when each direction of the port has done what it was given */
    tr_slow_channel channels[TR_SLOW_CHANNELS];

    /* A thread that calls `notify` when an operation may be done; while the link listens. */
    void (*notify)(void *context);
    void *context;
    pthread_t timer;
    int has_timer, quits;
    pthread_mutex_t lock; /* of `quits` and the channels' `state`, `due` and `is_told` */
    pthread_cond_t change;
} tr_slow;

/* `s` must stay where it is, and `inner` live as long. If `inner` performs several operations at once, `s` does, too. */
void tr_slow_init(tr_slow *s, tg_link *inner, double bits, double latency);
void tr_slow_destroy(tr_slow *s);

#endif
