/* Carries out an operation over MPI, and handles its failures. MPI delivers messages between two ranks in the order in which
 * they were sent, so that all operations share one tag. A second tag is for control messages: why a rank has aborted, and
 * liveness probes (mpi_liveness.h). */
#include "link/mpi_internal.h"

enum { DATA_TAG = 1, CONTROL_TAG = TG_MPI_CONTROL_TAG, PIECE_LEN = 1 << 24, NOBODY = TG_MPI_NOBODY };

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

static tg_status fail_permanently(tg_mpi *m, tg_detail *why)
{
    m->failed = true;
    return tg_mpi_fail(TG_E_LINK, why, "%s", m->why.text);
}

static tg_status fail_by_mpi(tg_mpi *m, int code, const char *doing, uint32_t peer, tg_detail *why)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    (void)MPI_Error_string(code, text, &len);
    (void)tg_mpi_fail(TG_E_LINK, &m->why, "MPI failed while %s rank %u: %.150s", doing, peer, text);
    return fail_permanently(m, why);
}

/* Of the ranks that the operation waits for, the one that was heard from longest ago. */
static int longest_silent(const tg_mpi *m)
{
    int found = NOBODY;
    for (size_t i = 0; i < m->request_n; i++) {
        uint32_t p = m->peers[i];
        if (m->requests[i] != MPI_REQUEST_NULL &&
            (found == NOBODY || m->liveness.peers[p].heard_ms < m->liveness.peers[found].heard_ms)) {
            found = (int)p;
        }
    }
    return found;
}

/* Receives all control messages that have arrived. Returns true if one says that another rank has aborted; m->why is then
 * its reason. */
static bool received_abort(tg_mpi *m)
{
    for (;;) {
        MPI_Status status;
        int flag = 0, len = 0;
        if (MPI_Iprobe(MPI_ANY_SOURCE, CONTROL_TAG, m->comm, &flag, &status) != MPI_SUCCESS || !flag) {
            return false;
        }
        tg_detail message = {""};
        if (MPI_Recv(message.text, (int)sizeof message.text, MPI_BYTE, status.MPI_SOURCE, CONTROL_TAG, m->comm,
                     &status) != MPI_SUCCESS) {
            return false;
        }
        (void)MPI_Get_count(&status, MPI_BYTE, &len);
        m->liveness.peers[status.MPI_SOURCE].heard_ms = tg_mpi_now_ms();
        if (len == (int)sizeof message.text) {
            message.text[sizeof message.text - 1] = '\0';
            (void)tg_mpi_fail(TG_E_LINK, &m->why, "%s", message.text);
            m->peers_know = true;
            return true;
        }
        tg_mpi_liveness_receive(&m->liveness, (uint32_t)status.MPI_SOURCE, message.text, len, longest_silent(m));
    }
}

static bool all_sent(MPI_Request *requests, uint32_t n)
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

/* Sends the reason to all other ranks, unless they know it. Waits for these sends for a short time only: a lost rank never
 * receives its message. */
