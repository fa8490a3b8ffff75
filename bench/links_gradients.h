/* The gradients that bench_links averages: random and heavy-tailed. */
#ifndef TG_BENCH_LINKS_GRADIENTS_H
#define TG_BENCH_LINKS_GRADIENTS_H

#include <stdbool.h>
#include <stdint.h>

/* Values to take gradients from; the caller frees them. NULL: out of memory. */
float *pool_new(uint64_t seed);

/* The gradient of a step: half of each value is from a pool that all ranks have, half from the rank's own. */
void fill(float *grad, uint64_t n, const float *common, const float *own, uint64_t step);

/* Writes a gradient of that kind to a file of numpy, for `tersegrad probe --input`. False: that failed. */
bool write_gradient(const char *path);

#endif
