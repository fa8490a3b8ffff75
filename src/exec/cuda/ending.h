/* What kernels that end a frame or its check share: hashes of hashes, and the block that comes last. */
#ifndef TG_EXEC_CUDA_ENDING_H
#define TG_EXEC_CUDA_ENDING_H

#include "exec/cuda/hash.h"
#include "exec/cuda/kernels.h"

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

/* H of bytes in memory, by a warp. */
TG_DEVICE uint64_t tg_hash_bytes(uint64_t *space, const uint8_t *bytes, uint32_t len)
{
    uint32_t leaf_n = len == 0 ? 1 : (len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
    uint64_t hash = 0;
    for (uint32_t leaf = 0; leaf < leaf_n; leaf++) {
        hash = tg_hash_any(bytes + leaf * TG_LEAF_BYTES, min(len - leaf * TG_LEAF_BYTES, TG_LEAF_BYTES));
        if (leaf_n > 1 && threadIdx.x % TG_WARP == 0) {
            space[leaf] = hash;
        }
    }
    __syncwarp();
    return leaf_n == 1 ? hash : tg_hash_any((const uint8_t *)space, leaf_n * 8);
}

/* ---- judging ------------------------------------------------------------------------------------------------------------- */

/* Whether what stands before a body is not what it must be, but for rank and step, as far as thread `first` of `step` can tell. */
TG_DEVICE bool tg_front_differs(const uint8_t *frame, const tg_gpu_front &front, uint32_t first, uint32_t step)
{
    bool differs = tg_load32(frame + TG_GPU_RANK_AT) == 0xffffffffu;
    for (uint32_t i = first; i < front.len; i += step) {
        bool is_any =
            (i >= TG_GPU_RANK_AT && i < TG_GPU_RANK_AT + 4) || (i >= TG_GPU_STEP_AT && i < TG_GPU_STEP_AT + 8);
        uint8_t expected = i < TG_GPU_FRONT ? front.header[i] : front.description[i - TG_GPU_FRONT];
        differs = differs || (!is_any && frame[i] != expected);
    }
    return differs;
}

/* Whether a frame is sound, for the kernels after this one; by one thread. */
TG_DEVICE void tg_note_sound(const tg_gpu_ending &e, bool is_sound)
{
    *e.sound = is_sound ? 1 : 0;
    if (!is_sound && e.refused != nullptr) {
        *e.refused = *e.refused + 1;
    }
}

/* Finds that out and notes it; by one thread. */
TG_DEVICE bool tg_judge(const tg_gpu_ending &e, const tg_gpu_front &front, bool differs, uint64_t checksum)
{
    bool is_sound =
        !differs && __ldcg(&e.verdict->bad_chunk) == 0 && tg_xxh_load(e.frame + front.len + e.body_len, 8) == checksum;
    tg_note_sound(e, is_sound);
    return is_sound;
}

/* The verdict to the host, and cleared for the next pass. */
TG_DEVICE void tg_hand_over(const tg_gpu_ending &e)
{
    if (threadIdx.x == 0 && e.verdict_to != nullptr) {
        *e.verdict_to = *e.verdict;
        *e.verdict = tg_gpu_verdict{};
    }
}

/* Writes the word that the host polls; by one thread. */
TG_DEVICE void tg_say_sound(const tg_gpu_ending &e, bool is_sound)
{
    if (e.sound_to != nullptr) {
        *(volatile uint32_t *)e.sound_to = is_sound ? 1 : 0;
    }
}

/* The same after all else that the host is told. Called by all threads; thread 0 has is_sound. A kernel that writes no word fences all the
 * same: a later kernel on the stream writes it for both. */
TG_DEVICE void tg_announce(const tg_gpu_ending &e, bool is_sound)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        tg_say_sound(e, is_sound);
    }
}

#endif
