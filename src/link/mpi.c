/* MPI: ranks that are processes, on one machine or many. Every span of an operation is a message from rank to rank, in
 * pieces that an int can count, all of them under way at once; a rank that hears nothing for too long, or is told by another
 * that the job has failed, gives the link up for good.
 *
 * Between two ranks messages arrive in the order in which they were sent, so one tag serves all operations; another tag is
 * for reasons to give up. Of the library this file sees the public header alone, as any link may. */
#include <tersegrad/mpi.h>

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DATA_TAG = 1, ABORT_TAG = 2, PIECE_LEN = 1 << 24, NOBODY = -1 };

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
};

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

static tg_status fail(tg_status status, tg_detail *why, const char *format, ...) __attribute__((format(printf, 3, 4)));

static tg_status fail(tg_status status, tg_detail *why, const char *format, ...)
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
static void *take(const tg_allocator *a, size_t n, size_t element_len)
{
    return n > SIZE_MAX / element_len ? NULL : a->acquire(a->context, n * element_len);
}

static void give(const tg_allocator *a, void *block)
{
    if (block != NULL) {
        a->release(a->context, block);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Lets others have the processor, who may be the ones that are waited for: at once at first, later for a little. */
static void rest(unsigned looks)
{
    enum { EAGER_LOOKS = 300, REST_NS = 30000 };
    if (looks < EAGER_LOOKS) {
        (void)sched_yield();
    } else {
        const struct timespec t = {0, REST_NS};
        (void)nanosleep(&t, NULL);
    }
}

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

static tg_status fail_for_good(tg_mpi *m, tg_detail *why)
{
    m->failed = true;
    return fail(TG_E_LINK, why, "%s", m->why.text);
}

static tg_status fail_by_mpi(tg_mpi *m, int code, const char *doing, uint32_t peer, tg_detail *why)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    (void)MPI_Error_string(code, text, &len);
    (void)fail(TG_E_LINK, &m->why, "MPI failed while %s rank %u: %.150s", doing, peer, text);
    return fail_for_good(m, why);
}

/* Whether another rank has given up, and why. */
static bool is_told_to_stop(tg_mpi *m)
{
    MPI_Status status;
    int flag = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, ABORT_TAG, m->comm, &flag, &status) != MPI_SUCCESS || !flag) {
        return false;
    }
    tg_detail told = {""};
    (void)MPI_Recv(told.text, (int)sizeof told.text, MPI_BYTE, status.MPI_SOURCE, ABORT_TAG, m->comm, &status);
    told.text[sizeof told.text - 1] = '\0';
    (void)fail(TG_E_LINK, &m->why, "%s", told.text);
    m->all_know = true;
    return true;
}

static bool has_taken_all(MPI_Request *requests, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int flag = 1;
        if (requests[i] != MPI_REQUEST_NULL &&
            (MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || !flag)) {
            return false;
        }
    }
    return true;
}

/* Tells all others, unless they know, and waits a moment for them to take it: a rank that is lost never does. */
static void abort_link(tg_link *self, const char *reason)
{
    enum { MOMENT_MS = 500 };
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (m->all_know) {
        return;
    }
    if (!m->failed) {
        (void)fail(TG_E_LINK, &m->why, "rank %u: %.230s", m->rank, reason);
    }
    m->failed = m->all_know = true;
    for (uint32_t p = 0; p < m->world; p++) {
        if (p != m->rank && MPI_Isend(m->why.text, (int)sizeof m->why.text, MPI_BYTE, (int)p, ABORT_TAG, m->comm,
                                      &m->farewells[p]) != MPI_SUCCESS) {
            m->farewells[p] = MPI_REQUEST_NULL;
        }
    }
    uint64_t until = now_ms() + MOMENT_MS;
    for (unsigned looks = 0; !has_taken_all(m->farewells, m->world) && now_ms() < until; looks++) {
        rest(looks);
    }
}

/* ---- an operation -------------------------------------------------------------------------------------------------------- */

static size_t pieces_of(const tg_span *spans, uint32_t n)
{
    size_t count = 0;
    for (uint32_t p = 0; p < n; p++) {
        count += (size_t)((spans[p].len + PIECE_LEN - 1) / PIECE_LEN);
    }
    return count;
}

static void release_requests(tg_mpi *m)
{
    give(&m->allocator, m->requests);
    give(&m->allocator, m->peers);
    give(&m->allocator, m->lens);
    m->requests = NULL;
    m->peers = NULL;
    m->lens = NULL;
    m->request_cap = 0;
}

