/* Internal to the MPI link: the link object, and what its files share.
 *
 * Calls to MPI are made by one thread at a time: the caller's, or, while the link listens, the link's own thread. Below, "MPI
 * thread" is the one of the two whose turn it is. */
#ifndef TG_LINK_MPI_INTERNAL_H
#define TG_LINK_MPI_INTERNAL_H

#include <tersegrad/mpi.h>

#include "link/mpi_liveness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { TG_MPI_CHANNELS = 64 }; /* not more than the bits of tg_mpi_progress.queued */

typedef enum tg_mpi_state { TG_MPI_IDLE, TG_MPI_UNDER_WAY, TG_MPI_DONE } tg_mpi_state;

typedef struct tg_mpi_channel {
    atomic_int state; /* tg_mpi_state */
    /* Written by the caller before an operation is posted. */
    const tg_op *op;
    uint64_t sent_len;
    MPI_Request *requests; /* of an operation: receives, then sends */
    uint32_t *peers;       /* of each request: the other rank */
    int *lens;             /* of each request: bytes */
    size_t request_cap;
    /* Of the MPI thread alone. */
    size_t request_n, received_n; /* of these, receives */
    size_t left;                  /* requests that have not completed; 0: no operation is posted */
    uint64_t since_ms;            /* of the start, or of the last request that has completed */
    uint64_t probed_ms;
    bool has_probed; /* since since_ms */
    int awaited;     /* the lowest rank that the operation waits for */
} tg_mpi_channel;

/* The link's own thread, and what it is asked to do. */
typedef struct tg_mpi_progress {
    pthread_mutex_t lock; /* guards all members but the thread's own */
    pthread_cond_t wake;  /* there is something to do */
    pthread_cond_t
        change; /* an operation is done, the link has failed, an abort has been sent, or the thread has ended */
    pthread_t thread;
    bool runs, is_ending;
    uint64_t posted; /* channels whose operation was under way when the thread was started */
    uint64_t queued; /* channels whose operation is to be posted */
    bool is_aborting;
    tg_detail reason; /* of the abort */
    void (*notify)(void *context);
    void *context;
} tg_mpi_progress;

struct tg_mpi {
    tg_link link; /* must be first: a tg_link pointer is cast to tg_mpi */
    tg_allocator allocator;
    MPI_Comm comm;
    uint32_t rank, world, timeout_ms;
    atomic_bool failed; /* permanently */
    bool peers_know;    /* the other ranks know of the failure: no need to send `why` */
    tg_detail why;      /* why it failed; the send buffer of abort messages; does not change any more once it failed */
    atomic_int awaited; /* the rank that operations wait for; read from signal handlers */
    MPI_Request *abort_sends; /* of each rank: the request that sends it `why` */
    tg_mpi_liveness liveness;
    tg_mpi_channel channels[TG_MPI_CHANNELS];
    atomic_bool listens; /* the link's own thread makes all calls to MPI */
    tg_mpi_progress progress;
};

/* mpi.c: formats the message into `why` unless it is NULL. Returns `status`. */
tg_status tg_mpi_fail(tg_status status, tg_detail *why, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* mpi.c: allocates n elements; NULL if out of memory. */
void *tg_mpi_acquire(const tg_allocator *a, size_t n, size_t element_len);
void tg_mpi_release(const tg_allocator *a, void *block);

uint64_t tg_mpi_now_ms(void);

/* mpi.c: pauses between two polls. The first polls only yield the CPU; later ones sleep for some microseconds, because the
 * ranks that are waited for may need this CPU. */
enum { TG_MPI_YIELD_POLLS = 300, TG_MPI_PAUSE_NS = 30000 };
void tg_mpi_pause(unsigned polls);

/* mpi_carry.c: the functions of tg_link. */
tg_status tg_mpi_carry(tg_link *self, const tg_op *op, tg_detail *why);
tg_status tg_mpi_start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why);
tg_status tg_mpi_test(tg_link *self, uint32_t channel, tg_detail *why);
void tg_mpi_abort(tg_link *self, const char *reason);

/* mpi_operation.c. All but the first two are called by the MPI thread. Those that return bool return false if the link has
 * failed; m->why then says why. */
tg_status tg_mpi_reserve(tg_mpi *m, uint32_t channel, const tg_op *op, tg_detail *why);
void tg_mpi_release_channels(tg_mpi *m);
bool tg_mpi_post(tg_mpi *m, uint32_t channel);
/* Tests the requests of an operation. *moved is set to whether one has completed. */
bool tg_mpi_poll(bool *moved, tg_mpi *m, uint32_t channel);
/* Probes the ranks that the operation waits for, when it is time, and fails when the timeout has passed. */
bool tg_mpi_check_timeout(tg_mpi *m, uint32_t channel);
/* Receives all control messages that have arrived. */
bool tg_mpi_receive_control(tg_mpi *m);
/* Sends the reason to all other ranks, unless they know it. */
void tg_mpi_send_abort(tg_mpi *m, const char *reason);

/* mpi_operation.c: MPICH reports the error of a completed request to the error handler of MPI_COMM_WORLD, not of the request's
 * communicator. So that handler is MPI_ERRORS_RETURN while requests are tested; then the program's handler is restored. */
MPI_Errhandler tg_mpi_return_errors(void);
void tg_mpi_restore_errors(MPI_Errhandler *kept);

/* mpi_hosts.c: sets link.host_size. All ranks have joined. */
tg_status tg_mpi_find_hosts(tg_mpi *m, tg_detail *why);

/* mpi_progress.c. */
void tg_mpi_progress_begin(tg_mpi_progress *progress);
void tg_mpi_progress_end(tg_mpi_progress *progress);
void tg_mpi_listen(tg_link *self, void (*notify)(void *context), void *context);
/* While the link listens: has an operation posted; waits until it is done or the link has failed. */
void tg_mpi_enqueue(tg_mpi *m, uint32_t channel);
void tg_mpi_await(tg_mpi *m, uint32_t channel);
/* Has the reason sent by the thread, and waits until it has. False if there is no thread. */
bool tg_mpi_enqueue_abort(tg_mpi *m, const char *reason);

#endif
