/* What the files of the link over MPI share. */
#ifndef TG_LINK_MPI_INSIDE_H
#define TG_LINK_MPI_INSIDE_H

#include <tersegrad/mpi.h>

#include "link/mpi_life.h"

#include <signal.h>
#include <stdbool.h>

struct tg_mpi {
    tg_link link; /* first, so that a link is its end */
    tg_allocator allocator;
    MPI_Comm comm;
    uint32_t rank, world, timeout_ms;
    bool failed;   /* for good ... */
    bool all_know; /* ... and another rank has told this one, or this one all others */
    tg_detail why; /* if it has; sent to all others if it is this rank that has given up */
    volatile sig_atomic_t awaited;
    MPI_Request *requests; /* of an operation: pieces that are received, then pieces that are sent */
    uint32_t *peers;       /* of each */
    int *lens;             /* of each */
    size_t request_n, request_cap;
    MPI_Request *farewells; /* of reasons sent to all others */
    tg_mpi_life life;
};

/* mpi.c: writes the sentence unless `why` is NULL, and returns `status`. */
tg_status tg_mpi_fail(tg_status status, tg_detail *why, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* mpi.c: room for n elements; NULL if there is none. */
void *tg_mpi_take(const tg_allocator *a, size_t n, size_t element_len);
void tg_mpi_give(const tg_allocator *a, void *block);

uint64_t tg_mpi_now_ms(void);

/* mpi.c: lets others have the CPU, which may be the ones that are waited for: at once at first, later for a little. */
void tg_mpi_rest(unsigned looks);

/* mpi_carry.c: the functions of the link. */
tg_status tg_mpi_carry(tg_link *self, const tg_op *op, tg_detail *why);
void tg_mpi_abort(tg_link *self, const char *reason);
void tg_mpi_release_requests(tg_mpi *m);

#endif