static tg_status make_room(tg_mpi *m, size_t n, tg_detail *why)
{
    if (n <= m->request_cap) {
        return TG_OK;
    }
    release_requests(m);
    const tg_allocator *a = &m->allocator;
    m->requests = take(a, n, sizeof(MPI_Request)); /* which is a pointer with some, a number with others */
    m->peers = take(a, n, sizeof *m->peers);
    m->lens = take(a, n, sizeof *m->lens);
    if (m->requests == NULL || m->peers == NULL || m->lens == NULL) {
        return fail(TG_E_MEMORY, why, "there is not enough memory for the %zu pieces of an operation", n);
    }
    m->request_cap = n;
    return TG_OK;
}

/* Starts the pieces of what goes to or comes from rank p. */
static int start(tg_mpi *m, uint32_t p, const tg_span *span, bool sends)
{
    uint8_t *at = span->data;
    for (uint64_t left = span->len; left > 0;) {
        int len = left > PIECE_LEN ? PIECE_LEN : (int)left;
        MPI_Request *request = &m->requests[m->request_n];
        int code = sends ? MPI_Isend(at, len, MPI_BYTE, (int)p, DATA_TAG, m->comm, request)
                         : MPI_Irecv(at, len, MPI_BYTE, (int)p, DATA_TAG, m->comm, request);
        if (code != MPI_SUCCESS) {
            return code;
        }
        m->peers[m->request_n] = p;
        m->lens[m->request_n] = len;
        m->request_n++;
        at += len;
        left -= (uint64_t)len;
    }
    return MPI_SUCCESS;
}

/* All that is received, then all that is sent; in an order that begins behind this rank, so that not all ranks send to the
 * same one at once. The number of pieces that are received goes to *received_n. */
static tg_status start_all(size_t *received_n, tg_mpi *m, const tg_op *op, tg_detail *why)
{
    m->request_n = 0;
    for (int sends = 0; sends < 2; sends++) {
        for (uint32_t i = 1; i < m->world; i++) {
            uint32_t p = (m->rank + i) % m->world;
            int code = start(m, p, sends ? &op->sends[p] : &op->recvs[p], sends);
            if (code != MPI_SUCCESS) {
                return fail_by_mpi(m, code, sends ? "sending to" : "receiving from", p, why);
            }
        }
        if (!sends) {
            *received_n = m->request_n;
        }
    }
    return TG_OK;
}

/* A piece that has come must have the length that was agreed on. */
static tg_status check_piece(tg_mpi *m, size_t i, const MPI_Status *status, tg_detail *why)
{
    int len = 0;
    (void)MPI_Get_count(status, MPI_BYTE, &len);
    if (len != m->lens[i]) {
        (void)fail(TG_E_LINK, &m->why, "rank %u sends %d bytes, and rank %u expects %d", m->peers[i], len, m->rank,
                   m->lens[i]);
        return fail_for_good(m, why);
    }
    return TG_OK;
}

static void note_awaited(tg_mpi *m)
{
    int lowest = NOBODY;
    for (size_t i = 0; i < m->request_n; i++) {
        if (m->requests[i] != MPI_REQUEST_NULL && (lowest == NOBODY || (int)m->peers[i] < lowest)) {
            lowest = (int)m->peers[i];
        }
    }
    m->awaited = lowest;
}

static tg_status fail_late(tg_mpi *m, tg_detail *why)
{
    note_awaited(m);
    (void)fail(TG_E_LINK, &m->why, "rank %d is lost: rank %u has waited for it for %u ms", (int)m->awaited, m->rank,
               m->timeout_ms);
    return fail_for_good(m, why);
}

/* Looks for pieces that are done. */
static tg_status look(size_t *done_n, tg_mpi *m, size_t received_n, tg_detail *why)
{
    *done_n = 0;
    for (size_t i = 0; i < m->request_n; i++) {
        MPI_Status status;
        int is_done = 0;
        if (m->requests[i] == MPI_REQUEST_NULL) {
            continue;
        }
        int code = MPI_Test(&m->requests[i], &is_done, &status);
        if (code != MPI_SUCCESS) {
            return fail_by_mpi(m, code, i < received_n ? "receiving from" : "sending to", m->peers[i], why);
        }
        if (is_done && i < received_n && check_piece(m, i, &status, why) != TG_OK) {
            return TG_E_LINK;
        }
        *done_n += (size_t)is_done;
    }
    return TG_OK;
}

static tg_status wait_for_all(tg_mpi *m, size_t received_n, tg_detail *why)
{
    size_t left = m->request_n;
    uint64_t until = now_ms() + m->timeout_ms;
    for (unsigned looks = 0; left > 0; looks++) {
        size_t done_n = 0;
        if (look(&done_n, m, received_n, why) != TG_OK) {
            return TG_E_LINK;
        }
        if (done_n > 0) {
            left -= done_n;
            until = now_ms() + m->timeout_ms;
            looks = 0;
            note_awaited(m);
            continue;
        }
        if (is_told_to_stop(m)) {
            return fail_for_good(m, why);
        }
        if (now_ms() > until) {
            return fail_late(m, why);
        }
        rest(looks);
    }
    return TG_OK;
}

