/* Ends a frame whose leaves are hashed: hashes of chunks, then the front and the checksum around the body. Ends a check likewise: what
 * the host must know goes to its own memory, so that nothing is copied. */
#include "exec/cuda/ending.h"

enum { WARPS = 8, HASHED_LEAVES = 512 };

/* Shared memory of a block. */
typedef struct block_space {
    tg_leaf_words words[WARPS];
    uint64_t near[2 + WARPS]; /* all words of a frame that one block has, so that it does not wait for memory */
} block_space;

/* Word i of a frame; by a thread. */
TG_DEVICE void put_word(block_space &space, const tg_gpu_ending &e, uint32_t i, uint64_t hash)
{
    e.words[i] = hash;
    if (e.block_n == 1) {
        space.near[i] = hash;
    }
}

/* The checksum of a frame: H of its words, of up to 512 leaves; all threads of its last block. The first warp has it. */
TG_DEVICE uint64_t hash_block(block_space &space, const tg_gpu_ending &e)
{
    __shared__ uint64_t leaves[HASHED_LEAVES];
    uint32_t n = 2 + e.chunk_n, each = TG_LEAF_BYTES / 8, leaf_n = (n + each - 1) / each, warp = threadIdx.x / TG_WARP;
    if (e.block_n == 1) {
        return warp > 0 ? 0 : tg_hash_any((const uint8_t *)space.near, n * 8);
    }
    for (uint32_t leaf = warp; leaf < leaf_n; leaf += WARPS) {
        uint64_t hash = tg_hash_words(space.words[warp], e.words + leaf * each, min(n - leaf * each, each));
        if (threadIdx.x % TG_WARP == 0) {
            leaves[leaf] = hash;
        }
    }
    __syncthreads();
    return warp > 0 ? 0 : leaf_n == 1 ? leaves[0] : tg_hash_any((const uint8_t *)leaves, leaf_n * 8);
}

/* The hash of a chunk from those of its leaves, by a warp. */
TG_DEVICE uint64_t hash_chunk(tg_leaf_words &space, const uint64_t *leaves, uint32_t len)
{
    uint32_t leaf_n = (len + TG_LEAF_BYTES - 1) / TG_LEAF_BYTES;
    if (len == 0) {
        return TG_HASH_OF_NOTHING;
    }
    return leaf_n == 1 ? leaves[0] : tg_hash_words(space, leaves, leaf_n);
}

/* Whether this is the last block of a frame to come here; all threads. */
TG_DEVICE bool is_last_block(uint32_t *done, uint32_t block_n)
{
    if (block_n == 1) {
        __syncthreads();
        return true;
    }
    return tg_block_is_last(done, tg_block_arrives(done), block_n);
}

/* The chunk of this warp, in the frame; that after the last one is the front. */
TG_DEVICE uint32_t chunk_of_warp(const tg_gpu_ending &e)
{
    return (blockIdx.x - e.block) * WARPS + threadIdx.x / TG_WARP;
}

/* Its length, which does not depend on kernels before this one. */
TG_DEVICE uint32_t len_of_warp(const tg_gpu_pass &p, const tg_gpu_ending &e)
{
    uint32_t i = chunk_of_warp(e);
    return i < e.chunk_n ? p.chunks[e.first + i].len : 0;
}

/* Hashes of this block's chunks to words[2], ..., that of this warp of `len` bytes. The warp after the last chunk's has the front: its
 * hash, or that of the front in the frame if `hashes_front`. Returns whether this is the last block to do so; all threads. */
