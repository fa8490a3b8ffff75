/* MPI: ranks that are processes, on one machine or many. Every span of an operation is a message from rank to rank, in
 * pieces that an int can count, all of them under way at once; a rank that hears nothing for too long, or is told by another
 * that the job has failed, gives the link up for good.
 *
 * Here are the link itself and what its files share; mpi_carry.c carries operations out, mpi_life.c finds out who is lost. Of
 * the library these files see the public header alone, as any link may. */
#include "link/mpi_inside.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- memory and sentences ---------------------------------------------------------------------------------------------- */

static void *take_standard(void *context, size_t len)
{
    (void)context;
    return malloc(len);
}

static void give_standard(void *context, void *block)
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

/* Room for n elements; NULL if there is none. */
void *tg_mpi_take(const tg_allocator *a, size_t n, size_t element_len)
{
    return n > SIZE_MAX / element_len ? NULL : a->acquire(a->context, n * element_len);
}

void tg_mpi_give(const tg_allocator *a, void *block)
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

/* Lets others have the processor, who may be the ones that are waited for: at once at first, later for a little. */
void tg_mpi_rest(unsigned looks)
{
    enum { EAGER_LOOKS = 300, REST_NS = 30000 };
    if (looks < EAGER_LOOKS) {
        (void)sched_yield();
    } else {
        const struct timespec t = {0, REST_NS};
        (void)nanosleep(&t, NULL);
    }
}

/* ---- the link ------------------------------------------------------------------------------------------------------------ */

/* A communicator of the link's own, whose errors return. All ranks must come, within the limit. */
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
    for (unsigned looks = 0; !flag; looks++) {
        if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return tg_mpi_fail(TG_E_LINK, why, "MPI cannot duplicate the communicator");
        }
        if (!flag && tg_mpi_now_ms() > until) {
            return tg_mpi_fail(TG_E_LINK, why, "not all %u ranks have come within %u ms", m->world, m->timeout_ms);
        }
        tg_mpi_rest(looks);
    }
    (void)MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    return TG_OK;
}

static void release_all(tg_mpi *m)
{
    tg_allocator a = m->allocator;
    tg_mpi_release_requests(m);
    tg_mpi_give(&a, m->life.peers);
    tg_mpi_give(&a, m->farewells);
    tg_mpi_give(&a, m);
}

tg_status tg_mpi_new(tg_mpi **out, MPI_Comm comm, uint32_t timeout_ms, const tg_allocator *allocator, tg_detail *why)
{
    int has_begun = 0;
    if (out == NULL) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "out is NULL, and must be given");
    }
    if (MPI_Initialized(&has_begun) != MPI_SUCCESS || !has_begun) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "MPI has not been initialised");
    }
    if (allocator != NULL && (allocator->acquire == NULL || allocator->release == NULL)) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "an allocator must have both acquire and release");
    }
    if (comm == MPI_COMM_NULL) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "comm is MPI_COMM_NULL");
    }
    const tg_allocator standard = {take_standard, give_standard, NULL};
    tg_allocator a = allocator != NULL ? *allocator : standard;
    tg_mpi *m = tg_mpi_take(&a, 1, sizeof *m);
    if (m == NULL) {
        return tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for a link");
    }
    *m = (tg_mpi){.link = {.carry = tg_mpi_carry, .abort = tg_mpi_abort},
                  .allocator = a,
                  .comm = MPI_COMM_NULL,
                  .timeout_ms = timeout_ms,
                  .awaited = TG_MPI_NOBODY};
    tg_status status = join(m, comm, why);
    m->farewells = status == TG_OK ? tg_mpi_take(&a, m->world, sizeof(MPI_Request)) : NULL;
    tg_mpi_peer *peers = status == TG_OK ? tg_mpi_take(&a, m->world, sizeof *peers) : NULL;
    if (status == TG_OK && peers != NULL) {
        tg_mpi_life_begin(&m->life, m->comm, m->rank, m->world, peers, tg_mpi_now_ms());
    }
    if (status == TG_OK && (m->farewells == NULL || peers == NULL)) {
        status = tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for a link of %u ranks", m->world);
    }
    if (status != TG_OK) {
        release_all(m);
        return status;
    }
    for (uint32_t p = 0; p < m->world; p++) {
        m->farewells[p] = MPI_REQUEST_NULL;
    }
    *out = m;
    return TG_OK;
}

void tg_mpi_free(tg_mpi *m)
{
    if (m == NULL) {
        return;
    }
    if (!m->failed) {
        bool is_idle = tg_mpi_life_is_idle(&m->life);
        (void)MPI_Comm_free(&m->comm);
        if (is_idle) {
            release_all(m);
        }
    } /* else MPI may still look at what it was given, until the process ends */
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