void tg_mpi_abort(tg_link *self, const char *reason)
{
    enum { GRACE_MS = 500 };
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (m->peers_know) {
        return;
    }
    if (!m->failed) {
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %u: %.230s", m->rank, reason);
    }
    m->failed = m->peers_know = true;
    for (uint32_t p = 0; p < m->world; p++) {
        if (p != m->rank && MPI_Isend(m->why.text, (int)sizeof m->why.text, MPI_BYTE, (int)p, CONTROL_TAG, m->comm,
                                      &m->abort_sends[p]) != MPI_SUCCESS) {
            m->abort_sends[p] = MPI_REQUEST_NULL;
        }
    }
    uint64_t until = tg_mpi_now_ms() + GRACE_MS;
    for (unsigned polls = 0; !all_sent(m->abort_sends, m->world) && tg_mpi_now_ms() < until; polls++) {
        tg_mpi_pause(polls);
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

void tg_mpi_release_requests(tg_mpi *m)
{
    tg_mpi_release(&m->allocator, m->requests);
    tg_mpi_release(&m->allocator, m->peers);
    tg_mpi_release(&m->allocator, m->lens);
    m->requests = NULL;
    m->peers = NULL;
    m->lens = NULL;
    m->request_n = m->request_cap = 0;
}

static tg_status reserve_requests(tg_mpi *m, size_t n, tg_detail *why)
{
    if (n <= m->request_cap) {
        return TG_OK;
    }
    tg_mpi_release_requests(m);
    const tg_allocator *a = &m->allocator;
    m->requests = tg_mpi_acquire(a, n, sizeof(MPI_Request)); /* a pointer in Open MPI, an int in MPICH */
    m->peers = tg_mpi_acquire(a, n, sizeof *m->peers);
    m->lens = tg_mpi_acquire(a, n, sizeof *m->lens);
    if (m->requests == NULL || m->peers == NULL || m->lens == NULL) {
        return tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for the %zu pieces of an operation", n);
    }
    m->request_cap = n;
    return TG_OK;
}

/* Starts sending or receiving the pieces of one span, to or from rank p. */
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

/* Starts all receives, then all sends. The peers' order begins after this rank, so that not all ranks send to the same one at
 * once. *received_n is set to the number of receives. */
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

/* Checks that a received piece has the expected length. */
static tg_status check_piece(tg_mpi *m, size_t i, const MPI_Status *status, tg_detail *why)
{
    int len = 0;
    (void)MPI_Get_count(status, MPI_BYTE, &len);
    if (len != m->lens[i]) {
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %u sends %d bytes, but rank %u expects %d", m->peers[i], len,
                          m->rank, m->lens[i]);
        return fail_permanently(m, why);
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

/* Fails with the name of the rank that does not reply. If all ranks reply, names the one whose data are missing. */
static tg_status fail_timeout(tg_mpi *m, tg_detail *why)
{
    int silent = tg_mpi_liveness_silent(&m->liveness);
    if (silent != NOBODY) {
        m->awaited = silent;
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %d is lost: rank %u has waited for it for %u ms", silent, m->rank,
                          m->timeout_ms);
    } else {
        m->awaited = longest_silent(m);
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %d responds, but rank %u has received no data from it for %u ms",
                          (int)m->awaited, m->rank, m->timeout_ms);
    }
    return fail_permanently(m, why);
}

static void probe_awaited(tg_mpi *m)
{
    tg_mpi_liveness_new_round(&m->liveness);
    for (size_t i = 0; i < m->request_n; i++) {
        if (m->requests[i] != MPI_REQUEST_NULL) {
            tg_mpi_liveness_probe(&m->liveness, m->peers[i]);
        }
    }
}

/* Tests all requests in flight; *done_n is set to the number that have completed. */
static tg_status poll_requests(size_t *done_n, tg_mpi *m, size_t received_n, tg_detail *why)
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
        if (is_done && i < received_n) {
            m->liveness.peers[m->peers[i]].heard_ms = tg_mpi_now_ms();
        }
        *done_n += (size_t)is_done;
    }
    return TG_OK;
}

/* Waits until all requests have completed. After three quarters of the timeout without progress, probes the ranks that it
 * waits for; the last quarter is left for their replies. */
static tg_status wait_for_all(tg_mpi *m, size_t received_n, tg_detail *why)
{
    const uint64_t reply_ms = m->timeout_ms / 4, probe_after_ms = m->timeout_ms - reply_ms;
    size_t left = m->request_n;
    uint64_t since = tg_mpi_now_ms(), probed = 0;
    bool has_probed = false;
    for (unsigned polls = 0; left > 0; polls++) {
        size_t done_n = 0;
        if (poll_requests(&done_n, m, received_n, why) != TG_OK) {
            return TG_E_LINK;
        }
        if (done_n > 0) {
            left -= done_n;
            since = tg_mpi_now_ms();
            has_probed = false;
            polls = 0;
            note_awaited(m);
            continue;
        }
        if (received_abort(m)) {
            return fail_permanently(m, why);
        }
        uint64_t now = tg_mpi_now_ms();
        if (!has_probed && now > since + probe_after_ms) {
            probe_awaited(m);
            probed = now;
            has_probed = true;
        } else if (has_probed && now > probed + reply_ms && now > since + m->timeout_ms) {
            return fail_timeout(m, why);
        }
        tg_mpi_pause(polls);
    }
    return TG_OK;
}

/* MPICH reports the error of a completed request to the error handler of MPI_COMM_WORLD, not of the request's communicator. So
 * that handler is MPI_ERRORS_RETURN during an operation; afterwards the program's handler is restored. */
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

tg_status tg_mpi_carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (op->world != m->world || op->rank != m->rank) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u was given to the link of rank %u of %u",
                           op->rank, op->world, m->rank, m->world);
    }
    if (m->failed || received_abort(m)) {
        return fail_permanently(m, why);
    }
    size_t received_n = 0;
    tg_status status = reserve_requests(m, pieces_of(op->sends, op->world) + pieces_of(op->recvs, op->world), why);
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
