/* Signs of life of the ranks behind a link over MPI. A rank whose wait is about to run out asks those it waits for whether they
 * are there. A rank that waits itself answers at once, and says for whom it waits, who is then asked, too; a rank that is
 * stopped or gone does not answer. So the rank that is named as lost is the silent one, not one that waits for it. */
#ifndef TG_LINK_MPI_LIFE_H
#define TG_LINK_MPI_LIFE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { TG_MPI_NOBODY = -1, TG_MPI_CONTROL_TAG = 2 };

typedef struct tg_mpi_peer {
    uint64_t heard_ms;  /* when something came from it for the last time */
    bool asked;         /* by the last question ... */
    bool answered;      /* ... which it has answered */
    uint32_t question;  /* what is sent to it, until `asking` is done */
    uint32_t answer[2]; /* the same: its question, and the rank that is awaited here */
    MPI_Request asking, answering;
} tg_mpi_peer;

typedef struct tg_mpi_life {
    MPI_Comm comm;
    uint32_t rank, world;
    uint32_t question; /* the number of the last one; answers to earlier ones do not count */
    tg_mpi_peer *peers;
} tg_mpi_life;

/* `peers` has room for `world`. */
void tg_mpi_life_begin(tg_mpi_life *life, MPI_Comm comm, uint32_t rank, uint32_t world, tg_mpi_peer *peers,
                       uint64_t now_ms);

/* Begins a new question, which nobody has been asked yet. */
void tg_mpi_life_new_question(tg_mpi_life *life);

/* Asks rank p, unless it was. */
void tg_mpi_life_ask(tg_mpi_life *life, uint32_t p);

/* Takes a question or an answer of rank `from`. `awaited` is the rank that this one waits for most, or TG_MPI_NOBODY. */
void tg_mpi_life_take(tg_mpi_life *life, uint32_t from, const void *text, int len, int awaited);

/* The rank that was asked, has not answered and was heard from longest ago, or TG_MPI_NOBODY. */
int tg_mpi_life_silent(const tg_mpi_life *life);

/* Whether MPI is done with all questions and answers. */
bool tg_mpi_life_is_idle(tg_mpi_life *life);

#endif
