/* Liveness probes of the MPI link. Before the timeout of an operation runs out, a rank probes the ranks that the operation waits
 * for. A rank that is itself waiting replies at once, and names the rank that it waits for, which is then probed too. A rank that
 * is stopped or gone does not reply. So the error names the rank that is lost, not one that waits for it. */
#ifndef TG_LINK_MPI_LIVENESS_H
#define TG_LINK_MPI_LIVENESS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { TG_MPI_NOBODY = -1, TG_MPI_CONTROL_TAG = 2 };

typedef struct tg_mpi_peer {
    uint64_t heard_ms;  /* when its last message arrived */
    uint64_t wanted_ms; /* when an operation last wanted it probed */
    bool is_asked;      /* it has not replied to a probe yet; if so: */
    uint64_t asked_ms;  /* when the first such probe was sent */
    uint32_t asked;     /* the number of that probe */
    uint32_t number;    /* of the last probe; its send buffer */
    uint32_t reply[2];  /* send buffer of a reply: the probe's number, and the rank that this one waits for */
    MPI_Request probe_send, reply_send;
} tg_mpi_peer;

typedef struct tg_mpi_liveness {
    MPI_Comm comm;
    uint32_t rank, world;
    uint64_t round_ms; /* when an operation last had ranks probed */
    tg_mpi_peer *peers;
} tg_mpi_liveness;

/* `peers` is an array of `world` elements. */
void tg_mpi_liveness_begin(tg_mpi_liveness *liveness, MPI_Comm comm, uint32_t rank, uint32_t world, tg_mpi_peer *peers,
                           uint64_t now_ms);

/* Probes rank p, for an operation that waits for it. */
void tg_mpi_liveness_probe(tg_mpi_liveness *liveness, uint32_t p, uint64_t now_ms);

/* Handles a probe or a reply from rank `from`. `awaited` is the rank that this one waits for, or TG_MPI_NOBODY. */
void tg_mpi_liveness_receive(tg_mpi_liveness *liveness, uint32_t from, const void *text, int len, int awaited,
                             uint64_t now_ms);

/* Of the ranks that were to be probed at since_ms or later, and that have not replied for at least patience_ms, the one that was
 * heard from longest ago; or TG_MPI_NOBODY. */
int tg_mpi_liveness_silent(const tg_mpi_liveness *liveness, uint64_t since_ms, uint64_t patience_ms, uint64_t now_ms);

/* Whether all sends of probes and replies have completed. */
bool tg_mpi_liveness_is_idle(tg_mpi_liveness *liveness);

#endif
