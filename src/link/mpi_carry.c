/* An operation over MPI, and how it fails. Between two ranks messages arrive in the order in which they were sent, so one tag
 * serves all operations; another tag is for control messages: reasons to give up, and signs of life (mpi_life.h). */
#include "link/mpi_inside.h"

enum { DATA_TAG = 1, CONTROL_TAG = TG_MPI_CONTROL_TAG, PIECE_LEN = 1 << 24, NOBODY = TG_MPI_NOBODY };

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

static tg_status fail_for_good(tg_mpi *m, tg_detail *why)
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
    return fail_for_good(m, why);
}

/* The rank that was heard from longest ago among those that the operation in progress waits for. */
static int most_awaited(const tg_mpi *m)
{
    int found = NOBODY;
    for (size_t i = 0; i < m->request_n; i++) {
        uint32_t p = m->peers[i];
        if (m->requests[i] != MPI_REQUEST_NULL &&
            (found == NOBODY || m->life.peers[p].heard_ms < m->life.peers[found].heard_ms)) {
            found = (int)p;
        }
    }
    return found;
}

/* Takes all control messages that have come. Whether another rank has given up, and why. */
static bool is_told_to_stop(tg_mpi *m)
{
    for (;;) {
        MPI_Status status;
        int flag = 0, len = 0;
        if (MPI_Iprobe(MPI_ANY_SOURCE, CONTROL_TAG, m->comm, &flag, &status) != MPI_SUCCESS || !flag) {
            return false;
        }
        tg_detail told = {""};
        if (MPI_Recv(told.text, (int)sizeof told.text, MPI_BYTE, status.MPI_SOURCE, CONTROL_TAG, m->comm, &status) !=
            MPI_SUCCESS) {
            return false;
        }
        (void)MPI_Get_count(&status, MPI_BYTE, &len);
        m->life.peers[status.MPI_SOURCE].heard_ms = tg_mpi_now_ms();
        if (len == (int)sizeof told.text) {
            told.text[sizeof told.text - 1] = '\0';
            (void)tg_mpi_fail(TG_E_LINK, &m->why, "%s", told.text);
            m->all_know = true;
            return true;
        }
        tg_mpi_life_take(&m->life, (uint32_t)status.MPI_SOURCE, told.text, len, most_awaited(m));
    }
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
void tg_mpi_abort(tg_link *self, const char *reason)
{
    enum { MOMENT_MS = 500 };
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (m->all_know) {
        return;
    }
    if (!m->failed) {
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %u: %.230s", m->rank, reason);
    }
    m->failed = m->all_know = true;
    for (uint32_t p = 0; p < m->world; p++) {
        if (p != m->rank && MPI_Isend(m->why.text, (int)sizeof m->why.text, MPI_BYTE, (int)p, CONTROL_TAG, m->comm,
                                      &m->farewells[p]) != MPI_SUCCESS) {
            m->farewells[p] = MPI_REQUEST_NULL;
        }
    }
    uint64_t until = tg_mpi_now_ms() + MOMENT_MS;
    for (unsigned looks = 0; !has_taken_all(m->farewells, m->world) && tg_mpi_now_ms() < until; looks++) {
        tg_mpi_rest(looks);
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
    tg_mpi_give(&m->allocator, m->requests);
    tg_mpi_give(&m->allocator, m->peers);
    tg_mpi_give(&m->allocator, m->lens);
    m->requests = NULL;
    m->peers = NULL;
    m->lens = NULL;
    m->request_n = m->request_cap = 0;
}

static tg_status make_room(tg_mpi *m, size_t n, tg_detail *why)
{
    if (n <= m->request_cap) {
        return TG_OK;
    }
    tg_mpi_release_requests(m);
    const tg_allocator *a = &m->allocator;
    m->requests = tg_mpi_take(a, n, sizeof(MPI_Request)); /* which is a pointer with some, a number with others */
    m->peers = tg_mpi_take(a, n, sizeof *m->peers);
    m->lens = tg_mpi_take(a, n, sizeof *m->lens);
    if (m->requests == NULL || m->peers == NULL || m->lens == NULL) {
        return tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for the %zu pieces of an operation", n);
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
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %u sends %d bytes, and rank %u expects %d", m->peers[i], len,
                          m->rank, m->lens[i]);
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

/* Names the rank that does not answer. If all do, they are there, but what is awaited does not come. */
static tg_status fail_late(tg_mpi *m, tg_detail *why)
{
    int silent = tg_mpi_life_silent(&m->life);
    if (silent != NOBODY) {
        m->awaited = silent;
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %d is lost: rank %u has waited for it for %u ms", silent, m->rank,
                          m->timeout_ms);
    } else {
        m->awaited = most_awaited(m);
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %d answers, but nothing has come from it for %u ms, says rank %u",
                          (int)m->awaited, m->timeout_ms, m->rank);
    }
    return fail_for_good(m, why);
}

static void ask_awaited(tg_mpi *m)
{
    tg_mpi_life_new_question(&m->life);
    for (size_t i = 0; i < m->request_n; i++) {
        if (m->requests[i] != MPI_REQUEST_NULL) {
            tg_mpi_life_ask(&m->life, m->peers[i]);
        }
    }
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
        if (is_done && i < received_n) {
            m->life.peers[m->peers[i]].heard_ms = tg_mpi_now_ms();
        }
        *done_n += (size_t)is_done;
    }
    return TG_OK;
}

/* In the last quarter of the limit those that are awaited are asked whether they are there. */
static tg_status wait_for_all(tg_mpi *m, size_t received_n, tg_detail *why)
{
    const uint64_t answer_ms = m->timeout_ms / 4, ask_after_ms = m->timeout_ms - answer_ms;
    size_t left = m->request_n;
    uint64_t since = tg_mpi_now_ms(), asked = 0;
    bool has_asked = false;
    for (unsigned looks = 0; left > 0; looks++) {
        size_t done_n = 0;
        if (look(&done_n, m, received_n, why) != TG_OK) {
            return TG_E_LINK;
        }
        if (done_n > 0) {
            left -= done_n;
            since = tg_mpi_now_ms();
            has_asked = false;
            looks = 0;
            note_awaited(m);
            continue;
        }
        if (is_told_to_stop(m)) {
            return fail_for_good(m, why);
        }
        uint64_t now = tg_mpi_now_ms();
        if (!has_asked && now > since + ask_after_ms) {
            ask_awaited(m);
            asked = now;
            has_asked = true;
        } else if (has_asked && now > asked + answer_ms && now > since + m->timeout_ms) {
            return fail_late(m, why);
        }
        tg_mpi_rest(looks);
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

tg_status tg_mpi_carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tg_mpi *m = (tg_mpi *)(void *)self;
    if (op->world != m->world || op->rank != m->rank) {
        return tg_mpi_fail(TG_E_ARGUMENT, why, "an operation of rank %u of %u came to the link of rank %u of %u",
                           op->rank, op->world, m->rank, m->world);
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
