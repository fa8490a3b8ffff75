/* Internal to the MPI link: the link object, and helpers that its files share. */
#ifndef TG_LINK_MPI_INTERNAL_H
#define TG_LINK_MPI_INTERNAL_H

#include <tersegrad/mpi.h>

#include "link/mpi_liveness.h"

#include <signal.h>
#include <stdbool.h>

struct tg_mpi {
    tg_link link; /* must be first: a tg_link pointer is cast to tg_mpi */
    tg_allocator allocator;
    MPI_Comm comm;
    uint32_t rank, world, timeout_ms;
    bool failed;                   /* permanently */
    bool peers_know;               /* the other ranks know of the failure: no need to send `why` */
    tg_detail why;                 /* why it failed; the send buffer of abort messages */
    volatile sig_atomic_t awaited; /* the rank that an operation waits for; read from signal handlers */
    MPI_Request *requests;         /* of an operation: receives, then sends */
    uint32_t *peers;               /* of each request: the other rank */
    int *lens;                     /* of each request: bytes */
    size_t request_n, request_cap;
    MPI_Request *abort_sends; /* of each rank: the request that sends it `why` */
    tg_mpi_liveness liveness;
};

/* mpi.c: formats the message into `why` unless it is NULL. Returns `status`. */
tg_status tg_mpi_fail(tg_status status, tg_detail *why, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* mpi.c: allocates n elements; NULL if out of memory. */
void *tg_mpi_acquire(const tg_allocator *a, size_t n, size_t element_len);
void tg_mpi_release(const tg_allocator *a, void *block);

uint64_t tg_mpi_now_ms(void);

/* mpi.c: pauses between two polls. The first polls only yield the CPU; later ones sleep for some microseconds, because the
 * ranks that are waited for may need this CPU. */
void tg_mpi_pause(unsigned polls);

/* mpi_carry.c: the functions of tg_link. */
tg_status tg_mpi_carry(tg_link *self, const tg_op *op, tg_detail *why);
void tg_mpi_abort(tg_link *self, const char *reason);
void tg_mpi_release_requests(tg_mpi *m);

#endif
