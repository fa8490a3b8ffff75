/* Blocks of device memory that a test takes, and returns all at once. */
#ifndef TG_TESTS_CUDA_BLOCKS_H
#define TG_TESTS_CUDA_BLOCKS_H

#include <stdint.h>

/* A block of `len` bytes, with a copy of those at `from` unless it is NULL. */
void *block_new(const void *from, uint64_t len);

/* Copies bytes to the host, once all kernels are done. */
void block_get(void *to, const void *from, uint64_t len);
void blocks_free(void);

#endif
