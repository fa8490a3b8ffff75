/* Liveness probes and their replies; see mpi_liveness.h. Both are small messages with the tag of control messages; their length
 * tells them apart. No function here blocks. */
#include "link/mpi_liveness.h"

#include <string.h>

void tg_mpi_liveness_begin(tg_mpi_liveness *liveness, MPI_Comm comm, uint32_t rank, uint32_t world, tg_mpi_peer *peers,
                           uint64_t now_ms)
{
    *liveness = (tg_mpi_liveness){.comm = comm, .rank = rank, .world = world, .peers = peers};
    for (uint32_t p = 0; p < world; p++) {
        peers[p] = (tg_mpi_peer){.heard_ms = now_ms, .probe_send = MPI_REQUEST_NULL, .reply_send = MPI_REQUEST_NULL};
    }
}

/* Whether the last send has completed, so that its buffer can be reused. */
static bool is_complete(MPI_Request *request)
{
    int flag = 1;
    return *request == MPI_REQUEST_NULL || (MPI_Test(request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag);
}

static void send(const tg_mpi_liveness *liveness, uint32_t p, const void *text, size_t len, MPI_Request *request)
{
    if (MPI_Isend(text, (int)len, MPI_BYTE, (int)p, TG_MPI_CONTROL_TAG, liveness->comm, request) != MPI_SUCCESS) {
        *request = MPI_REQUEST_NULL;
    }
}

static void probe(tg_mpi_liveness *liveness, uint32_t p, uint64_t now_ms)
{
    tg_mpi_peer *peer = &liveness->peers[p];
    peer->wanted_ms = now_ms;
    if (is_complete(&peer->probe_send)) { /* otherwise it has not even received an earlier probe */
        peer->number++;
        send(liveness, p, &peer->number, sizeof peer->number, &peer->probe_send);
    }
    if (!peer->is_asked) {
        peer->is_asked = true;
        peer->asked_ms = now_ms;
        peer->asked = peer->number;
    }
}

void tg_mpi_liveness_probe(tg_mpi_liveness *liveness, uint32_t p, uint64_t now_ms)
{
    liveness->round_ms = now_ms;
    probe(liveness, p, now_ms);
}

static void receive_reply(tg_mpi_liveness *liveness, uint32_t from, uint32_t number, uint32_t awaited, uint64_t now_ms)
{
    tg_mpi_peer *peer = &liveness->peers[from];
    if (!peer->is_asked || number - peer->asked > peer->number - peer->asked) {
        return; /* a reply to an earlier probe */
    }
    peer->is_asked = false;
    /* Probed once a round, because ranks may wait for each other in a circle. */
    if (awaited < liveness->world && awaited != liveness->rank &&
        liveness->peers[awaited].wanted_ms < liveness->round_ms) {
        probe(liveness, awaited, now_ms);
    }
}

void tg_mpi_liveness_receive(tg_mpi_liveness *liveness, uint32_t from, const void *text, int len, int awaited,
                             uint64_t now_ms)
{
    tg_mpi_peer *peer = &liveness->peers[from];
    uint32_t words[2] = {0, 0};
    if (len == (int)sizeof words[0] && is_complete(&peer->reply_send)) {
        memcpy(words, text, sizeof words[0]);
        peer->reply[0] = words[0];
        peer->reply[1] = awaited == TG_MPI_NOBODY ? liveness->world : (uint32_t)awaited;
        send(liveness, from, peer->reply, sizeof peer->reply, &peer->reply_send);
    } else if (len == (int)sizeof words) {
        memcpy(words, text, sizeof words);
        receive_reply(liveness, from, words[0], words[1], now_ms);
    }
}

int tg_mpi_liveness_silent(const tg_mpi_liveness *liveness, uint64_t since_ms, uint64_t patience_ms, uint64_t now_ms)
{
    int silent = TG_MPI_NOBODY;
    for (uint32_t p = 0; p < liveness->world; p++) {
        const tg_mpi_peer *peer = &liveness->peers[p];
        if (peer->is_asked && peer->wanted_ms >= since_ms && now_ms >= peer->asked_ms + patience_ms &&
            (silent == TG_MPI_NOBODY || peer->heard_ms < liveness->peers[silent].heard_ms)) {
            silent = (int)p;
        }
    }
    return silent;
}

bool tg_mpi_liveness_is_idle(tg_mpi_liveness *liveness)
{
    bool idle = true;
    for (uint32_t p = 0; p < liveness->world; p++) {
        idle = is_complete(&liveness->peers[p].probe_send) && idle;
        idle = is_complete(&liveness->peers[p].reply_send) && idle;
    }
    return idle;
}
