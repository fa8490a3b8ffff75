/* The rANS decoder (pack/rans_decode.c) on the GPU: a block a chunk. It validates everything that it reads.
 *
 * One warp takes symbols, lane l with states 2l and 2l + 1. A state that has become too small takes the next word, and the next
 * symbol of that state depends on nothing but the low bits of that word. So other warps look up the symbols of all words
 * before they are needed: they keep a ring of words, each with its slot. Thus a round waits for one look-up, not for two: that of
 * the slot and that of the word go on at the same time. The other warps also write the symbols of the tile of rounds before. */
#include "exec/cuda/pack.h"

enum { WARPS = 8, THREADS = WARPS * 32, HELPERS = THREADS - 32, ROUNDS = 16 /* of a tile */ };
enum { TILE = ROUNDS * TG_PACK_LANES, RING = 2 * TILE, START = 1 << 15, BITS_MIN = 8, BITS_MAX = 14 };
enum { WORDS = (TILE + HELPERS - 1) / HELPERS /* the most of a thread and a tile */, AHEAD = 2 * RING /* bytes */ };

/* Tables, with the slots of a state's low bits. Narrow ones, for up to 12 bits and bytes as symbols, have whole slots: from bit 0
 * frequency - 1, from bit 12 the offset, from bit 24 the symbol. Wide ones have the low 8 bits of the symbol, those from `upper` on
 * being of symbols from 256 on; `symbols` then has its frequency and, from bit 16 on, its start. */
typedef struct decode_space {
    uint32_t slots[1 << 12]; /* or 2^14 bytes */
    uint2 ring[RING + TILE]; /* its beginning stands again after its end, so that a tile does not wrap around */
    uint16_t out[2][TILE];
    uint32_t symbols[TG_PACK_BASE];
    uint32_t at[2];    /* words that were taken before a tile, in turn */
    uint32_t head_len; /* of the frequencies; 0: they are damaged */
    uint32_t upper;
} decode_space;

/* What does not change while a chunk is decoded. */
typedef struct decode_job {
    const uint8_t *words;
    uint8_t *out;
    uint32_t word_n, count, lane_n, bits, base;
} decode_job;

/* A slot: what a state's low bits mean. */
typedef struct slot {
    uint32_t frequency, offset, symbol;
} slot;

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

/* 57 bits and more from bit number `bit` on, with zeros after the last of the `len` bytes. */
TG_DEVICE uint64_t bits_from(const uint8_t *bytes, uint64_t len, uint64_t bit)
{
    uint64_t word = 0, at = bit / 8;
    for (uint32_t i = 0; i < 8 && at + i < len; i++) {
        word |= (uint64_t)bytes[at + i] << 8 * i;
    }
    return word >> bit % 8;
}

/* One thread reads the frequencies of all symbols. Returns the bytes that they take, or 0 if they are damaged. */
TG_DEVICE uint32_t read_frequencies(uint32_t *frequency, const uint8_t *bytes, uint64_t len, uint32_t base,
                                    uint32_t bits)
{
    uint64_t bit = 0, bit_n = len * 8, total = 1ull << bits, sum = 0;
    for (uint32_t s = 0; s + 1 < base; s++) {
        uint64_t word = bits_from(bytes, len, bit);
        uint32_t b = (uint32_t)__ffsll((long long)(~word | 1ull << (BITS_MAX + 1))) - 1;
        if (b > BITS_MAX || bit_n - bit < 1 + 2 * (uint64_t)b) {
            return 0;
        }
        uint32_t number = 1u << b | (uint32_t)(word >> (b + 1) & ((1u << b) - 1));
        bit += 1 + 2 * (uint64_t)b;
        frequency[s] = number - 1;
        sum += number - 1;
    }
    for (; bit % 8 != 0; bit++) {
        if (bytes[bit / 8] >> bit % 8 & 1) {
            return 0;
        }
    }
    frequency[base - 1] = (uint32_t)(total - sum);
    return sum <= total ? (uint32_t)(bit / 8) : 0;
}

/* A warp adds to each frequency its start, from bit 16 on; what follows the last symbol starts at the end. */
TG_DEVICE void find_starts(decode_space *d, uint32_t base, uint32_t bits)
{
    const uint32_t owned = TG_PACK_BASE / TG_WARP;
    uint32_t own = 0;
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i;
        own += s < base ? d->symbols[s] : 0;
    }
    uint32_t start = tg_sum_before(own);
    if (tg_lane() * owned == 256) {
        d->upper = base > 256 ? start : 1u << bits;
    }
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i, f = s < base ? d->symbols[s] : 0;
        d->symbols[s] = f | start << 16;
        start += f;
    }
}

