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
    return leaf_n == 1 ? __ldcg(leaves) : tg_hash_words(space, leaves, leaf_n);
}

/* Whether this is the last block of a frame to come here; all threads. */
TG_DEVICE bool is_last_block(const tg_gpu_ending &e)
{
    if (e.block_n == 1) {
        __syncthreads();
        return true;
    }
    return tg_block_is_last(e.done, tg_block_arrives(e.done), e.block_n);
}

/* The chunk of a warp, by its number in the frame; the warp after the last one's has the front. Nothing of it depends on kernels before this
 * one. */
typedef struct own_chunk {
    uint32_t number, len, side_len;
    uint64_t body_at;
} own_chunk;

TG_DEVICE own_chunk chunk_of_warp(const tg_gpu_pass &p, const tg_gpu_ending &e)
{
    uint32_t i = (blockIdx.x - e.block) * WARPS + threadIdx.x / TG_WARP;
    if (i >= e.chunk_n) {
        return {i, 0, 0, 0};
    }
    const tg_gpu_chunk &chunk = p.chunks[e.first + i];
    return {i, chunk.len, chunk.side_len, chunk.body_at};
}

/* The first 8 bytes beside a chunk's values. */
TG_DEVICE uint64_t first_bytes(const uint8_t *chunk, uint32_t side_len)
{
    uint64_t side = 0;
    TG_UNROLL
    for (uint32_t b = 0; b < 8; b++) {
        side |= b < side_len ? (uint64_t)chunk[b] << 8 * b : 0;
    }
    return side;
}

/* The hash of the chunk of a warp to words[2 + number]. */
TG_DEVICE void hash_own_chunk(block_space &space, const tg_gpu_ending &e, const own_chunk &own)
{
    if (own.number >= e.chunk_n) {
        return;
    }
    const uint64_t *leaves = e.leaves + (uint64_t)own.number * e.leaf_cap;
    uint64_t hash = hash_chunk(space.words[threadIdx.x / TG_WARP], leaves, own.len);
    if (threadIdx.x % TG_WARP == 0) {
        put_word(space, e, 2 + own.number, hash);
    }
}

/* The first two words, by the warp that has the front: its hash, or that of the front in the frame if `hashes_front`. */
TG_DEVICE void hash_own_front(block_space &space, const tg_gpu_ending &e, const own_chunk &own, const tg_gpu_front &front,
                              bool hashes_front)
{
    if (own.number != e.chunk_n) {
        return;
    }
    uint64_t hash = hashes_front ? tg_hash_bytes(space.words[threadIdx.x / TG_WARP], e.frame, front.len) : front.hash;
    if (threadIdx.x % TG_WARP == 0) {
        put_word(space, e, 0, hash);
        put_word(space, e, 1, TG_HASH_OF_NOTHING); /* there are no headers */
    }
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
    const own_chunk own = chunk_of_warp(p, e);
    const bool has_side = e.sides != nullptr && own.number < e.chunk_n;
    tg_after_previous();
    tg_next_may_begin();
    bool has_front = blockIdx.x + 1 == e.block + e.block_n, hashes_front = p.step_at != nullptr;
    uint8_t first = has_front && threadIdx.x < front.len ? front_byte(p, front, threadIdx.x) : 0;
    if (has_front && hashes_front) {
        write_front(e, p, front, first);
        __syncthreads();
    }
    uint64_t side = has_side ? first_bytes(e.frame + front.len + own.body_at, own.side_len) : 0;
    hash_own_chunk(space, e, own);
    hash_own_front(space, e, own, front, hashes_front);
    if (has_side && threadIdx.x % TG_WARP == 0) {
        e.sides[e.first + own.number] = side;
    }
    bool is_last = is_last_block(e);
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

/* Whether front, chunks and checksum of a frame are right; `stated` is that checksum in the frame, which thread 0 has. All threads of the
 * last block. */
TG_DEVICE bool judge(block_space &space, const tg_gpu_ending &e, uint64_t stated)
{
    uint32_t bad = threadIdx.x == 0 ? __ldcg(&e.verdict->bad_chunk) | __ldcg(&e.verdict->bad_front) : 0;
    uint64_t checksum = hash_block(space, e);
    return __syncthreads_or(threadIdx.x == 0 && bad == 0 && checksum == stated ? 1 : 0) != 0;
}

/* To the host: what stands around the body, and hashes of chunks. */
TG_DEVICE void tell_of_frame(block_space &space, const tg_gpu_ending &e, uint32_t front_len, uint8_t *ends, uint64_t *words)
{
    for (uint32_t i = threadIdx.x; ends != nullptr && i < front_len + TG_GPU_CHECKSUM; i += WARPS * TG_WARP) {
        ends[i] = i < front_len ? e.frame[i] : e.frame[i + e.body_len];
    }
    for (uint32_t i = 2 + threadIdx.x; i < 2 + e.chunk_n; i += WARPS * TG_WARP) {
        words[i] = e.block_n == 1 ? space.near[i] : __ldcg(e.words + i);
    }
}

/* The kernel before this one hashes leaves. It has begun after all before it had ended, so that what needs the frame alone is done before it
 * ends. The host waits for a word that says whether the frame is sound: nothing else is told of one that is. */
__global__ static void __launch_bounds__(WARPS *TG_WARP)
    tell(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_ending e,
         const __grid_constant__ tg_gpu_front front, uint8_t *ends, uint64_t *words)
{
    __shared__ block_space space;
    const uint8_t *body = e.frame + front.len;
    const own_chunk own = chunk_of_warp(p, e);
    const bool judges = e.sound != nullptr;
    tg_next_may_begin();
    const uint64_t stated = judges && threadIdx.x == 0 ? tg_xxh_load(body + e.body_len, TG_GPU_CHECKSUM) : 0;
    if (judges && blockIdx.x + 1 == e.block_n && tg_front_differs(e.frame, front, threadIdx.x, blockDim.x)) {
        e.verdict->bad_front = 1;
    }
    hash_own_front(space, e, own, front, judges);
    tg_after_previous();
    hash_own_chunk(space, e, own);
    if (!is_last_block(e)) {
        return;
    }
    if (judges && judge(space, e, stated)) {
        if (threadIdx.x == 0) {
            tg_note_sound(e, true);
            tg_say_sound(e, true);
        }
        for (uint32_t i = threadIdx.x; e.sides != nullptr && i < e.chunk_n; i += WARPS * TG_WARP) {
            const tg_gpu_chunk &chunk = p.chunks[e.first + i];
            e.sides[e.first + i] = first_bytes(body + chunk.body_at, chunk.side_len);
        }
        return;
    }
    tell_of_frame(space, e, front.len, ends, words);
    if (judges && threadIdx.x == 0) {
        tg_note_sound(e, false);
    }
    tg_hand_over(e);
    if (judges) {
        tg_announce(e, false);
    }
}

void tg_gpu_end_check(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front, uint8_t *ends,
                      uint64_t *words)
{
    tg_gpu_ending own = *e;
    uint32_t blocks = give_blocks(&own, 0);
    bool is_early = p->overlaps && p->leaf_n > 0; /* else the kernel before is any */
    TG_LAUNCH_EARLY(tell, is_early, blocks, WARPS * TG_WARP, p->stream, *p, own, *front, ends, words);
}
