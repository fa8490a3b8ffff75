/* The rANS encoder (pack/rans_encode.c) on the GPU: a block a chunk.
 *
 * The states of a stream are the only parallelism that the format offers in a chunk, so what counts is how long one round, a
 * symbol for each state, takes. Two warps do nothing but that, a state a lane: they leave each round's words, and which of them
 * are emitted, in shared memory. Other warps put the words of the tile of rounds before into their order, and load the
 * symbols of the tile after it. A stream is coded from its end, and its words are found from their end on. */
#include "exec/cuda/pack.h"

enum { CODERS = 2, HELPERS = 4, THREADS = (CODERS + HELPERS) * 32, ROUNDS = 32 /* of a tile */, BATCH = 8 };
enum { TILE = ROUNDS * TG_PACK_LANES, START = 1 << 15, HELPED = ROUNDS / HELPERS /* rounds of a helper */ };
enum { VECTORS = 2 * TILE / 16 + 1, LOADS = (VECTORS + HELPERS * 32 - 1) / (HELPERS * 32) /* of a helping thread */ };

typedef struct encode_space {
    uint4 plans[TG_PACK_BASE];
    uint4 symbols[2][VECTORS]; /* as they are in memory; the first is where its address is within 16 */
    uint16_t words[2][TILE];   /* of a round: TG_PACK_LANES, emitted or not */
    uint32_t masks[2][ROUNDS][CODERS];
    uint32_t word_n;
} encode_space;

/* What does not change while a chunk is coded. */
typedef struct encode_job {
    const uint8_t *symbols;
    uint16_t *words_end;
    uint32_t count, lane_n;
} encode_job;

/* ---- loading ------------------------------------------------------------------------------------------------------------ */

/* The vectors of a tile that one of the helpers' threads loads. They are asked for early and stored late. */
typedef struct tile_load {
    uint4 vectors[LOADS];
} tile_load;

template <class Symbol> TG_DEVICE const uint8_t *tile_at(const encode_job &j, uint32_t tile)
{
    return j.symbols + (uint64_t)tile * ROUNDS * j.lane_n * sizeof(Symbol);
}

/* Vectors that hold symbols of a tile; up to 15 bytes before and after these are read. */
template <class Symbol> TG_DEVICE uint32_t vectors_of(const encode_job &j, uint32_t tile)
{
    uint32_t n = min(ROUNDS * j.lane_n, j.count - tile * ROUNDS * j.lane_n);
    return (tg_place_of(tile_at<Symbol>(j, tile)) + n * (uint32_t)sizeof(Symbol) + 15) / 16;
}

template <class Symbol> TG_DEVICE void load_tile(tile_load *l, const encode_job &j, uint32_t tile, uint32_t thread)
{
    const uint8_t *at = tile_at<Symbol>(j, tile);
    const uint4 *from = (const uint4 *)(const void *)(at - tg_place_of(at));
    uint32_t n = vectors_of<Symbol>(j, tile);
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t v = thread + i * HELPERS * TG_WARP;
        if (v < n) {
            l->vectors[i] = from[v];
        }
    }
}

