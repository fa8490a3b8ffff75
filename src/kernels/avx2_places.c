/* Tables that replace the compress and expand instructions, which AVX2 does not have. Indexed by a mask of eight lanes; an entry
 * has a byte for each of eight lanes. */
#include "kernels/avx2.h"

#if defined(__x86_64__)

#define BIT(m, i) (1 & (m) >> (i))
#define ONES(m) (BIT(m, 0) + BIT(m, 1) + BIT(m, 2) + BIT(m, 3) + BIT(m, 4) + BIT(m, 5) + BIT(m, 6) + BIT(m, 7))
#define BELOW(m, i) ONES((m) & ((1 << (i)) - 1))
#define ALL_BITS(of, m) (of(m, 0) | of(m, 1) | of(m, 2) | of(m, 3) | of(m, 4) | of(m, 5) | of(m, 6) | of(m, 7))

#define MARKED_AT(m, i) ((uint64_t)(BIT(m, i) * (i)) << 8 * BELOW(m, i))
#define MARKED(m) ALL_BITS(MARKED_AT, m)
#define ENDING(m) \
    (MARKED(m) << 4 * (8 - ONES(m)) << 4 * (8 - ONES(m))) /* in two shifts, because 64 is too many for one */
#define RANK_AT(m, i) ((uint64_t)BELOW(m, i) << 8 * (i))
#define RANKS(m) ALL_BITS(RANK_AT, m)

#define FOUR(of, m) of(m), of((m) + 1), of((m) + 2), of((m) + 3)
#define SIXTEEN(of, m) FOUR(of, m), FOUR(of, (m) + 4), FOUR(of, (m) + 8), FOUR(of, (m) + 12)
#define SIXTY_FOUR(of, m) SIXTEEN(of, m), SIXTEEN(of, (m) + 16), SIXTEEN(of, (m) + 32), SIXTEEN(of, (m) + 48)
#define EVERY(of) SIXTY_FOUR(of, 0), SIXTY_FOUR(of, 64), SIXTY_FOUR(of, 128), SIXTY_FOUR(of, 192)

const uint64_t tg_avx2_marked[256] = {EVERY(MARKED)};
const uint64_t tg_avx2_marked_last[256] = {EVERY(ENDING)};
const uint64_t tg_avx2_ranks[256] = {EVERY(RANKS)};
#endif
