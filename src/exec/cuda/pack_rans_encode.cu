/* The rANS encoder (pack/rans_encode.c) on the GPU: a warp a segment, a lane a state, so that no warp waits for another. A segment is
 * coded from its end. Symbols are loaded many rounds before they are needed; words go to scratch, from the end of their space on,
 * and wait there until the lengths of all segments are known. */
#include "exec/cuda/pack.h"

enum { WARPS = 4, THREADS = WARPS * 32, BLOCKS = 8 /* of a chunk */, BATCH = 16 /* rounds */, FEW = 4 };

/* What the warps of a block share, and symbols of each for a batch of rounds. */
typedef struct encode_space {
    uint2 plans[TG_PACK_BASE];
    uint4 symbols[WARPS][BATCH * TG_PACK_LANES / 16];
} encode_space;
static_assert(BATCH * TG_PACK_LANES / 16 == TG_PACK_LANES, "a lane loads a vector of symbols");

/* What does not change while a segment is coded. */
typedef struct encode_job {
    uint16_t *end;      /* of its words, in device memory */
    const uint2 *plans; /* in shared memory */
    uint32_t n, lane_n; /* symbols, states */
    uint32_t limit;     /* 2^17 for each unit of the sum of frequencies */
} encode_job;

/* One symbol: returns the new state. *emits: *word, its low 16 bits, is a word of the stream. What is held of a state is one more than it
 * is, which is what the inverse is multiplied by (pack_rans_table.cu). */
TG_DEVICE uint32_t push(uint32_t x, uint2 plan, uint32_t limit, uint32_t *word, bool *emits)
{
    uint32_t rest = plan.y >> 18, start = plan.y >> 4 & 0x3fff;
    *emits = x > limit - (rest << 17);
    *word = x + 0xffff;
    x = *emits ? *word >> 16 : x;
    uint32_t quotient = __umulhi(x, plan.x) >> (plan.y & 15);
    return x + start + quotient * rest;
}

/* The words of a round, of 16 bits, in the order of lanes, before the word_n that are there; returns how many there are then. */
TG_DEVICE uint32_t emit(uint16_t *end, uint32_t word_n, uint32_t word, bool emits)
{
    uint32_t mask = __ballot_sync(TG_ALL_LANES, emits), from_here = TG_ALL_LANES << tg_lane();
    TG_STORE_BEFORE(emits, end, word_n + (uint32_t)__popc(mask & from_here), word);
    return word_n + (uint32_t)__popc(mask);
}

/* The symbols of a lane in rounds [first, first + FEW); 0 where there are none. */
template <class Symbol, bool IS_WHOLE>
TG_DEVICE void load_few(uint32_t symbols[FEW], const Symbol *from, const encode_job &j, int first)
{
#pragma unroll
    for (int i = 0; i < FEW; i++) {
        uint32_t at = (uint32_t)(first + i) * (IS_WHOLE ? TG_WARP : j.lane_n) + tg_lane();
        symbols[i] = IS_WHOLE || (tg_lane() < j.lane_n && at < j.n) ? from[at] : 0;
    }
}

/* Rounds [first, first + N), the last one first. Words go out as soon as a round has them: a state does not wait for that. */
template <int N, bool IS_WHOLE>
TG_DEVICE uint32_t push_batch(uint32_t *state, uint32_t word_n, const uint32_t symbols[N], const encode_job &j,
                              int first)
{
    uint32_t x = *state;
    uint2 next = j.plans[symbols[N - 1]];
    TG_UNROLL
    for (int i = N - 1; i >= 0; i--) {
        uint2 plan = next;
        if (i > 0) {
            next = j.plans[symbols[i - 1]]; /* does not depend on the state */
        }
        bool emits = false, is_there = true;
        uint32_t word = 0, after = push(x, plan, j.limit, &word, &emits);
        if (!IS_WHOLE) {
            is_there = tg_lane() < j.lane_n && (uint32_t)(first + i) * j.lane_n + tg_lane() < j.n;
        }
        word_n = emit(j.end, word_n, word, emits && is_there);
        x = is_there ? after : x;
    }
    *state = x;
    return word_n;
}

/* Rounds [0, hi) of bytes, whole batches in which every lane has a symbol, the last one first. A lane loads a vector of a batch two
 * batches before it is coded; shared memory hands symbols to their lanes. */