/* An error of a request that is done belongs to no communicator any more for MPICH, and it asks the handler of MPI_COMM_WORLD
 * what to do: to return, while an operation is under way, and then what the program had chosen. */
static MPI_Errhandler return_errors(void)
{
    MPI_Errhandler kept = MPI_ERRHANDLER_NULL;
    (void)MPI_Comm_get_errhandler(MPI_COMM_WORLD, &kept);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return kept;
}

static void restore_errors(MPI_Errhandler *kept)
{
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, *kept);
    (void)MPI_Errhandler_free(kept);
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (op->world != m->world || op->rank != m->rank) {
        return fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u came to the link of rank %u of %u", op->rank,
                    op->world, m->rank, m->world);
    }
    if (m->failed || is_told_to_stop(m)) {
        return fail_for_good(m, why);
    }
    size_t received_n = 0;
    tg_status status = make_room(m, pieces_of(op->sends, op->world) + pieces_of(op->recvs, op->world), why);
    if (status == TG_OK) {
        MPI_Errhandler kept = return_errors();
        status = start_all(&received_n, m, op, why);
        if (status == TG_OK) {
            note_awaited(m);
            status = wait_for_all(m, received_n, why);
        }
        restore_errors(&kept);
    }
    if (status == TG_OK) {
        m->awaited = NOBODY;
        for (uint32_t p = 0; p < op->world; p++) {
            self->sent_len += op->sends[p].len;
        }
    }
    return status;
}

/* ---- the link ------------------------------------------------------------------------------------------------------------ */

/* A communicator of the link's own, whose errors return. All ranks must come, within the limit. */
static tg_status join(tg_mpi *m, MPI_Comm comm, tg_detail *why)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rank = 0, world = 0, flag = 0;
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &world) != MPI_SUCCESS ||
        MPI_Comm_idup(comm, &m->comm, &request) != MPI_SUCCESS) {
        return fail(TG_E_LINK, why, "MPI cannot duplicate the communicator");
    }
    m->rank = (uint32_t)rank;
    m->world = (uint32_t)world;
    uint64_t until = now_ms() + m->timeout_ms;
    for (unsigned looks = 0; !flag; looks++) {
        if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return fail(TG_E_LINK, why, "MPI cannot duplicate the communicator");
        }
        if (!flag && now_ms() > until) {
            return fail(TG_E_LINK, why, "not all %u ranks have come within %u ms", m->world, m->timeout_ms);
        }
        rest(looks);
    }
    (void)MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    return TG_OK;
}

static void release_all(tg_mpi *m)
{
    tg_allocator a = m->allocator;
    release_requests(m);
    give(&a, m->farewells);
    give(&a, m);
}

tg_status tg_mpi_new(tg_mpi **out, MPI_Comm comm, uint32_t timeout_ms, const tg_allocator *allocator, tg_detail *why)
{
    int has_begun = 0;
    if (out == NULL) {
        return fail(TG_E_ARGUMENT, why, "out is NULL, and must be given");
    }
    if (MPI_Initialized(&has_begun) != MPI_SUCCESS || !has_begun) {
        return fail(TG_E_ARGUMENT, why, "MPI has not been initialised");
    }
    if (allocator != NULL && (allocator->acquire == NULL || allocator->release == NULL)) {
        return fail(TG_E_ARGUMENT, why, "an allocator must have both acquire and release");
    }
    if (comm == MPI_COMM_NULL) {
        return fail(TG_E_ARGUMENT, why, "comm is MPI_COMM_NULL");
    }
    const tg_allocator standard = {take_standard, give_standard, NULL};
    tg_allocator a = allocator != NULL ? *allocator : standard;
    tg_mpi *m = take(&a, 1, sizeof *m);
    if (m == NULL) {
        return fail(TG_E_MEMORY, why, "there is not enough memory for a link");
    }
    *m = (tg_mpi){.link = {.carry = carry, .abort = abort_link},
                  .allocator = a,
                  .comm = MPI_COMM_NULL,
                  .timeout_ms = timeout_ms,
                  .awaited = NOBODY};
    tg_status status = join(m, comm, why);
    m->farewells = status == TG_OK ? take(&a, m->world, sizeof(MPI_Request)) : NULL;
    if (status == TG_OK && m->farewells == NULL) {
        status = fail(TG_E_MEMORY, why, "there is not enough memory for a link of %u ranks", m->world);
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
        (void)MPI_Comm_free(&m->comm);
        release_all(m);
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
    return m == NULL ? NOBODY : (int)m->awaited;
}