/* The symbol of a slot: the last one that does not start after it. */
TG_DEVICE uint32_t symbol_of(const decode_space *d, uint32_t low)
{
    uint32_t symbol = 0;
    for (uint32_t step = TG_PACK_BASE / 2; step > 0; step /= 2) {
        symbol += d->symbols[symbol + step] >> 16 <= low ? step : 0;
    }
    return symbol;
}

template <bool IS_WIDE> TG_DEVICE void make_slots(decode_space *d, uint32_t bits)
{
    for (uint32_t low = threadIdx.x; low < 1u << bits; low += THREADS) {
        uint32_t symbol = symbol_of(d, low), entry = d->symbols[symbol];
        if (IS_WIDE) {
            ((uint8_t *)d->slots)[low] = (uint8_t)symbol;
        } else {
            d->slots[low] = (symbol & 0xff) << 24 | (low - (entry >> 16)) << 12 | ((entry & 0xffff) - 1);
        }
    }
}

/* ---- slots -------------------------------------------------------------------------------------------------------------- */

/* A slot in two words. Narrow: 0 and the slot. Wide: the symbol from bit 16 on; frequency and, from bit 16 on, the offset. In the
 * ring, the first word also has the bits of its word that are above the slot's. */
template <bool IS_WIDE> TG_DEVICE uint2 look_up(const decode_space *d, uint32_t low)
{
    if (!IS_WIDE) {
        return make_uint2(0, d->slots[low]);
    }
    uint32_t symbol = ((const uint8_t *)d->slots)[low] + (low >= d->upper ? 256u : 0u), entry = d->symbols[symbol];
    return make_uint2(symbol << 16, (entry & 0xffff) | (low - (entry >> 16)) << 16);
}

