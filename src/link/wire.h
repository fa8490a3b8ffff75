/* Inside the link that carries messages in device memory by a wire; wire.c says how it works. */
#ifndef TG_LINK_WIRE_H
#define TG_LINK_WIRE_H

#include "base/memory.h"
#include "exec/cuda/gpu.h"
#include "tersegrad/cuda.h"

#include <pthread.h>

enum {
    TG_WIRE_TURN_MAX = 4096,    /* that rank 0 has given, and not yet told and taken */
    TG_WIRE_MESSAGE_WORDS = 16, /* of turns: their number, and so many less one */
    TG_WIRE_POLL_NS = 20000,    /* between looks at a mark */
    TG_WIRE_CHECK_MS = 5        /* between questions whether the wire or the inner link has failed */
};

typedef enum tg_wire_stage { TG_WIRE_IDLE, TG_WIRE_AWAITS_TURN, TG_WIRE_POSTED, TG_WIRE_ON_STREAM } tg_wire_stage;

/* The operation on a channel. */
typedef struct tg_wire_operation {
    tg_op host, wired; /* its messages in host memory, and those in device memory */
    tg_span *host_sends, *host_recvs, *wire_sends, *wire_recvs;
    const void **known; /* of sends, then of recvs: where a message in device memory was last */
    void *ready, *mark; /* on the device's stream when it was started; on the wire's stream after its messages */
    uint64_t posted_ms;
    tg_wire_stage stage; /* of its messages in device memory */
    bool has_wired, is_under_way, is_host_done;
} tg_wire_operation;

typedef struct tg_wire_link {
    tg_link link; /* must be first: a tg_link pointer is cast to tg_wire_link */
    tg_link *inner;
    tg_wire *wire;
    const tg_gpu *gpu;
    tg_allocator allocator;
    uint32_t rank, world, channel_n, timeout_ms;
    tg_wire_operation *operations; /* by channel, and one for `carry` */
    tg_wire_operation *posted;     /* that the wire has not yet put on its stream */
    uint64_t checked_ms, wired_len;
    uint32_t on_wire_n; /* operations that are posted or on the stream */
    uint64_t passed_n;  /* marks that were passed so far */
    bool owns_stream, is_aborted;
    tg_status failed; /* TG_OK: it has not */
    tg_detail reason;

    /* Turns. */
    uint32_t turns[TG_WIRE_TURN_MAX]; /* a ring */
    uint64_t added, taken, told;
    uint32_t message[TG_WIRE_MESSAGE_WORDS];
    tg_span *message_sends, *message_recvs;
    tg_op message_op;
    bool is_message_under_way;

    /* The thread that looks at marks while somebody listens. */
    pthread_mutex_t lock; /* of all above */
    pthread_cond_t work;
    pthread_t poller;
    bool has_poller, ends;
    void (*notify)(void *context);
    void *context;
} tg_wire_link;

/* All with the lock held. */

/* Splits the messages of an operation, which follow all that is on the device's stream now. */
tg_status tg_wire_prepare(tg_wire_operation *o, const tg_wire_link *l, const tg_op *op, tg_detail *why) TG_CHECKED;

/* Puts messages in device memory on the wire. */
tg_status tg_wire_post(tg_wire_link *l, tg_wire_operation *o, tg_detail *why) TG_CHECKED;

/* On rank 0: the operation on a channel is the next one. On others: as rank 0 says. */
tg_status tg_wire_add_turn(tg_wire_link *l, uint32_t channel, tg_detail *why) TG_CHECKED;

/* Tells or hears turns, posts operations whose turn it is, and looks which are done. Returns whether the link has failed. */
tg_status tg_wire_advance(tg_wire_link *l);

/* The link has failed, for good. Returns the status that it has first failed with. */
tg_status tg_wire_fail(tg_wire_link *l, tg_status status, const tg_detail *why);

#endif
