/* The rANS encoder (pack/rans_encode.c) on the GPU: a block a chunk.
 *
 * The states of a stream are the only parallelism that the format offers in a chunk, so what counts is how long one round, a
 * symbol for each state, takes. Two warps do nothing but that, a state a lane: they leave each round's words, and which of them
 * are emitted, in shared memory. Two other warps put the words of the tile of rounds before into their order, and load the
 * symbols of the tile after it. A stream is coded from its end, and its words are found from their end on. */
#include "exec/cuda/pack.h"

enum { CODERS = 2, HELPERS = 2, THREADS = (CODERS + HELPERS) * 32, ROUNDS = 32 /* of a tile */, BATCH = 8 };
enum { TILE = ROUNDS * TG_PACK_LANES, START = 1 << 15 };

typedef struct encode_space {
    uint4 plans[TG_PACK_BASE];
    uint16_t symbols[2][TILE];
    uint16_t words[2][TILE]; /* of a round: TG_PACK_LANES, emitted or not */
    uint32_t masks[2][ROUNDS][CODERS];
    uint32_t word_n;
} encode_space;

/* What does not change while a chunk is coded. */
typedef struct encode_job {
    const uint8_t *symbols;
    uint16_t *words_end;
    uint32_t count, lane_n;
    bool is_wide;
} encode_job;

/* ---- loading ------------------------------------------------------------------------------------------------------------ */

