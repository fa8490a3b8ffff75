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

void tg_mpi_liveness_new_round(tg_mpi_liveness *liveness)
{
    liveness->round++;
    for (uint32_t p = 0; p < liveness->world; p++) {
        liveness->peers[p].probed = liveness->peers[p].replied = false;
    }
}

void tg_mpi_liveness_probe(tg_mpi_liveness *liveness, uint32_t p)
{
    tg_mpi_peer *peer = &liveness->peers[p];
    if (peer->probed) {
        return;
    }
    peer->probed = true;
    if (is_complete(&peer->probe_send)) { /* otherwise it has not even received an earlier probe */
        peer->round = liveness->round;
        send(liveness, p, &peer->round, sizeof peer->round, &peer->probe_send);
    }
}

void tg_mpi_liveness_receive(tg_mpi_liveness *liveness, uint32_t from, const void *text, int len, int awaited)
{
    tg_mpi_peer *peer = &liveness->peers[from];
    uint32_t round = 0, reply[2] = {0, 0};
    if (len == (int)sizeof round && is_complete(&peer->reply_send)) {
        memcpy(&round, text, sizeof round);
        peer->reply[0] = round;
        peer->reply[1] = awaited == TG_MPI_NOBODY ? liveness->world : (uint32_t)awaited;
        send(liveness, from, peer->reply, sizeof peer->reply, &peer->reply_send);
    } else if (len == (int)sizeof reply) {
        memcpy(reply, text, sizeof reply);
        bool counts = peer->probed && reply[0] == liveness->round;
        peer->replied = peer->replied || counts;
        if (counts && reply[1] < liveness->world && reply[1] != liveness->rank) {
            tg_mpi_liveness_probe(liveness, reply[1]);
        }
    }
}

int tg_mpi_liveness_silent(const tg_mpi_liveness *liveness)
{
    int silent = TG_MPI_NOBODY;
    for (uint32_t p = 0; p < liveness->world; p++) {
        const tg_mpi_peer *peer = &liveness->peers[p];
        if (peer->probed && !peer->replied &&
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
