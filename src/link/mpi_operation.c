/* Operations over MPI: posts their messages, tests them, and handles failures. Every channel has a tag of its own. MPI delivers
 * messages between two ranks with the same tag in the order in which they were sent, so that all operations on a channel share
 * it. Another tag is for control messages: why a rank has aborted, and liveness probes (mpi_liveness.h). */
#include "link/mpi_internal.h"

enum { CONTROL_TAG = TG_MPI_CONTROL_TAG, FIRST_DATA_TAG = 16, NOBODY = TG_MPI_NOBODY };

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

/* m->why has the reason. */
static bool fail(tg_mpi *m)
{
    m->failed = true;
    return false;
}

static bool fail_by_mpi(tg_mpi *m, int code, const char *doing, uint32_t peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    (void)MPI_Error_string(code, text, &len);
    (void)tg_mpi_fail(TG_E_LINK, &m->why, "MPI failed while %s rank %u: %.150s", doing, peer, text);
    return fail(m);
}

/* Of the ranks that an operation waits for, and of `found`, the one that was heard from longest ago. */
static int longest_silent(const tg_mpi *m, const tg_mpi_channel *ch, int found)
{
    for (size_t i = 0; ch->left > 0 && i < ch->request_n; i++) {
        uint32_t p = ch->peers[i];
        if (ch->requests[i] != MPI_REQUEST_NULL &&
            (found == NOBODY || m->liveness.peers[p].heard_ms < m->liveness.peers[found].heard_ms)) {
            found = (int)p;
        }
    }
    return found;
}

static int longest_silent_of_all(const tg_mpi *m)
{
    int found = NOBODY;
    for (uint32_t c = 0; c < TG_MPI_CHANNELS; c++) {
        found = longest_silent(m, &m->channels[c], found);
    }
    return found;
}