/* Loads the symbols of a tile, two at a time; `thread` of `threads`. */
TG_DEVICE void load_tile(uint16_t *to, const encode_job &j, uint32_t tile, uint32_t thread, uint32_t threads)
{
    uint32_t first = tile * ROUNDS * j.lane_n, n = min(ROUNDS * j.lane_n, j.count - first);
    const uint16_t *from = (const uint16_t *)(const void *)(j.symbols + first * (j.is_wide ? 2u : 1u));
    uint32_t *pairs = (uint32_t *)(void *)to;
    if (j.is_wide) {
        for (uint32_t i = thread; i < n; i += threads) {
            to[i] = from[i];
        }
        return;
    }
#pragma unroll 8
    for (uint32_t i = thread; 2 * i < n; i += threads) {
        uint32_t pair = from[i];
        pairs[i] = (pair & 0xff) | (pair & 0xff00) << 8;
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------------- */

/* One symbol: returns the new state; *emits: the low 16 bits of the old one are a word of the stream. */
TG_DEVICE uint32_t push(uint32_t x, uint4 plan, bool *emits)
{
    *emits = x >= plan.x;
    x = *emits ? x >> 16 : x;
    uint32_t quotient = __umulhi(x, plan.y) >> (plan.w >> 16);
    return x + plan.z + quotient * (plan.w & 0xffffu);
}

/* All rounds of a tile, the last first. Lanes without a state, `lanes` being those with one, do as state 0 does, but emit
 * nothing. */
TG_DEVICE uint32_t push_tile(encode_space *e, uint32_t buffer, uint32_t x, uint32_t state, uint32_t lane_n,
                             uint32_t lanes)
{
    const uint16_t *symbols = e->symbols[buffer] + (state < lane_n ? state : 0);
    uint16_t *words = e->words[buffer] + state;
    uint4 next[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        next[i] = e->plans[symbols[(ROUNDS - BATCH + i) * lane_n]];
    }
#pragma unroll
    for (int first = ROUNDS - BATCH; first >= 0; first -= BATCH) {
        uint4 plans[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            plans[i] = next[i];
        }
#pragma unroll
        for (int i = 0; i < BATCH && first > 0; i++) {
            next[i] = e->plans[symbols[(first - BATCH + i) * lane_n]];
        }
#pragma unroll
        for (int i = BATCH - 1; i >= 0; i--) {
            bool emits = false;
            words[(first + i) * TG_PACK_LANES] = (uint16_t)x;
            x = push(x, plans[i], &emits);
            uint32_t mask = __ballot_sync(TG_ALL_LANES, emits) & lanes;
            if (tg_lane() == 0) {
                e->masks[buffer][first + i][state / TG_WARP] = mask;
            }
        }
    }
    return x;
}

/* The same for the last tile of a chunk, of which `left` symbols are there. */
TG_DEVICE uint32_t push_some(encode_space *e, uint32_t buffer, uint32_t x, uint32_t state, uint32_t lane_n,
                             uint32_t left)
{
    for (int round = ROUNDS - 1; round >= 0; round--) {
        uint32_t i = (uint32_t)round * lane_n + state;
        bool is_there = state < lane_n && i < left, emits = false;
        e->words[buffer][(uint32_t)round * TG_PACK_LANES + state] = (uint16_t)x;
        uint32_t after = push(x, e->plans[is_there ? e->symbols[buffer][i] : 0], &emits);
        x = is_there ? after : x;
        uint32_t mask = __ballot_sync(TG_ALL_LANES, emits && is_there);
        if (tg_lane() == 0) {
            e->masks[buffer][round][state / TG_WARP] = mask;
        }
    }
    return x;
}

/* ---- words -------------------------------------------------------------------------------------------------------------- */

/* Puts the words of a tile before those that are there: `word_n`, up to `end`. A warp takes every HELPERS-th round. Returns the
 * number of words with these. */
TG_DEVICE uint32_t place_words(uint16_t *end, uint32_t word_n, const encode_space *e, uint32_t buffer, uint32_t helper)
{
    uint32_t lane = tg_lane(), below = (1u << lane) - 1;
    uint32_t own = (uint32_t)(__popc(e->masks[buffer][lane][0]) + __popc(e->masks[buffer][lane][1]));
    uint32_t before = tg_sum_before(own);
    word_n += __shfl_sync(TG_ALL_LANES, before + own, 31);
    uint16_t *out = end - word_n;
#pragma unroll 4
    for (uint32_t round = helper; round < ROUNDS; round += HELPERS) {
        uint32_t low = e->masks[buffer][round][0], high = e->masks[buffer][round][1];
        uint32_t at = __shfl_sync(TG_ALL_LANES, before, (int)round);
        uint16_t *here = out + at, *after = here + __popc(low);
        const uint16_t *words = e->words[buffer] + round * TG_PACK_LANES;
        if (low >> lane & 1) {
            here[__popc(low & below)] = words[lane];
        }
        if (high >> lane & 1) {
            after[__popc(high & below)] = words[lane + TG_WARP];
        }
    }
    return word_n;
}

/* ---- a chunk ------------------------------------------------------------------------------------------------------------ */

/* Codes all tiles; returns the state of a coder's lane. The number of words is in shared memory then. */
TG_DEVICE uint32_t encode_tiles(encode_space *e, const encode_job &j)
{
    uint32_t tile_n = (j.count + ROUNDS * j.lane_n - 1) / (ROUNDS * j.lane_n), warp = threadIdx.x / TG_WARP;
    uint32_t x = START, word_n = 0, state = threadIdx.x;
    uint32_t lanes = j.lane_n >= TG_WARP ? TG_ALL_LANES : (1u << j.lane_n) - 1;
    load_tile(e->symbols[0], j, tile_n - 1, threadIdx.x, THREADS);
    __syncthreads();
    for (uint32_t step = 0; step <= tile_n; step++) {
        if (warp * TG_WARP < j.lane_n && warp < CODERS && step < tile_n) {
            uint32_t left = j.count - (tile_n - 1 - step) * ROUNDS * j.lane_n;
            x = left < ROUNDS * j.lane_n ? push_some(e, step % 2, x, state, j.lane_n, left)
                                         : push_tile(e, step % 2, x, state, j.lane_n, lanes);
        } else if (warp >= CODERS) {
            if (step + 1 < tile_n) {
                load_tile(e->symbols[(step + 1) % 2], j, tile_n - 2 - step, threadIdx.x - CODERS * TG_WARP,
                          HELPERS * TG_WARP);
            }
            if (step > 0) {
                word_n = place_words(j.words_end, word_n, e, (step - 1) % 2, warp - CODERS);
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == CODERS * TG_WARP) {
        e->word_n = word_n;
    }
    __syncthreads();
    return x;
}

__global__ static void __launch_bounds__(THREADS) encode_chunks(tg_gpu_pass p, uint8_t *scratch, uint32_t what)
{
    __shared__ encode_space e;
    uint32_t chunk = p.first + blockIdx.x;
    tg_pack_job j;
    if (!tg_pack_job_of(&j, p, scratch, chunk, what) || !j.is_coded || j.unit->symbol == TG_GPU_HUFFMAN) {
        return;
    }
    tg_pack_scratch s = tg_pack_scratch_of(p, scratch, chunk);
    if (s.code->is_coded == 0) {
        return;
    }
    encode_job job = {j.symbols, s.words + j.count, j.count, s.code->lane_n, j.is_wide};
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        e.plans[i] = s.code->plans[i];
    }
    for (uint32_t i = threadIdx.x; i < 2 * ROUNDS * CODERS; i += THREADS) {
        (&e.masks[0][0][0])[i] = 0; /* of states that there are not */
    }
    uint32_t x = encode_tiles(&e, job);
    uint32_t lane_n = job.lane_n, head_len = s.code->head_len, len = head_len + 4 * lane_n + 2 * e.word_n;
    if (len > j.plain_len - 1 - j.lower_len) {
        s.code->is_coded = 0;
        return;
    }
    uint8_t *out = p.space.out[chunk] + p.space.views[chunk].symbols;
    if (threadIdx.x < lane_n) {
        tg_store_bytes(out + 1 + j.lower_len + head_len + 4 * threadIdx.x, x, 4);
    }
    if (threadIdx.x == 0) {
        out[0] = (uint8_t)s.code->form;
        s.code->word_n = e.word_n;
        s.code->len = 1 + len;
    }
}

void tg_pack_rans_encode(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what)
{
    TG_LAUNCH(encode_chunks, p->chunk_n, THREADS, p->stream, *p, scratch, what);
}