template <bool IS_WIDE> TG_DEVICE uint32_t symbol_in(uint2 held)
{
    return IS_WIDE ? held.x >> 16 : held.y >> 24;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------------- */

/* Two states of a lane. A state is kept as what its low bits mean, and the bits above them, which is all that the next symbol
 * needs. */
typedef struct pair_of_states {
    uint32_t high[2];
    uint2 held[2];
} pair_of_states;

template <bool IS_WIDE>
TG_DEVICE void set_state(pair_of_states *s, const decode_space *d, int i, uint32_t x, uint32_t bits)
{
    s->high[i] = x >> bits;
    s->held[i] = look_up<IS_WIDE>(d, x & ((1u << bits) - 1));
}

template <bool IS_WIDE>
TG_DEVICE uint32_t state_of(const pair_of_states &s, const decode_space *d, int i, uint32_t bits)
{
    uint32_t offset = IS_WIDE ? s.held[i].y >> 16 : s.held[i].y >> 12 & 0xfff;
    return s.high[i] << bits | ((d->symbols[symbol_in<IS_WIDE>(s.held[i])] >> 16) + offset);
}

/* The state after its symbol is taken; it may be too small. */
template <bool IS_WIDE> TG_DEVICE uint32_t take(uint32_t high, uint2 held)
{
    if (IS_WIDE) {
        return (held.y & 0xffff) * high + (held.y >> 16);
    }
    return (held.y & 0xfff) * high + (high + (held.y >> 12 & 0xfff));
}

/* One round. `is_there`: which of the two states take a symbol. Returns the words that were taken. */
template <bool IS_WIDE>
TG_DEVICE uint32_t take_round(pair_of_states *s, const decode_space *d, uint32_t bits, uint32_t at,
                              const bool is_there[2])
{
    uint32_t mask = (1u << bits) - 1, below = (1u << tg_lane()) - 1, x[2], votes[2];
    bool lacks[2];
    uint2 own[2];
    for (int i = 0; i < 2; i++) {
        x[i] = take<IS_WIDE>(s->high[i], s->held[i]);
        lacks[i] = x[i] < START && is_there[i];
        votes[i] = __ballot_sync(TG_ALL_LANES, lacks[i]);
        own[i] = look_up<IS_WIDE>(d, x[i] & mask);
    }
    uint32_t first = at + (uint32_t)(__popc(votes[0] & below) + __popc(votes[1] & below));
    uint2 words[2] = {d->ring[first], d->ring[first + (lacks[0] ? 1 : 0)]};
    for (int i = 0; i < 2; i++) {
        uint32_t filled = (x[i] << (16 - bits)) + (IS_WIDE ? words[i].x & 0xffff : words[i].x);
        s->high[i] = lacks[i] ? filled : is_there[i] ? x[i] >> bits : s->high[i];
        s->held[i].x = !IS_WIDE ? 0 : lacks[i] ? words[i].x : is_there[i] ? own[i].x : s->held[i].x;
        s->held[i].y = lacks[i] ? words[i].y : is_there[i] ? own[i].y : s->held[i].y;
    }
    return (uint32_t)(__popc(votes[0]) + __popc(votes[1]));
}

/* The rounds of a tile of which `left` symbols are there, from place `at` of the ring on; returns the place after it. */
template <bool IS_WIDE>
TG_DEVICE uint32_t take_tile(pair_of_states *s, decode_space *d, const decode_job &j, uint32_t buffer, uint32_t at,
                             uint32_t left)
{
    uint32_t state = 2 * tg_lane();
    if (j.lane_n == TG_PACK_LANES && left >= TILE) {
        const bool both[2] = {true, true};
        uint32_t *pairs = (uint32_t *)(void *)d->out[buffer] + tg_lane();
#pragma unroll 4
        for (uint32_t round = 0; round < ROUNDS; round++) {
            pairs[round * TG_WARP] = symbol_in<IS_WIDE>(s->held[0]) | symbol_in<IS_WIDE>(s->held[1]) << 16;
            at += take_round<IS_WIDE>(s, d, j.bits, at, both);
        }
        return at;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = round * j.lane_n + state;
        const bool some[2] = {state < j.lane_n && i < left, state + 1 < j.lane_n && i + 1 < left};
        for (uint32_t k = 0; k < 2; k++) {
            if (some[k]) {
                d->out[buffer][i + k] = (uint16_t)symbol_in<IS_WIDE>(s->held[k]);
            }
        }
        at += take_round<IS_WIDE>(s, d, j.bits, at, some);
    }
    return at;
}

/* ---- helpers --------------------------------------------------------------------------------------------------------------- */

/* Fills the ring with words [from, to), at most TILE of them, zeros after the last. All are loaded before they are used. */
template <bool IS_WIDE>
TG_DEVICE void fill_ring(decode_space *d, const decode_job &j, uint32_t from, uint32_t to, uint32_t thread)
{
    uint32_t mask = (1u << j.bits) - 1, low[WORDS], high[WORDS];
#pragma unroll
    for (uint32_t k = 0; k < WORDS; k++) {
        uint32_t i = from + thread + k * HELPERS;
        bool is_there = i < to && i < j.word_n;
        low[k] = is_there ? j.words[2 * (uint64_t)i] : 0;
        high[k] = is_there ? j.words[2 * (uint64_t)i + 1] : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < WORDS; k++) {
        uint32_t i = from + thread + k * HELPERS, word = low[k] | high[k] << 8;
        if (i < to) {
            uint2 held = look_up<IS_WIDE>(d, word & mask), entry = make_uint2(held.x | word >> j.bits, held.y);
            d->ring[i % RING] = entry;
            if (i % RING < TILE) {
                d->ring[i % RING + RING] = entry;
            }
        }
    }
}

/* Asks for the words that are needed soon, so that they wait nearby. */
TG_DEVICE void prefetch_words(const decode_job &j, uint32_t from, uint32_t thread)
{
    enum { LINE = 128, LINES = 2 * TILE / LINE };
    uint64_t at = 2 * (uint64_t)from + AHEAD + thread * LINE;
    if (thread < LINES && at < 2 * (uint64_t)j.word_n) {
        TG_PREFETCH(j.words + at);
    }
}

/* Writes the symbols of a tile, as bytes or pairs of bytes. Their place is even. */
TG_DEVICE void write_tile(const decode_job &j, const uint16_t *symbols, uint32_t tile, uint32_t thread)
{
    uint32_t first = tile * ROUNDS * j.lane_n, n = min(ROUNDS * j.lane_n, j.count - first);
    if (j.base > 256) {
        uint16_t *to = (uint16_t *)(void *)j.out + first;
        for (uint32_t i = thread; i < n; i += HELPERS) {
            to[i] = symbols[i];
        }
        return;
    }
    uint16_t *to = (uint16_t *)(void *)(j.out + first);
    const uint32_t *pairs = (const uint32_t *)(const void *)symbols;
    for (uint32_t i = thread; i < n / 2; i += HELPERS) {
        to[i] = (uint16_t)((pairs[i] & 0xff) | pairs[i] >> 8);
    }
    if (thread == 0 && n % 2 == 1) {
        j.out[first + n - 1] = (uint8_t)symbols[n - 1];
    }
}

/* ---- a chunk -------------------------------------------------------------------------------------------------------------------- */

/* Decodes all tiles. Returns, in the first warp, whether this lane's states end as they must. */
template <bool IS_WIDE> TG_DEVICE bool decode_tiles(decode_space *d, const decode_job &j, const uint32_t starts[2])
{
    uint32_t tile_len = ROUNDS * j.lane_n, tile_n = (j.count + tile_len - 1) / tile_len, at = 0, filled = RING;
    uint32_t thread = threadIdx.x - TG_WARP, state = 2 * tg_lane();
    make_slots<IS_WIDE>(d, j.bits);
    __syncthreads();
    for (uint32_t from = 0; from < RING && threadIdx.x >= TG_WARP; from += TILE) {
        fill_ring<IS_WIDE>(d, j, from, from + TILE, thread);
    }
    pair_of_states s;
    for (int i = 0; i < 2; i++) {
        set_state<IS_WIDE>(&s, d, i, starts[i], j.bits);
    }
    if (threadIdx.x == 0) {
        d->at[0] = 0;
    }
    __syncthreads();
    for (uint32_t tile = 0; tile <= tile_n; tile++) {
        uint32_t taken = d->at[tile % 2];
        if (threadIdx.x < TG_WARP) {
            if (tile < tile_n) {
                uint32_t from = taken % RING,
                         to = take_tile<IS_WIDE>(&s, d, j, tile % 2, from, j.count - tile * tile_len);
                at = taken + (to - from);
                d->at[(tile + 1) % 2] = at;
            }
        } else {
            prefetch_words(j, taken, thread);
            fill_ring<IS_WIDE>(d, j, filled, taken + RING, thread);
            filled = taken + RING;
            if (tile > 0) {
                write_tile(j, d->out[(tile - 1) % 2], tile - 1, thread);
            }
        }
        __syncthreads();
    }
    bool ends = at == j.word_n;
    for (int i = 0; i < 2; i++) {
        ends = ends && (state + (uint32_t)i >= j.lane_n || state_of<IS_WIDE>(s, d, i, j.bits) == START);
    }
    return ends;
}

/* Reads form, frequencies and states; returns whether they are sound, the same for all threads. */
TG_DEVICE bool read_head(decode_space *d, decode_job *j, uint32_t states[2], const uint8_t *bytes, uint64_t len,
                         uint32_t form)
{
    j->bits = form >> 4;
    j->lane_n = 1u << (form & 15);
    bool are_lanes = j->lane_n == 1 || j->lane_n == 4 || (j->lane_n >= 16 && j->lane_n <= TG_PACK_LANES);
    if (j->bits < BITS_MIN || j->bits > BITS_MAX || !are_lanes) {
        return false;
    }
    if (threadIdx.x == 0) {
        d->head_len = read_frequencies(d->symbols, bytes, len, j->base, j->bits);
    }
    __syncthreads();
    uint64_t head_len = d->head_len;
    if (head_len == 0 || len - head_len < 4 * (uint64_t)j->lane_n || (len - head_len) % 2 != 0) {
        return false;
    }
    if (threadIdx.x < TG_WARP) {
        find_starts(d, j->base, j->bits);
    }
    bool sound = true;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t state = 2 * tg_lane() + i;
        states[i] = state < j->lane_n ? tg_load32(bytes + head_len + 4 * state) : (uint32_t)START;
        sound = sound && states[i] >= START && states[i] >> 31 == 0;
    }
    j->words = bytes + head_len + 4 * j->lane_n;
    j->word_n = (uint32_t)((len - head_len - 4 * (uint64_t)j->lane_n) / 2);
    return __syncthreads_and(sound);
}