TG_DEVICE uint32_t push_whole(uint32_t *x, uint32_t word_n, const uint8_t *symbols, uint4 *staged, const encode_job &j,
                              int hi)
{
    enum { LEN = BATCH * TG_PACK_LANES }; /* bytes of a batch */
    const uint8_t *from = symbols + 16 * tg_lane(), *own = (const uint8_t *)(const void *)staged + tg_lane();
    int batch = hi / BATCH - 1;
    uint4 held = batch >= 0 ? tg_load_vector(from + batch * LEN) : make_uint4(0, 0, 0, 0);
    uint4 next = batch >= 1 ? tg_load_vector(from + (batch - 1) * LEN) : held;
    TG_ROLL
    for (; batch >= 0; batch--) {
        uint32_t bytes[BATCH];
        __syncwarp();
        staged[tg_lane()] = held;
        held = next;
        if (batch >= 2) {
            next = tg_load_vector(from + (batch - 2) * LEN);
        }
        __syncwarp();
        TG_UNROLL
        for (int i = 0; i < BATCH; i++) {
            bytes[i] = own[i * TG_PACK_LANES];
        }
        word_n = push_batch<BATCH, true>(x, word_n, bytes, j, 0);
    }
    return word_n;
}

/* Rounds [lo, hi), a few at a time, the last ones first. Some are loaded while those after them are coded. */
template <class Symbol, bool IS_WHOLE>
TG_DEVICE uint32_t push_rounds(uint32_t *x, uint32_t word_n, const Symbol *symbols, const encode_job &j, int lo, int hi)
{
    uint32_t held[FEW] = {}, next[FEW] = {};
    if (lo < hi) {
        load_few<Symbol, IS_WHOLE>(held, symbols, j, hi - FEW);
    }
    TG_ROLL
    for (int first = hi - FEW; first >= lo; first -= FEW) {
        if (first > lo) {
            load_few<Symbol, IS_WHOLE>(next, symbols, j, first - FEW);
        }
        word_n = push_batch<FEW, IS_WHOLE>(x, word_n, held, j, first);
        TG_UNROLL
        for (int i = 0; i < FEW; i++) {
            held[i] = next[i];
        }
    }
    return word_n;
}

/* The same of symbols of two bytes. */
TG_DEVICE uint32_t push_whole(uint32_t *x, uint32_t word_n, const uint16_t *symbols, uint4 *staged, const encode_job &j,
                              int whole)
{
    (void)staged;
    return push_rounds<uint16_t, true>(x, word_n, symbols, j, 0, whole);
}

/* Codes a segment, with its states before its words; returns how many words all of that is. */
template <class Symbol>
TG_DEVICE uint32_t encode_segment(const Symbol *symbols, uint4 *staged, const encode_job &j, uint32_t bits)
{
    uint32_t x = (2u << bits) + 1;
    int rounds = (int)((j.n + j.lane_n - 1) / j.lane_n), all = (rounds + FEW - 1) / FEW * FEW;
    int whole = j.lane_n == TG_WARP ? (int)(j.n / TG_WARP) / BATCH * BATCH : 0;
    uint32_t word_n = push_rounds<Symbol, false>(&x, 0, symbols, j, whole, all);
    word_n = push_whole(&x, word_n, symbols, staged, j, whole);
    x--;
    bool is_long = x >> 16 != 0 && tg_lane() < j.lane_n;
    word_n = emit(j.end, word_n, x, is_long) + j.lane_n;
    if (tg_lane() < j.lane_n) {
        (j.end - word_n)[tg_lane()] = (uint16_t)(is_long ? x >> 16 : x);
    }
    return word_n;
}

/* Six blocks of a multiprocessor: those of 25 M elements run at once on 132. */
__global__ static void __launch_bounds__(THREADS, 6) encode_segments(tg_gpu_pass p, uint8_t *scratch, uint32_t what)
{
    __shared__ encode_space space;
    /* Blocks that have no segment come last, so that the others are spread over all multiprocessors. */
    uint32_t chunk = p.first + blockIdx.x % p.chunk_n, part = blockIdx.x / p.chunk_n * WARPS;
    uint32_t warp = threadIdx.x / TG_WARP;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_job_of(&j, p, scratch, chunk, what) || !j.is_coded || j.unit->symbol == TG_GPU_HUFFMAN) {
        return;
    }
    tg_pack_scratch s = tg_pack_scratch_of(p, scratch, chunk);
    tg_pack_code &c = *s.code;
    if (c.is_coded == 0 || part >= c.part_n) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        space.plans[i] = c.pairs[i];
    }
    __syncthreads();
    for (part += warp; part < c.part_n; part += BLOCKS * WARPS) {
        uint32_t from = part * c.each;
        encode_job job = {tg_pack_segment_end(s, c, j.count, part), space.plans, min(c.each, j.count - from), c.lane_n,
                          1u << (17 + c.bits)};
        uint4 *staged = space.symbols[warp];
        uint32_t word_n = j.is_wide ? encode_segment((const uint16_t *)(const void *)j.symbols + from, staged, job, c.bits)
                                    : encode_segment(j.symbols + from, staged, job, c.bits);
        if (tg_lane() == 0) {
            c.part_len[part] = word_n * 2;
        }
    }
}

void tg_pack_rans_encode(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what)
{
    TG_LAUNCH_EARLY(encode_segments, p->overlaps, p->chunk_n * BLOCKS, THREADS, p->stream, *p, scratch, what);
}
