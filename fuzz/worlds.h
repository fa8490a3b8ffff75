/* Ranks of small worlds that have done some steps, for tests of saved states. */
#ifndef TG_FUZZ_WORLDS_H
#define TG_FUZZ_WORLDS_H

#include "tersegrad/tersegrad.h"

/* A rank of some exchange, and its saved state after its last step. */
typedef struct fuzz_rank {
    tg_exchange *exchange;
    uint32_t rank, world;
    uint8_t *saved;
    size_t saved_len;
} fuzz_rank;

/* Every exchange, each in worlds of 1 and of 2 ranks. Ranks of a world are adjacent, and so are worlds of one exchange. */
enum { FUZZ_RANK_N = 12 };

/* All of them, created at the first use and kept until the program ends. */
const fuzz_rank *fuzz_ranks(void);

/* One more step of a world of one rank, which may fail. */
tg_status fuzz_step_alone(const fuzz_rank *rank, uint64_t step, tg_detail *why);

#endif
