/* MPI link: ranks are processes, on one machine or on many. Every span of an operation is sent as point-to-point messages,
 * split into pieces. All pieces are in flight at once. The link fails permanently when a rank hears nothing until the timeout, or
 * when another rank tells it that the job has failed.
 *
 *     mpi.c            the link object, and helpers that the other files share
 *     mpi_carry.c      the functions of tg_link
 *     mpi_progress.c   the link's own thread, which makes all calls to MPI while the link listens
 *     mpi_operation.c  the messages of an operation, and failures
 *     mpi_liveness.c   finds out which rank is lost
 *     mpi_hosts.c      finds out how many ranks a host has
 *
 * These files include only the public header of the library, as a link outside the library would. */
#include "link/mpi_internal.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- memory and errors ------------------------------------------------------------------------------------------------- */

static void *acquire_standard(void *context, size_t len)
{
    (void)context;
    return malloc(len);
}

static void release_standard(void *context, void *block)
{
    (void)context;
    free(block);
}

tg_status tg_mpi_fail(tg_status status, tg_detail *why, const char *format, ...)
{
    if (why != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(why->text, sizeof why->text, format, arguments);
        va_end(arguments);
    }
    return status;
}

void *tg_mpi_acquire(const tg_allocator *a, size_t n, size_t element_len)
{
    return n > SIZE_MAX / element_len ? NULL : a->acquire(a->context, n * element_len);
}

void tg_mpi_release(const tg_allocator *a, void *block)
{
    if (block != NULL) {
        a->release(a->context, block);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

uint64_t tg_mpi_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void tg_mpi_pause(unsigned polls)
{
    if (polls < TG_MPI_YIELD_POLLS) {
        (void)sched_yield();
    } else {
        const struct timespec t = {0, TG_MPI_PAUSE_NS};
        (void)nanosleep(&t, NULL);
    }
}

/* ---- the link ------------------------------------------------------------------------------------------------------------ */

/* Duplicates the communicator, and sets MPI_ERRORS_RETURN on the duplicate. All ranks must call this before the timeout. */
static tg_status join(tg_mpi *m, MPI_Comm comm, tg_detail *why)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rank = 0, world = 0, flag = 0;
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &world) != MPI_SUCCESS ||
        MPI_Comm_idup(comm, &m->comm, &request) != MPI_SUCCESS) {
        return tg_mpi_fail(TG_E_LINK, why, "MPI cannot duplicate the communicator");
    }
    m->rank = (uint32_t)rank;
    m->world = (uint32_t)world;
    uint64_t until = tg_mpi_now_ms() + m->timeout_ms;
    for (unsigned polls = 0; !flag; polls++) {
        if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return tg_mpi_fail(TG_E_LINK, why, "MPI cannot duplicate the communicator");
        }
        if (!flag && tg_mpi_now_ms() > until) {
            return tg_mpi_fail(TG_E_LINK, why, "not all %u ranks joined within %u ms", m->world, m->timeout_ms);
        }
        tg_mpi_pause(polls);
    }
    (void)MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    return TG_OK;
}

/* Whether MPI may be called from a thread of the link's own. */
static bool can_listen(void)
{
    int level = MPI_THREAD_SINGLE;
    return MPI_Query_thread(&level) == MPI_SUCCESS && level >= MPI_THREAD_MULTIPLE;
}

static void release_all(tg_mpi *m)
{
    tg_allocator a = m->allocator;
    tg_mpi_progress_end(&m->progress);
    tg_mpi_release_channels(m);
    tg_mpi_release(&a, m->liveness.peers);
    tg_mpi_release(&a, m->abort_sends);
    tg_mpi_release(&a, m);
}

tg_status tg_mpi_new(tg_mpi **out, MPI_Comm comm, uint32_t timeout_ms, const tg_allocator *allocator, tg_detail *why)
{
    int initialized = 0;
    if (out == NULL) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "out is NULL, and must be given");
    }
    if (MPI_Initialized(&initialized) != MPI_SUCCESS || !initialized) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "MPI has not been initialised");
    }
    if (allocator != NULL && (allocator->acquire == NULL || allocator->release == NULL)) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "an allocator must have both acquire and release");
    }
    if (comm == MPI_COMM_NULL) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "comm is MPI_COMM_NULL");
    }
    const tg_allocator standard = {acquire_standard, release_standard, NULL};
    tg_allocator a = allocator != NULL ? *allocator : standard;
    tg_mpi *m = tg_mpi_acquire(&a, 1, sizeof *m);
    if (m == NULL) {
        return tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for a link");
    }
    *m = (tg_mpi){.link = {.carry = tg_mpi_carry,
                           .abort = tg_mpi_abort,
                           .start = tg_mpi_start,
                           .test = tg_mpi_test,
                           .listen = can_listen() ? tg_mpi_listen : NULL,
                           .channel_n = TG_MPI_CHANNELS},
                  .allocator = a,
                  .comm = MPI_COMM_NULL,
                  .timeout_ms = timeout_ms,
                  .awaited = TG_MPI_NOBODY};
    tg_mpi_progress_begin(&m->progress);
    tg_status status = join(m, comm, why);
    if (status == TG_OK) {
        status = tg_mpi_find_hosts(m, why);
    }
    m->abort_sends = status == TG_OK ? tg_mpi_acquire(&a, m->world, sizeof(MPI_Request)) : NULL;
    tg_mpi_peer *peers = status == TG_OK ? tg_mpi_acquire(&a, m->world, sizeof *peers) : NULL;
    if (status == TG_OK && peers != NULL) {
        tg_mpi_liveness_begin(&m->liveness, m->comm, m->rank, m->world, peers, tg_mpi_now_ms());
    }
    if (status == TG_OK && (m->abort_sends == NULL || peers == NULL)) {
        status = tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for a link of %u ranks", m->world);
    }
    if (status != TG_OK) {
        release_all(m);
        return status;
    }
    for (uint32_t p = 0; p < m->world; p++) {
        m->abort_sends[p] = MPI_REQUEST_NULL;
    }
    *out = m;
    return TG_OK;
}

void tg_mpi_free(tg_mpi *m)
{
    if (m == NULL) {
        return;
    }
    if (m->listens) {
        tg_mpi_listen(&m->link, NULL, NULL);
    }
    if (!m->failed) {
        bool is_idle = tg_mpi_liveness_is_idle(&m->liveness);
        for (uint32_t c = 0; c < TG_MPI_CHANNELS; c++) {
            is_idle = is_idle && m->channels[c].left == 0;
        }
        (void)MPI_Comm_free(&m->comm);
        if (is_idle) {
            release_all(m);
        }
    } /* otherwise requests may be in flight: MPI uses their buffers until the process ends */
}

tg_link *tg_mpi_link(tg_mpi *m)
{
    return m == NULL ? NULL : &m->link;
}

uint32_t tg_mpi_rank(const tg_mpi *m)
{
    return m == NULL ? 0 : m->rank;
}

uint32_t tg_mpi_world(const tg_mpi *m)
{
    return m == NULL ? 0 : m->world;
}

int tg_mpi_awaited(const tg_mpi *m)
{
    return m == NULL ? TG_MPI_NOBODY : (int)m->awaited;
}