bool tg_mpi_receive_control(tg_mpi *m)
{
    for (;;) {
        MPI_Status status;
        int flag = 0, len = 0;
        if (MPI_Iprobe(MPI_ANY_SOURCE, CONTROL_TAG, m->comm, &flag, &status) != MPI_SUCCESS || !flag) {
            return true;
        }
        tg_detail message = {""};
        if (MPI_Recv(message.text, (int)sizeof message.text, MPI_BYTE, status.MPI_SOURCE, CONTROL_TAG, m->comm,
                     &status) != MPI_SUCCESS) {
            return true;
        }
        (void)MPI_Get_count(&status, MPI_BYTE, &len);
        uint64_t now_ms = tg_mpi_now_ms();
        m->liveness.peers[status.MPI_SOURCE].heard_ms = now_ms;
        if (len == (int)sizeof message.text) { /* another rank has aborted */
            message.text[sizeof message.text - 1] = '\0';
            (void)tg_mpi_fail(TG_E_LINK, &m->why, "%s", message.text);
            m->peers_know = true;
            return fail(m);
        }
        tg_mpi_liveness_receive(&m->liveness, (uint32_t)status.MPI_SOURCE, message.text, len, longest_silent_of_all(m),
                                now_ms);
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

/* Waits for the sends for a short time only: a lost rank never receives its message. */
void tg_mpi_send_abort(tg_mpi *m, const char *reason)
{
    enum { GRACE_MS = 500 };
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

MPI_Errhandler tg_mpi_return_errors(void)
{
    MPI_Errhandler kept = MPI_ERRHANDLER_NULL;
    (void)MPI_Comm_get_errhandler(MPI_COMM_WORLD, &kept);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return kept;
}

void tg_mpi_restore_errors(MPI_Errhandler *kept)
{
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, *kept);
    (void)MPI_Errhandler_free(kept);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

/* Messages of up to 64 MiB are sent in pieces below Open MPI's eager limit over TCP, 64 KiB. A larger piece would use the rendezvous
 * protocol: the sender waits for the receiver's reply, which queues behind the receiver's own data. On a slow link, two ranks that
 * send to each other then send one after the other. Longer messages have larger pieces, as each one is a request. */
static uint64_t piece_len(uint64_t len)
{
    enum { EAGER_MAX = 1 << 26, EAGER_PIECE = 60 << 10, LARGE_PIECE = 1 << 24 };
    return len <= EAGER_MAX ? EAGER_PIECE : LARGE_PIECE;
}

static size_t pieces_of(const tg_span *spans, uint32_t n)
{
    size_t count = 0;
    for (uint32_t p = 0; p < n; p++) {
        uint64_t each = piece_len(spans[p].len);
        count += (size_t)((spans[p].len + each - 1) / each);
    }
    return count;
}

static void release_requests(const tg_allocator *a, tg_mpi_channel *ch)
{
    tg_mpi_release(a, ch->requests);
    tg_mpi_release(a, ch->peers);
    tg_mpi_release(a, ch->lens);
    ch->requests = NULL;
    ch->peers = NULL;
    ch->lens = NULL;
    ch->request_cap = 0;
}

void tg_mpi_release_channels(tg_mpi *m)
{
    for (uint32_t c = 0; c < TG_MPI_CHANNELS; c++) {
        release_requests(&m->allocator, &m->channels[c]);
    }
}

tg_status tg_mpi_reserve(tg_mpi *m, uint32_t channel, const tg_op *op, tg_detail *why)
{
    const tg_allocator *a = &m->allocator;
    tg_mpi_channel *ch = &m->channels[channel];
    size_t n = pieces_of(op->sends, op->world) + pieces_of(op->recvs, op->world);
    if (n <= ch->request_cap) {
        return TG_OK;
    }
    release_requests(a, ch);
    ch->requests = tg_mpi_acquire(a, n, sizeof(MPI_Request)); /* a pointer in Open MPI, an int in MPICH */
    ch->peers = tg_mpi_acquire(a, n, sizeof *ch->peers);
    ch->lens = tg_mpi_acquire(a, n, sizeof *ch->lens);
    if (ch->requests == NULL || ch->peers == NULL || ch->lens == NULL) {
        return tg_mpi_fail(TG_E_MEMORY, why, "there is not enough memory for the %zu pieces of an operation", n);
    }
    ch->request_cap = n;
    return TG_OK;
}

/* Starts sending or receiving the pieces of one span, to or from rank p. */
static int post_span(tg_mpi *m, uint32_t channel, uint32_t p, const tg_span *span, bool sends)
{
    tg_mpi_channel *ch = &m->channels[channel];
    const int tag = FIRST_DATA_TAG + (int)channel;
    const uint64_t each = piece_len(span->len);
    uint8_t *at = span->data;
    for (uint64_t left = span->len; left > 0;) {
        int len = (int)(left > each ? each : left);
        MPI_Request *request = &ch->requests[ch->request_n];
        int code = sends ? MPI_Isend(at, len, MPI_BYTE, (int)p, tag, m->comm, request)
                         : MPI_Irecv(at, len, MPI_BYTE, (int)p, tag, m->comm, request);
        if (code != MPI_SUCCESS) {
            return code;
        }
        ch->peers[ch->request_n] = p;
        ch->lens[ch->request_n] = len;
        ch->request_n++;
        at += len;
        left -= (uint64_t)len;
    }
    return MPI_SUCCESS;
}

/* Notes the lowest rank that the operation waits for, and the lowest for all operations. */
static void note_awaited(tg_mpi *m, tg_mpi_channel *ch)
{
    int lowest = NOBODY;
    for (size_t i = 0; ch->left > 0 && i < ch->request_n; i++) {
        if (ch->requests[i] != MPI_REQUEST_NULL && (lowest == NOBODY || (int)ch->peers[i] < lowest)) {
            lowest = (int)ch->peers[i];
        }
    }
    ch->awaited = lowest;
    for (uint32_t c = 0; c < TG_MPI_CHANNELS; c++) {
        const tg_mpi_channel *other = &m->channels[c];
        if (other->left > 0 && (lowest == NOBODY || other->awaited < lowest)) {
            lowest = other->awaited;
        }
    }
    m->awaited = lowest;
}

/* Starts all receives, then all sends. The peers' order begins after this rank, so that not all ranks send to the same one at
 * once. */
bool tg_mpi_post(tg_mpi *m, uint32_t channel)
{
    tg_mpi_channel *ch = &m->channels[channel];
    ch->request_n = 0;
    for (int sends = 0; sends < 2; sends++) {
        for (uint32_t i = 1; i < m->world; i++) {
            uint32_t p = (m->rank + i) % m->world;
            int code = post_span(m, channel, p, sends ? &ch->op->sends[p] : &ch->op->recvs[p], sends);
            if (code != MPI_SUCCESS) {
                return fail_by_mpi(m, code, sends ? "sending to" : "receiving from", p);
            }
        }
        if (!sends) {
            ch->received_n = ch->request_n;
        }
    }
    ch->left = ch->request_n;
    ch->since_ms = tg_mpi_now_ms();
    ch->has_probed = false;
    note_awaited(m, ch);
    return true;
}

/* Checks that a received piece has the expected length. */
static bool check_piece(tg_mpi *m, const tg_mpi_channel *ch, size_t i, const MPI_Status *status)
{
    int len = 0;
    (void)MPI_Get_count(status, MPI_BYTE, &len);
    if (len != ch->lens[i]) {
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %u sends %d bytes, but rank %u expects %d", ch->peers[i], len,
                          m->rank, ch->lens[i]);
        return fail(m);
    }
    return true;
}

bool tg_mpi_poll(bool *moved, tg_mpi *m, uint32_t channel)
{
    tg_mpi_channel *ch = &m->channels[channel];
    size_t before = ch->left, waits = ch->request_n; /* the first piece of a span that is not done */
    *moved = false;
    for (size_t i = 0; ch->left > 0 && i < ch->request_n; i++) {
        MPI_Status status;
        int is_done = 0;
        bool receives = i < ch->received_n;
        bool follows = waits < i && ch->peers[waits] == ch->peers[i] && (waits < ch->received_n) == receives;
        if (ch->requests[i] == MPI_REQUEST_NULL || follows) { /* pieces arrive in order */
            continue;
        }
        int code = MPI_Test(&ch->requests[i], &is_done, &status);
        if (code != MPI_SUCCESS) {
            return fail_by_mpi(m, code, receives ? "receiving from" : "sending to", ch->peers[i]);
        }
        if (is_done && receives) {
            m->liveness.peers[ch->peers[i]].heard_ms = tg_mpi_now_ms();
            if (!check_piece(m, ch, i, &status)) {
                return false;
            }
        }
        ch->left -= (size_t)is_done;
        waits = is_done ? waits : i;
    }
    if (ch->left < before) {
        *moved = true;
        ch->since_ms = tg_mpi_now_ms();
        ch->has_probed = false;
        note_awaited(m, ch);
    }
    return true;
}

/* ---- timeout ----------------------------------------------------------------------------------------------------------- */

/* Fails with the name of the rank that does not reply. If all ranks reply, names the one whose data are missing. */
static bool fail_timeout(tg_mpi *m, const tg_mpi_channel *ch, uint64_t now_ms)
{
    int silent = tg_mpi_liveness_silent(&m->liveness, ch->probed_ms, m->timeout_ms / 8, now_ms);
    if (silent != NOBODY) {
        m->awaited = silent;
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %d is lost: rank %u has waited for it for %u ms", silent, m->rank,
                          m->timeout_ms);
    } else {
        m->awaited = longest_silent(m, ch, NOBODY);
        (void)tg_mpi_fail(TG_E_LINK, &m->why, "rank %d responds, but rank %u has received no data from it for %u ms",
                          (int)m->awaited, m->rank, m->timeout_ms);
    }
    return fail(m);
}

static void probe_awaited(tg_mpi *m, const tg_mpi_channel *ch, uint64_t now_ms)
{
    for (size_t i = 0; i < ch->request_n; i++) {
        const tg_mpi_peer *peer = &m->liveness.peers[ch->peers[i]];
        bool is_new = m->liveness.round_ms != now_ms || peer->wanted_ms != now_ms; /* pieces of one rank: one probe */
        if (ch->requests[i] != MPI_REQUEST_NULL && is_new) {
            tg_mpi_liveness_probe(&m->liveness, ch->peers[i], now_ms);
        }
    }
}

/* After three quarters of the timeout without progress, probes the ranks that the operation waits for; the last quarter is left
 * for their replies. */
bool tg_mpi_check_timeout(tg_mpi *m, uint32_t channel)
{
    const uint64_t reply_ms = m->timeout_ms / 4, probe_after_ms = m->timeout_ms - reply_ms;
    tg_mpi_channel *ch = &m->channels[channel];
    uint64_t now_ms = tg_mpi_now_ms();
    if (ch->left == 0) {
        return true;
    }
    if (!ch->has_probed && now_ms > ch->since_ms + probe_after_ms) {
        probe_awaited(m, ch, now_ms);
        ch->probed_ms = now_ms;
        ch->has_probed = true;
    } else if (ch->has_probed && now_ms > ch->probed_ms + reply_ms && now_ms > ch->since_ms + m->timeout_ms) {
        return fail_timeout(m, ch, now_ms);
    }
    return true;
}
