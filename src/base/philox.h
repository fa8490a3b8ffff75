/* Philox4x32-7, the counter-based generator of Salmon, Moraes, Dror and Shaw (2011): random numbers are a pure
 * function of (seed, step, unit, rank, index), the same on every machine and in every order of evaluation. */
#ifndef TG_BASE_PHILOX_H
#define TG_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

#define TG_PHILOX_ROUNDS 7

/* The four output words of one block. */
void tg_philox(uint32_t out[4], uint64_t key, const uint32_t counter[4]);

/* The random stream of one unit at one step. */
typedef struct tg_stream {
    uint64_t key;
} tg_stream;

/* `who` is 0 for the stream that all ranks share, and rank + 1 for a rank's own. */
tg_stream tg_stream_of(uint64_t seed, uint64_t step, uint32_t unit, uint32_t who);

/* Draw `index`: 64 random bits, or a number below `limit` (limit > 0). A block has two of them. */
uint64_t tg_stream_bits(const tg_stream *s, uint64_t index);
uint64_t tg_stream_below(const tg_stream *s, uint64_t index, uint64_t limit);

/* Random words number `at` to at + n - 1, of a sequence separate from the draws above; each `other` has its own. */
void tg_stream_words(uint32_t *out, const tg_stream *s, uint64_t at, size_t n, uint32_t other);

/* The two halves of the 32 random bits that round a value, and their number in a block. */
enum { TG_HALF_UPPER = 1, TG_HALF_LOWER = 2, TG_HALVES = 8 };

/* Halves number `at` to at + n - 1; each `half` and `other` has its own sequence. */
void tg_stream_halves(uint16_t *out, const tg_stream *s, uint64_t at, size_t n, uint32_t half, uint32_t other);

#endif
