/* What kernels that end a frame or its check share: hashes of hashes, and the block that comes last. */
#ifndef TG_EXEC_CUDA_ENDING_H
#define TG_EXEC_CUDA_ENDING_H

#include "exec/cuda/hash.h"

/* Words of a leaf: a warp has them in shared memory before it hashes, because a hash waits for each of its loads. */
typedef uint64_t tg_leaf_words[TG_LEAF_BYTES / 8];

/* XXH3 of n words in memory, up to a leaf, by a warp. */
TG_DEVICE uint64_t tg_hash_words(uint64_t *space, const uint64_t *words, uint32_t n)
{
    enum { EACH = TG_LEAF_BYTES / 8 / TG_WARP };
    uint64_t own[EACH];
    TG_UNROLL
    for (uint32_t k = 0; k < EACH; k++) {
        uint32_t i = k * TG_WARP + threadIdx.x % TG_WARP;
        own[k] = i < n ? __ldcg(words + i) : 0;
    }
    __syncwarp();
    TG_UNROLL
    for (uint32_t k = 0; k < EACH; k++) {
        space[k * TG_WARP + threadIdx.x % TG_WARP] = own[k];
    }
    __syncwarp();
    return tg_hash_any((const uint8_t *)space, n * 8);
}

/* Called by all threads of a block that has written what the last block reads. Thread 0 gets the number of blocks that came before. */
TG_DEVICE uint32_t tg_block_arrives(uint32_t *done)
{
    __threadfence();
    __syncthreads();
    return threadIdx.x == 0 ? atomicAdd(done, 1u) : 0;
}

/* Called by all threads, with `before` from tg_block_arrives: whether this is the last of block_n blocks. It then sees what all have
 * written, and the counter is 0 again for the next kernel. */
TG_DEVICE bool tg_block_is_last(uint32_t *done, uint32_t before, uint32_t block_n)
{
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        is_last = before + 1 == block_n;
    }
    __syncthreads();
    if (is_last) {
        __threadfence();
        if (threadIdx.x == 0) {
            *done = 0;
        }
    }
    return is_last;
}

#endif