template <class Symbol>
TG_DEVICE void store_tile(uint4 *to, const tile_load &l, const encode_job &j, uint32_t tile, uint32_t thread)
{
    uint32_t n = vectors_of<Symbol>(j, tile);
#pragma unroll
    for (uint32_t i = 0; i < LOADS; i++) {
        uint32_t v = thread + i * HELPERS * TG_WARP;
        if (v < n) {
            to[v] = l.vectors[i];
        }
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
 * nothing. LANES: the number of states if it is the most, which then is no variable; else 0. */
template <class Symbol, uint32_t LANES>
TG_DEVICE uint32_t push_tile(encode_space *e, uint32_t buffer, const Symbol *symbols, uint32_t x, uint32_t state,
                             uint32_t state_n, uint32_t lanes)
{
    const uint32_t lane_n = LANES != 0 ? LANES : state_n;
    uint16_t *words = e->words[buffer] + state;
    uint4 next[BATCH];
    symbols += state < lane_n ? state : 0;
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
template <class Symbol>
TG_DEVICE uint32_t push_some(encode_space *e, uint32_t buffer, const Symbol *symbols, uint32_t x, uint32_t state,
                             uint32_t lane_n, uint32_t left)
{
    for (int round = ROUNDS - 1; round >= 0; round--) {
        uint32_t i = (uint32_t)round * lane_n + state;
        bool is_there = state < lane_n && i < left, emits = false;
        e->words[buffer][(uint32_t)round * TG_PACK_LANES + state] = (uint16_t)x;
        uint32_t after = push(x, e->plans[is_there ? symbols[i] : 0], &emits);
        x = is_there ? after : x;
        uint32_t mask = __ballot_sync(TG_ALL_LANES, emits && is_there);
        if (tg_lane() == 0) {
            e->masks[buffer][round][state / TG_WARP] = mask;
        }
    }
    return x;
}

/* ---- words -------------------------------------------------------------------------------------------------------------- */

/* Puts the words of a tile before those that are there: `word_n`, up to `end`. Each helper takes some of the rounds; it reads all
 * of them before it writes. Returns the number of words with these. */
TG_DEVICE uint32_t place_words(uint16_t *end, uint32_t word_n, const encode_space *e, uint32_t buffer, uint32_t helper)
{
    uint32_t lane = tg_lane(), below = (1u << lane) - 1, at[HELPED], masks[HELPED][CODERS];
    uint16_t words[HELPED][CODERS];
    uint32_t own = (uint32_t)(__popc(e->masks[buffer][lane][0]) + __popc(e->masks[buffer][lane][1]));
    uint32_t before = tg_sum_before(own);
    word_n += __shfl_sync(TG_ALL_LANES, before + own, 31);
#pragma unroll
    for (uint32_t i = 0; i < HELPED; i++) {
        uint32_t round = helper * HELPED + i;
        at[i] = __shfl_sync(TG_ALL_LANES, before, (int)round);
        for (uint32_t half = 0; half < CODERS; half++) {
            masks[i][half] = e->masks[buffer][round][half];
            words[i][half] = e->words[buffer][round * TG_PACK_LANES + half * TG_WARP + lane];
        }
    }
    uint16_t *out = end - word_n;
#pragma unroll
    for (uint32_t i = 0; i < HELPED; i++) {
        uint32_t low = masks[i][0], high = masks[i][1];
        if (low >> lane & 1) {
            out[at[i] + (uint32_t)__popc(low & below)] = words[i][0];
        }
        if (high >> lane & 1) {
            out[at[i] + (uint32_t)__popc(low) + (uint32_t)__popc(high & below)] = words[i][1];
        }
    }
    return word_n;
}

/* ---- a chunk ------------------------------------------------------------------------------------------------------------ */

/* What a coder's warp does with a tile. */
template <class Symbol>
TG_DEVICE uint32_t push_any(encode_space *e, const encode_job &j, uint32_t buffer, uint32_t tile, uint32_t x)
{
    uint32_t left = j.count - tile * ROUNDS * j.lane_n, state = threadIdx.x;
    uint32_t lanes = j.lane_n >= TG_WARP ? TG_ALL_LANES : (1u << j.lane_n) - 1;
    const uint8_t *staged = (const uint8_t *)e->symbols[buffer] + tg_place_of(tile_at<Symbol>(j, tile));
    const Symbol *symbols = (const Symbol *)(const void *)staged;
    if (left < ROUNDS * j.lane_n) {
        return push_some(e, buffer, symbols, x, state, j.lane_n, left);
    }
    return j.lane_n == TG_PACK_LANES ? push_tile<Symbol, TG_PACK_LANES>(e, buffer, symbols, x, state, j.lane_n, lanes)
                                     : push_tile<Symbol, 0>(e, buffer, symbols, x, state, j.lane_n, lanes);
}

/* Codes all tiles; returns the state of a coder's lane. The number of words is in shared memory then. */
template <class Symbol> TG_DEVICE uint32_t encode_tiles(encode_space *e, const encode_job &j)
{
    uint32_t tile_n = (j.count + ROUNDS * j.lane_n - 1) / (ROUNDS * j.lane_n), warp = threadIdx.x / TG_WARP;
    uint32_t x = START, word_n = 0, thread = threadIdx.x - CODERS * TG_WARP;
    tile_load load;
    if (warp >= CODERS) {
        load_tile<Symbol>(&load, j, tile_n - 1, thread);
        store_tile<Symbol>(e->symbols[0], load, j, tile_n - 1, thread);
    }
    __syncthreads();
    for (uint32_t step = 0; step <= tile_n; step++) {
        if (warp >= CODERS) {
            if (step + 1 < tile_n) {
                load_tile<Symbol>(&load, j, tile_n - 2 - step, thread);
            }
            if (step > 0) {
                word_n = place_words(j.words_end, word_n, e, (step - 1) % 2, warp - CODERS);
            }
            if (step + 1 < tile_n) {
                store_tile<Symbol>(e->symbols[(step + 1) % 2], load, j, tile_n - 2 - step, thread);
            }
        } else if (warp * TG_WARP < j.lane_n && step < tile_n) {
            x = push_any<Symbol>(e, j, step % 2, tile_n - 1 - step, x);
        }
        __syncthreads();
    }
    if (thread == 0) {
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
    encode_job job = {j.symbols, s.words + j.count, j.count, s.code->lane_n};
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        e.plans[i] = s.code->plans[i];
    }
    for (uint32_t i = threadIdx.x; i < 2 * ROUNDS * CODERS; i += THREADS) {
        (&e.masks[0][0][0])[i] = 0; /* of states that there are not */
    }
    uint32_t x = j.is_wide ? encode_tiles<uint16_t>(&e, job) : encode_tiles<uint8_t>(&e, job);
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
