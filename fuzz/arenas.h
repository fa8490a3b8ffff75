/* Worlds of ranks that have done some steps, for states and messages: every exchange, LGC in its three phases. */
#ifndef TG_FUZZ_ARENAS_H
#define TG_FUZZ_ARENAS_H

#include "frame/codec.h"
#include "support.h"

#include "tersegrad/experimental.h"

#include <stdbool.h>

enum { FUZZ_ARENA_RANKS = 4, FUZZ_ARENA_TENSORS = 6, FUZZ_ARENA_ELEMENTS = 60 + 9 + 300 + 200 + 0 + 100 };

/* Gradients of one rank. */
typedef struct fuzz_grads {
    float elements[FUZZ_ARENA_ELEMENTS];
    void *tensors[FUZZ_ARENA_TENSORS];
} fuzz_grads;

typedef struct fuzz_arena {
    const char *recipe, *exchange;
    uint32_t n;
    uint64_t step; /* the next step */
    tg_exchange *ranks[FUZZ_ARENA_RANKS];
    uint8_t *saved[FUZZ_ARENA_RANKS]; /* the state of each rank before that step */
    size_t saved_len[FUZZ_ARENA_RANKS];
} fuzz_arena;

extern const size_t fuzz_arena_n;

/* Arena number `index`, created at its first use and kept until the program ends. Arenas with the same recipe are adjacent. */
const fuzz_arena *fuzz_arena_at(size_t index);

/* Restores the saved states of all ranks. */
void fuzz_arena_reset(const fuzz_arena *a);

/* Whether the state of a rank is the saved one. */
bool fuzz_arena_is_reset(const fuzz_arena *a, uint32_t rank);

/* Fills in the gradients of the next step. */
void fuzz_arena_fill(fuzz_grads *grads, const fuzz_arena *a);

/* Runs that step on the current gradients. */
tg_status fuzz_arena_reduce(tg_outcome *outcomes, const fuzz_arena *a, fuzz_grads *grads, const tg_tap *tap) TG_CHECKED;

#endif
