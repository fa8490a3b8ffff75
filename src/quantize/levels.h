/* Finds good levels for unbiased random rounding between neighbouring levels (arXiv 2002.11082). */
#ifndef TG_QUANTIZE_LEVELS_H
#define TG_QUANTIZE_LEVELS_H

#include <stddef.h>
#include <stdint.h>

/* The paper's rule for s = 2^K + 1 levels of n values (n >= 1): the smallest and largest value, the best level between
 * them, and recursively in both halves. Levels ascend. `scratch` is a scratch buffer for 4 n values. */
void tg_levels_greedy(float *levels, uint32_t s, const float *values, size_t n, float *scratch);

/* The levels of the smallest total error, for any s >= 2. Sorts the values. `scratch` is a scratch buffer of tg_levels_scratch_len
 * bytes, aligned for doubles. */
void tg_levels_exact(float *levels, uint32_t s, float *values, size_t n, void *scratch);
uint64_t tg_levels_scratch_len(uint32_t s, uint64_t n);

#endif