__global__ static void __launch_bounds__(THREADS)
    decode_chunks(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch, uint32_t what)
{
    __shared__ decode_space d;
    uint32_t chunk = p.first + blockIdx.x;
    tg_pack_job j;
    const tg_view *v = &p.space.views[chunk];
    if (!tg_pack_job_of(&j, p, scratch, chunk, what) || !j.is_coded || j.unit->symbol == TG_GPU_HUFFMAN ||
        v->is_joint) {
        return;
    }
    const uint8_t *bytes = body + v->symbols;
    uint64_t len = v->indices - v->symbols;
    if (len == 0 || bytes[0] == 0) { /* the plain form */
        return;
    }
    uint64_t before = 1 + (uint64_t)j.lower_len;
    decode_job job = {nullptr, (uint8_t *)j.symbols, 0, j.count, 0, 0, j.base};
    uint32_t s[2];
    bool sound = len >= before && read_head(&d, &job, s, bytes + before, len - before, bytes[0]);
    if (sound) {
        bool is_wide = job.bits > 12 || job.base > 256;
        sound = is_wide ? decode_tiles<true>(&d, job, s) : decode_tiles<false>(&d, job, s);
        sound = sound || threadIdx.x >= TG_WARP;
    }
    if (!sound) {
        tg_refuse_chunk(p, chunk);
    }
}

void tg_pack_rans_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch, uint32_t what)
{
    TG_LAUNCH(decode_chunks, p->chunk_n, THREADS, p->stream, *p, body, scratch, what);
}
