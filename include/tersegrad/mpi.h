/* Tersegrad over MPI: a link whose ranks are the processes of a communicator. It is a library of its own,
 * libtersegrad-mpi, so that those who do not use MPI need not have it; it is built for one implementation of MPI. */
#ifndef TERSEGRAD_MPI_H
#define TERSEGRAD_MPI_H

#include <mpi.h>
#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_mpi tg_mpi;

/* A link between the ranks of `comm`, which is duplicated; all of them call this. MPI must have been initialised. No wait,
 * this one included, is longer than timeout_ms in which nothing comes from, or is taken by, the ranks that are waited for.
 * In the last quarter of it they are asked for a sign of life, and the rank that gives none is the one that is named.
 * Errors of MPI on the link come back as TG_E_LINK and end nothing. */
TG_API tg_status tg_mpi_new(tg_mpi **out, MPI_Comm comm, uint32_t timeout_ms, const tg_allocator *allocator,
                            tg_detail *why) TG_CHECKED;

/* When the link has failed, MPI may still read and write what was handed to it: then end the process by MPI_Abort, before
 * or after this. Otherwise all ranks call this before MPI_Finalize. */
TG_API void tg_mpi_free(tg_mpi *m);

TG_API tg_link *tg_mpi_link(tg_mpi *m);
TG_API uint32_t tg_mpi_rank(const tg_mpi *m);
TG_API uint32_t tg_mpi_world(const tg_mpi *m);

/* The lowest rank that an operation in progress still waits for, once the link has failed the rank that is lost, or -1 (also if
 * m is NULL). May be asked in a signal handler, so that a process
 * that its launcher ends can say what it was waiting for. */
TG_API int tg_mpi_awaited(const tg_mpi *m);

#ifdef __cplusplus
}
#endif

#endif
