/* Values at marked or listed positions, by the best kernels. Masks as in base/bits.h. Lists have one version for all instruction
 * sets. */
#ifndef TG_KERNELS_SPARSE_H
#define TG_KERNELS_SPARSE_H

#include <stddef.h>
#include <stdint.h>

/* Copies the marked values to the front of out; returns their number. */
size_t tg_compress(float *out, const float *values, const uint64_t *mask, size_t n);

/* The j-th value belongs to the j-th marked position i. Adds weight * value to out[i], or sets out[i] = value. A NULL mask
 * marks all. */
void tg_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
void tg_expand_set(float *out, const uint64_t *mask, const float *values, size_t n);

/* The same with a list of n indices in ascending order. */
void tg_gather(float *out, const float *values, const uint32_t *list, size_t n);
void tg_scatter_add(float *out, const uint32_t *list, const float *values, float weight, size_t n);
void tg_scatter_set(float *out, const uint32_t *list, const float *values, size_t n);

#endif
