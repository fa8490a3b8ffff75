/* Tersegrad over MPI: a link whose ranks are the processes of a communicator. It is a separate library, libtersegrad-mpi, so
 * that programs without MPI do not depend on MPI. It is built for one implementation of MPI. */
#ifndef TERSEGRAD_MPI_H
#define TERSEGRAD_MPI_H

#include <mpi.h>
#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_mpi tg_mpi;

/* Creates a link between the ranks of `comm`, which is duplicated. All ranks of `comm` must call this, after MPI_Init_thread or
 * MPI_Init. The thread level of MPI decides what the link can do:
 *     MPI_THREAD_MULTIPLE   the link can listen. While it listens, a thread of its own makes all its calls to MPI, so that
 *                           messages travel while the program computes. Ask for this level if steps shall overlap with
 *                           computing (tg_reducer).
 *     any lower             `listen` is NULL: all calls to MPI are made by the thread that calls the link, which with
 *                           MPI_THREAD_FUNNELED must be the main thread
 * While operations are under way and the link listens, and during calls of the link, the error handler of MPI_COMM_WORLD is
 * MPI_ERRORS_RETURN.
 *
 * timeout_ms applies to every wait, including the one in this call. A wait fails when for timeout_ms no data has been received
 * from, or accepted by, the ranks that are waited for. In the last quarter of that time these ranks are asked for a sign of
 * life, and the error names the rank that does not answer. Errors of MPI on the link are returned as TG_E_LINK; they do not
 * end the process. */
TG_API tg_status tg_mpi_new(tg_mpi **out, MPI_Comm comm, uint32_t timeout_ms, const tg_allocator *allocator,
                            tg_detail *why) TG_CHECKED;

/* All ranks must call this before MPI_Finalize. It ends the thread of a link that listens. If the link has failed, MPI may still
 * access the buffers of the failed operations; then end the process with MPI_Abort, before or after this call. */
TG_API void tg_mpi_free(tg_mpi *m);

/* The link for tg_reduce, this process's rank, and the number of ranks. The link's host_size is set if all hosts have the same number
 * of ranks, and ranks are numbered host by host, as launchers do by default; hosts are told apart by MPI_Get_processor_name. */
TG_API tg_link *tg_mpi_link(tg_mpi *m);
TG_API uint32_t tg_mpi_rank(const tg_mpi *m);
TG_API uint32_t tg_mpi_world(const tg_mpi *m);

/* The lowest rank that the operations in progress are waiting for; after the link has failed, the lost rank; -1 if there is none
 * or m is NULL. It may be called in a signal handler, so that a process that its launcher ends can report what it was waiting
 * for. */
TG_API int tg_mpi_awaited(const tg_mpi *m);

#ifdef __cplusplus
}
#endif

#endif
