/* Liveness probes of the MPI link. Before its timeout runs out, a rank probes the ranks that it waits for. A rank that is itself
 * waiting replies at once, and names the rank that it waits for, which is then probed too. A rank that is stopped or gone does
 * not reply. So the error names the rank that is lost, not one that waits for it. */
#ifndef TG_LINK_MPI_LIVENESS_H
#define TG_LINK_MPI_LIVENESS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { TG_MPI_NOBODY = -1, TG_MPI_CONTROL_TAG = 2 };

typedef struct tg_mpi_peer {
    uint64_t heard_ms; /* when its last message arrived */
    bool probed;       /* in the current round */
    bool replied;      /* to the probe of the current round */
    uint32_t round;    /* send buffer of a probe: the round's number */
    uint32_t reply[2]; /* send buffer of a reply: the probe's round, and the rank that this one waits for */
    MPI_Request probe_send, reply_send;
} tg_mpi_peer;

typedef struct tg_mpi_liveness {
    MPI_Comm comm;
    uint32_t rank, world;
    uint32_t round; /* the current round of probes; replies to earlier ones are ignored */
    tg_mpi_peer *peers;
} tg_mpi_liveness;

/* `peers` is an array of `world` elements. */
void tg_mpi_liveness_begin(tg_mpi_liveness *liveness, MPI_Comm comm, uint32_t rank, uint32_t world, tg_mpi_peer *peers,
                           uint64_t now_ms);

/* Begins a new round of probes. */
void tg_mpi_liveness_new_round(tg_mpi_liveness *liveness);

/* Probes rank p, unless it was probed in this round. */
void tg_mpi_liveness_probe(tg_mpi_liveness *liveness, uint32_t p);

/* Handles a probe or a reply from rank `from`. `awaited` is the rank that this one waits for, or TG_MPI_NOBODY. */
void tg_mpi_liveness_receive(tg_mpi_liveness *liveness, uint32_t from, const void *text, int len, int awaited);

/* Of the ranks that have not replied to their probe, the one that was heard from longest ago; or TG_MPI_NOBODY. */
int tg_mpi_liveness_silent(const tg_mpi_liveness *liveness);

/* Whether all sends of probes and replies have completed. */
bool tg_mpi_liveness_is_idle(tg_mpi_liveness *liveness);

#endif
