/* Questions and answers between ranks; see mpi_life.h. They are small messages with the tag of control messages, told apart
 * by their length. Nothing here waits. */
#include "link/mpi_life.h"

#include <string.h>

void tg_mpi_life_begin(tg_mpi_life *life, MPI_Comm comm, uint32_t rank, uint32_t world, tg_mpi_peer *peers,
                       uint64_t now_ms)
{
    *life = (tg_mpi_life){.comm = comm, .rank = rank, .world = world, .peers = peers};
    for (uint32_t p = 0; p < world; p++) {
        peers[p] = (tg_mpi_peer){.heard_ms = now_ms, .asking = MPI_REQUEST_NULL, .answering = MPI_REQUEST_NULL};
    }
}

/* Whether what was sent last has left its buffer. */
static bool is_free(MPI_Request *request)
{
    int flag = 1;
    return *request == MPI_REQUEST_NULL || (MPI_Test(request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag);
}

static void send(const tg_mpi_life *life, uint32_t p, const void *text, size_t len, MPI_Request *request)
{
    if (MPI_Isend(text, (int)len, MPI_BYTE, (int)p, TG_MPI_CONTROL_TAG, life->comm, request) != MPI_SUCCESS) {
        *request = MPI_REQUEST_NULL;
    }
}

void tg_mpi_life_new_question(tg_mpi_life *life)
{
    life->question++;
    for (uint32_t p = 0; p < life->world; p++) {
        life->peers[p].asked = life->peers[p].answered = false;
    }
}

void tg_mpi_life_ask(tg_mpi_life *life, uint32_t p)
{
    tg_mpi_peer *peer = &life->peers[p];
    if (peer->asked) {
        return;
    }
    peer->asked = true;
    if (is_free(&peer->asking)) { /* otherwise it has not even taken an earlier question */
        peer->question = life->question;
        send(life, p, &peer->question, sizeof peer->question, &peer->asking);
    }
}

void tg_mpi_life_take(tg_mpi_life *life, uint32_t from, const void *text, int len, int awaited)
{
    tg_mpi_peer *peer = &life->peers[from];
    uint32_t question = 0, answer[2] = {0, 0};
    if (len == (int)sizeof question && is_free(&peer->answering)) {
        memcpy(&question, text, sizeof question);
        peer->answer[0] = question;
        peer->answer[1] = awaited == TG_MPI_NOBODY ? life->world : (uint32_t)awaited;
        send(life, from, peer->answer, sizeof peer->answer, &peer->answering);
    } else if (len == (int)sizeof answer) {
        memcpy(answer, text, sizeof answer);
        bool counts = peer->asked && answer[0] == life->question;
        peer->answered = peer->answered || counts;
        if (counts && answer[1] < life->world && answer[1] != life->rank) {
            tg_mpi_life_ask(life, answer[1]);
        }
    }
}

int tg_mpi_life_silent(const tg_mpi_life *life)
{
    int silent = TG_MPI_NOBODY;
    for (uint32_t p = 0; p < life->world; p++) {
        const tg_mpi_peer *peer = &life->peers[p];
        if (peer->asked && !peer->answered &&
            (silent == TG_MPI_NOBODY || peer->heard_ms < life->peers[silent].heard_ms)) {
            silent = (int)p;
        }
    }
    return silent;
}

bool tg_mpi_life_is_idle(tg_mpi_life *life)
{
    bool idle = true;
    for (uint32_t p = 0; p < life->world; p++) {
        idle = is_free(&life->peers[p].asking) && idle;
        idle = is_free(&life->peers[p].answering) && idle;
    }
    return idle;
}