TG_DEVICE bool hash_chunks(block_space &space, const tg_gpu_pass &p, const tg_gpu_ending &e, const tg_gpu_front &front,
                           uint32_t len, bool hashes_front)
{
    uint32_t warp = threadIdx.x / TG_WARP, i = chunk_of_warp(e), number = e.first + i;
    if (i < e.chunk_n) {
        const tg_gpu_chunk &chunk = p.chunks[number];
        uint64_t hash = hash_chunk(space.words[warp], e.leaves + (uint64_t)i * e.leaf_cap, len);
        if (threadIdx.x % TG_WARP == 0) {
            put_word(space, e, 2 + i, hash);
            if (e.sides != nullptr) {
                const uint8_t *body = e.frame + front.len;
                uint64_t side = 0;
                for (uint32_t b = 0; b < 8 && b < chunk.side_len; b++) {
                    side |= (uint64_t)body[chunk.body_at + b] << 8 * b;
                }
                e.sides[number] = side;
            }
        }
    } else if (i == e.chunk_n) {
        uint64_t hash = hashes_front ? tg_hash_bytes(space.words[warp], e.frame, front.len) : front.hash;
        if (threadIdx.x % TG_WARP == 0) {
            put_word(space, e, 0, hash);
            put_word(space, e, 1, TG_HASH_OF_NOTHING); /* there are no headers */
        }
    }
    return is_last_block(e.done, e.block_n);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

/* Byte i of what stands before a body. */
TG_DEVICE uint8_t front_byte(const tg_gpu_pass &p, const tg_gpu_front &front, uint32_t i)
{
    if (p.step_at != nullptr && i >= TG_GPU_STEP_AT && i < TG_GPU_STEP_AT + 8) {
        return (uint8_t)(*p.step_at >> 8 * (i - TG_GPU_STEP_AT));
    }
    return i < TG_GPU_FRONT ? front.header[i] : front.description[i - TG_GPU_FRONT];
}

/* All of it, by a block; each thread has its first byte. */
TG_DEVICE void write_front(const tg_gpu_ending &e, const tg_gpu_pass &p, const tg_gpu_front &front, uint8_t first)
{
    if (threadIdx.x < front.len) {
        e.frame[threadIdx.x] = first;
    }
    for (uint32_t i = threadIdx.x + WARPS * TG_WARP; i < front.len; i += WARPS * TG_WARP) {
        e.frame[i] = front_byte(p, front, i);
    }
}

__global__ static void __launch_bounds__(WARPS *TG_WARP)
    seal(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_seals s)
{
    __shared__ block_space space;
    uint32_t number = 0;
    while (number + 1 < s.n && blockIdx.x >= s.e[number + 1].block) {
        number++;
    }
    const tg_gpu_ending &e = s.e[number];
    const tg_gpu_front &front = s.fronts[number];
    uint32_t len = len_of_warp(p, e);
    tg_after_previous();
    bool has_front = blockIdx.x + 1 == e.block + e.block_n, hashes_front = p.step_at != nullptr;
    uint8_t first = has_front && threadIdx.x < front.len ? front_byte(p, front, threadIdx.x) : 0;
    if (has_front && hashes_front) {
        write_front(e, p, front, first);
        __syncthreads();
    }
    bool is_last = hash_chunks(space, p, e, front, len, hashes_front);
    if (has_front && !hashes_front) { /* its bytes have come in the meantime */
        write_front(e, p, front, first);
    }
    if (!is_last) {
        return;
    }
    uint64_t checksum = hash_block(space, e);
    if (threadIdx.x == 0) {
        tg_store_bytes(e.frame + front.len + e.body_len, checksum, 8);
    }
    tg_hand_over(e);
}

/* Gives a frame its blocks, from number `first` on: a warp a chunk, and one for the front. Returns the number after the last. */
static uint32_t give_blocks(tg_gpu_ending *e, uint32_t first)
{
    e->block = first;
    e->block_n = e->chunk_n / WARPS + 1;
    return first + e->block_n;
}

void tg_gpu_end_frames(const tg_gpu_pass *p, tg_gpu_seals *s)
{
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        blocks = give_blocks(&s->e[i], blocks);
    }
    TG_LAUNCH_EARLY(seal, p->overlaps, blocks, WARPS * TG_WARP, p->stream, *p, *s);
}

/* ---- checking ------------------------------------------------------------------------------------------------------------ */

/* Whether front, chunks and checksum of a frame are right, for the kernels after this one. All threads, of which the first one knows it
 * then; hashes are in e.words. */
TG_DEVICE bool judge(block_space &space, const tg_gpu_ending &e, const tg_gpu_front &front)
{
    bool differs = tg_front_differs(e.frame, front);
    uint64_t checksum = hash_block(space, e);
    return threadIdx.x == 0 && tg_judge(e, front, differs, checksum);
}

/* To the host: the front of a frame and its checksum, hashes of headers and chunks, the verdict. */
__global__ static void __launch_bounds__(WARPS *TG_WARP)
    tell(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_ending e,
         const __grid_constant__ tg_gpu_front front, uint8_t *ends, uint64_t *words)
{
    __shared__ block_space space;
    const uint8_t *frame = e.frame;
    uint32_t len = len_of_warp(p, e);
    tg_next_may_begin();
    tg_after_previous();
    if (!hash_chunks(space, p, e, front, len, e.sound != nullptr)) {
        return;
    }
    for (uint32_t i = threadIdx.x; ends != nullptr && i < front.len + 8; i += WARPS * TG_WARP) {
        ends[i] = i < front.len ? frame[i] : frame[i + e.body_len];
    }
    for (uint32_t i = 2 + threadIdx.x; words != nullptr && i < 2 + e.chunk_n; i += WARPS * TG_WARP) {
        words[i] = e.block_n == 1 ? space.near[i] : __ldcg(e.words + i);
    }
    bool is_sound = e.sound != nullptr && judge(space, e, front);
    tg_hand_over(e);
    if (e.sound != nullptr) {
        tg_announce(e, is_sound);
    }
}

void tg_gpu_end_check(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front, uint8_t *ends,
                      uint64_t *words)
{
    tg_gpu_ending own = *e;
    uint32_t blocks = give_blocks(&own, 0);
    TG_LAUNCH_EARLY(tell, p->overlaps, blocks, WARPS * TG_WARP, p->stream, *p, own, *front, ends, words);
}
