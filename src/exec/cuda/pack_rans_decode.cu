/* The rANS decoder (pack/rans_decode.c) on the GPU: a warp a segment, a lane a state. It validates everything that it reads.
 *
 * A block has some of the segments of a chunk, and makes a table for them. A round takes a symbol out of each state; which states
 * then need a word is known by a vote, and so is which word each of them takes. Words wait in shared memory: each warp has a ring,
 * which it fills from registers, which it has loaded long before.
 *
 * A warp waits for one symbol after the other, so the chain of instructions from a state to the next one is what takes time. The slot of a
 * state that takes a word depends on the word alone: words in the ring have theirs with them. So the slot of the state as it is is looked up
 * while the vote is taken, and a state that takes a word has its slot as soon as it has the word. */
#include "exec/cuda/pack.h"

enum { WARPS = 4, THREADS = WARPS * 32, BLOCKS = 8 /* of a chunk */, ROUNDS = 4 /* between two looks at the ring */ };
enum { FILL = ROUNDS * TG_PACK_LANES /* words */, RING = 2 * FILL, BITS_MIN = 8, BITS_MAX = 14 };
enum { AGAIN = TG_PACK_LANES /* words of the ring's start, again after its end: those of a round are side by side */ };
enum { OWNED = TG_PACK_BASE / THREADS /* symbols of a thread, while the table is made */ };

/* Tables, with the slots of a state's low bits. Narrow ones, for up to 12 bits and bytes as symbols, have whole slots: from bit 0
 * the offset, from bit 12 the symbol, from bit 20 the frequency. Wide ones have the low 8 bits of the symbol, those from `upper` on
 * being of symbols from 256 on; `symbols` then has its frequency and, from bit 16 on, its start.
 *
 * The ring has two numbers for a word, so that few instructions are left when a state takes it. The first is the slot of its low bits; with
 * wide tables, the frequency and, from bit 16 on, the offset, negative. The second has the bits above, with wide tables from bit 8 on the
 * symbol, and from bit 17 on the low bits. */
typedef struct decode_space {
    uint32_t slots[1 << 12]; /* or 2^14 bytes */
    uint4 ring[WARPS][(RING + AGAIN) / 2];
    uint32_t symbols[TG_PACK_BASE];
    uint32_t upper;
} decode_space;

/* A chunk, and where in it something is. */
typedef struct decode_job {
    const uint8_t *at, *end;
    uint8_t *out;
    uint32_t count, base, bits, lane_n, part_n, each;
    uint32_t first, last; /* symbols that occur */
} decode_job;

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

/* Up to 16 bits from bit number `bit` on of bytes before `end`. */
TG_DEVICE uint32_t bits_from(const uint8_t *bytes, const uint8_t *end, uint32_t bit)
{
    uint32_t word = 0;
    const uint8_t *at = bytes + bit / 8;
    for (uint32_t i = 0; i < 3 && at + i < end; i++) {
        word |= (uint32_t)at[i] << 8 * i;
    }
    return word >> bit % 8;
}

/* Reads frequencies into d->symbols, with their starts; j->at is then what follows them. Returns whether they are sound, the same for
 * all threads. */
TG_DEVICE bool read_table(decode_space *d, decode_job *j)
{
    uint32_t ends_len = j->base <= 256 ? 2 : 4, own_n = 0, own = 0, bit_n = 0, sum = 0, total = 1u << j->bits;
    if (j->end - j->at < (int64_t)ends_len) {
        return false;
    }
    j->first = j->base <= 256 ? j->at[0] : j->at[0] | j->at[1] << 8;
    j->last = j->base <= 256 ? j->at[1] : j->at[2] | j->at[3] << 8;
    if (j->first > j->last || j->last >= j->base) {
        return false;
    }
    uint32_t n = j->last - j->first, size[OWNED], frequency[OWNED];
    const uint8_t *sizes = j->at + ends_len, *lows = sizes + (n + 1) / 2;
    if (j->end - sizes < (int64_t)((n + 1) / 2)) {
        return false;
    }
    bool bad = n % 2 == 1 && sizes[n / 2] >> 4 != 0;
    for (uint32_t i = 0; i < OWNED; i++) {
        uint32_t s = threadIdx.x * OWNED + i, k = s - j->first;
        size[i] = s >= j->first && s < j->last ? sizes[k / 2] >> k % 2 * 4 & 15 : 0;
        bad = bad || size[i] > BITS_MAX;
        own_n += size[i];
    }
    uint32_t bit = tg_sum_before_in_block(own_n, &bit_n);
    const uint8_t *after = lows + (bit_n + 7) / 8;
    if (__syncthreads_or(bad || j->end - lows < (int64_t)((bit_n + 7) / 8))) {
        return false;
    }
    bad = bit_n % 8 != 0 && after[-1] >> bit_n % 8 != 0;
    for (uint32_t i = 0; i < OWNED; i++) {
        frequency[i] = (1u << size[i] | (bits_from(lows, after, bit) & ((1u << size[i]) - 1))) - 1;
        bad = bad || (threadIdx.x * OWNED + i == j->first && j->first < j->last && frequency[i] == 0);
        bit += size[i];
        own += frequency[i];
    }
    uint32_t start = tg_sum_before_in_block(own, &sum);
    if (__syncthreads_or(bad || sum >= total)) {
        return false;
    }
    start += threadIdx.x * OWNED > j->last ? total - sum : 0;
    for (uint32_t i = 0; i < OWNED; i++) {
        uint32_t s = threadIdx.x * OWNED + i;
        frequency[i] = s == j->last ? total - sum : frequency[i];
        d->symbols[s] = frequency[i] | start << 16;
        if (s == 256) {
            d->upper = start;
        }
        start += frequency[i];
    }
    j->at = after;
    __syncthreads();
    return true;
}

/* A warp a symbol. What is known of the next one is loaded before. */
template <bool IS_WIDE> TG_DEVICE void make_slots(decode_space *d, const decode_job &j)
{
    uint32_t s = j.first + threadIdx.x / TG_WARP, own = s <= j.last ? d->symbols[s] : 0;
    TG_ROLL
    for (; s <= j.last; s += WARPS) {
        uint32_t frequency = own & 0xffff, start = own >> 16;
        own = s + WARPS <= j.last ? d->symbols[s + WARPS] : 0;
        TG_ROLL
        for (uint32_t o = tg_lane(); o < frequency; o += TG_WARP) {
            if (IS_WIDE) {
                ((uint8_t *)d->slots)[start + o] = (uint8_t)s;
            } else {
                d->slots[start + o] = frequency << 20 | s << 12 | o; /* below 2^12: there are two symbols */
            }
        }
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------------- */

/* A state, as the next symbol is taken out of it: the bits above those of its slot, and the slot. With wide tables, the slot is the
 * frequency and, from bit 16 on, what is subtracted from `low`. What it was after the last symbol is kept for the end. */
typedef struct decode_state {
    uint32_t high, slot, low, symbol;
    uint32_t x, word; /* after a symbol was taken out of it; and what the ring has of the word that it took then */
    bool takes;
} decode_state;

/* The symbol that the low bits of a state stand for, with wide tables. */
TG_DEVICE uint32_t symbol_at(const decode_space *d, uint32_t low, uint32_t upper)
{
    return ((const volatile uint8_t *)d->slots)[low] + (low >= upper ? 256u : 0u);
}

/* Takes the symbol out of a state: returns it; *x is what is left, which may be too small. */
template <bool IS_WIDE> TG_DEVICE uint32_t take(uint32_t *x, const decode_state &s)
{
    if (!IS_WIDE) {
        *x = (s.slot >> 20) * s.high + (s.slot & 0xfff);
        return s.slot >> 12 & 0xff;
    }
    *x = (s.slot & 0xffff) * s.high + s.low - (uint32_t)((int32_t)s.slot >> 16);
    return s.symbol;
}

/* ---- words -------------------------------------------------------------------------------------------------------------- */

/* The words of a segment on their way into the ring: four of a lane, in three aligned words of 32 bits, which nothing is done with until
 * they are needed, so that nobody waits for their loads. */
typedef struct word_queue {
    uint2 *pairs;         /* the ring of the warp */
    tg_place ring, next;  /* the same; and what is taken next */
    const uint32_t *from; /* what this lane loads next, up to 3 bytes before its words */
    int32_t left;         /* bytes of words after that */
    uint32_t shift;       /* bits of those before */
    uint32_t taken, filled;
    uint32_t upper; /* the low bits from which on symbols are from 256 on */
    uint32_t held[FILL / 2 / TG_WARP + 1];
} word_queue;

/* What is left of the words of a segment is loaded byte by byte, zeros after the last. */
TG_CALLED uint32_t load_last(const uint32_t *from, int32_t left)
{
    return left > 0 ? tg_word_before(from, (const uint8_t *)from + left) : 0;
}

/* Loads the FILL words after those that are in the ring. Up to 3 bytes before the words, of states, are read. */
TG_DEVICE void load_words(word_queue *q)
{
    if (q->left >= 12) {
        TG_UNROLL
        for (int i = 0; i < 3; i++) {
            q->held[i] = q->from[i];
        }
    } else {
        TG_UNROLL
        for (int i = 0; i < 3; i++) {
            q->held[i] = load_last(q->from + i, q->left - 4 * i);
        }
    }
    q->from += FILL / 2;
    q->left -= 2 * FILL;
}

/* The queue of `word_n` words of a segment, with the first ones loaded. */
TG_DEVICE word_queue queue_of(decode_space *d, uint32_t warp, const uint8_t *words, uint32_t word_n)
{
    uint32_t before = (uint32_t)((uintptr_t)words % 4);
    uint2 *pairs = (uint2 *)(void *)d->ring[warp];
    word_queue q = {pairs,
                    TG_PLACE_OF(pairs),
                    TG_PLACE_OF(pairs),
                    (const uint32_t *)(const void *)(words - before) + 2 * tg_lane(),
                    (int32_t)(before + 2 * word_n - 8 * tg_lane()),
                    8 * before,
                    0,
                    0,
                    d->upper,
                    {0, 0, 0}};
    load_words(&q);
    return q;
}

/* A word as the ring has it. */
template <bool IS_WIDE> TG_DEVICE uint2 with_slot(uint32_t word, const decode_space *d, uint32_t bits, uint32_t upper)
{
    uint32_t low = word & ((1u << bits) - 1), second = word >> bits | low << 17;
    if (!IS_WIDE) {
        return make_uint2(d->slots[low], second);
    }
    uint32_t symbol = symbol_at(d, low, upper), own = d->symbols[symbol];
    return make_uint2((own & 0xffff) | ((own >> 16) - low) << 16, second | symbol << 8);
}
static_assert(BITS_MIN >= 8 && BITS_MAX <= 14 && TG_PACK_BASE <= 512, "the parts of a word have space");

/* Fills the ring of a warp with the words that are held, and loads more, if there is space. */
template <bool IS_WIDE> TG_DEVICE void fill_ring(word_queue *q, const decode_space *d, uint32_t bits)
{
    if (q->filled - q->taken > RING - FILL) {
        return;
    }
    uint32_t first = q->filled % RING + 4 * tg_lane();
    __syncwarp();
    TG_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t pair = __funnelshift_r(q->held[i], q->held[i + 1], q->shift);
        uint2 a = with_slot<IS_WIDE>(pair & 0xffff, d, bits, q->upper);
        uint2 b = with_slot<IS_WIDE>(pair >> 16, d, bits, q->upper);
        uint4 both = make_uint4(a.x, a.y, b.x, b.y), *at = (uint4 *)(void *)(q->pairs + first) + i;
        *at = both;
        if (first < AGAIN) {
            at[RING / 2] = both;
        }
    }
    q->filled += FILL;
    load_words(q);
    __syncwarp();
}

/* After a symbol was taken out of the states of lanes that have one: those that are too small take words, in the order of lanes. Each is
 * looked up as it is, and has another slot if it takes a word. */
template <bool IS_WIDE>
TG_DEVICE void refill(decode_state *s, uint32_t x, bool is_there, const decode_space *d, word_queue *q, uint32_t bits)
{
    uint32_t low = x & ((1u << bits) - 1);
    bool takes = x < 2u << bits && is_there;
    decode_state next = {0, 0, 0, 0, x, 0, takes};
    if (IS_WIDE) {
        next.symbol = symbol_at(d, low, q->upper);
        next.slot = d->symbols[next.symbol];
        next.low = takes ? 0 : low;
    } else {
        next.slot = ((const volatile uint32_t *)d->slots)[low]; /* else a compiler loads it late */
    }
    uint64_t taken = next.slot; /* the slot, and no word */
    uint32_t votes = __ballot_sync(TG_ALL_LANES, takes), below = (1u << tg_lane()) - 1;
    TG_LOAD_IF(takes, taken, q->next, __popc(votes & below));
    next.slot = (uint32_t)taken;
    next.word = (uint32_t)(taken >> 32);
    next.high = (takes ? x << 16 : x) >> bits | (next.word & 0xff);
    next.symbol = IS_WIDE && takes ? next.word >> 8 & 0x1ff : next.symbol;
    q->taken += (uint32_t)__popc(votes);
    TG_PLACE_AFTER(q->next, q->ring, q->taken % RING);
    if (is_there) {
        *s = next;
    }
}

/* A state at the end. */
TG_DEVICE uint32_t whole_state(const decode_state &s, uint32_t bits)
{
    return s.takes ? s.x << 16 | (s.word & 0xff) << bits | s.word >> 17 : s.x;
}

/* ---- segments ----------------------------------------------------------------------------------------------------------- */

/* A segment: its bytes and symbols. */
typedef struct segment {
    const uint8_t *at;
    uint32_t len, from, n;
} segment;

/* Takes ROUNDS rounds from round `first` on. IS_WHOLE: every lane has a symbol in all of them. */
template <bool IS_WIDE, bool IS_WHOLE, class Symbol>
TG_DEVICE void take_rounds(decode_state *s, Symbol *out, const decode_space *d, word_queue *q, const decode_job &j,
                           uint32_t n, uint32_t first)
{
    TG_UNROLL
    for (uint32_t k = 0; k < ROUNDS; k++) {
        uint32_t i = (first + k) * (IS_WHOLE ? TG_WARP : j.lane_n) + tg_lane(), x = 0;
        bool is_there = IS_WHOLE || (tg_lane() < j.lane_n && i < n);
        uint32_t symbol = take<IS_WIDE>(&x, *s);
        if (is_there) {
            out[i] = (Symbol)symbol;
        }
        refill<IS_WIDE>(s, x, is_there, d, q, j.bits);
    }
}

/* Decodes a segment; returns whether this lane finds it sound. */
template <bool IS_WIDE, class Symbol>
TG_DEVICE bool decode_segment(Symbol *out, decode_space *d, uint32_t warp, const decode_job &j, const segment &g)
{
    uint32_t word_n = g.len / 2 - j.lane_n, rounds = (g.n + j.lane_n - 1) / j.lane_n, round = 0;
    uint32_t whole = j.lane_n == TG_WARP ? g.n / TG_WARP / ROUNDS * ROUNDS : 0;
    word_queue q = queue_of(d, warp, g.at + 2 * j.lane_n, word_n);
    bool has_state = tg_lane() < j.lane_n;
    const uint8_t *first = g.at + 2 * tg_lane();
    uint32_t x = has_state ? first[0] | (uint32_t)first[1] << 8 : 1;
    decode_state s = {0, 0, 0, 0, 1, 0, false};
    bool sound = x != 0;
    fill_ring<IS_WIDE>(&q, d, j.bits);
    refill<IS_WIDE>(&s, x, has_state, d, &q, j.bits);
    TG_ROLL
    for (; round < whole; round += ROUNDS) {
        fill_ring<IS_WIDE>(&q, d, j.bits);
        take_rounds<IS_WIDE, true>(&s, out, d, &q, j, g.n, round);
    }
    TG_ROLL
    for (; round < rounds; round += ROUNDS) {
        fill_ring<IS_WIDE>(&q, d, j.bits);
        take_rounds<IS_WIDE, false>(&s, out, d, &q, j, g.n, round);
    }
    return sound && q.taken == word_n && (!has_state || whole_state(s, j.bits) == 2u << j.bits);
}

/* Reads how many segments there are; j->at is then where their lengths are. */
TG_DEVICE bool read_cut(decode_job *j)
{
    j->part_n = 1;
    if (j->lane_n == TG_PACK_LANES) {
        if (j->at == j->end) {
            return false;
        }
        j->part_n += *j->at++;
    }
    j->each = (j->count + j->part_n - 1) / j->part_n;
    j->each = j->lane_n < TG_PACK_LANES ? j->each : (j->each + TG_PACK_LANES - 1) / TG_PACK_LANES * TG_PACK_LANES;
    return j->end - j->at >= 2 * (int64_t)(j->part_n - 1) && j->each * (j->part_n - 1) < j->count &&
           j->each <= TG_PACK_ROUNDS * j->lane_n;
}

/* A warp finds a segment; false if it or any other is not inside the chunk. */
TG_DEVICE bool find_segment(segment *s, const decode_job &j, uint32_t part)
{
    uint32_t before = 0, all = 0, own = 0;
    const uint8_t *first = j.at + 2 * (j.part_n - 1);
    for (uint32_t i = tg_lane(); i + 1 < j.part_n; i += TG_WARP) {
        uint32_t len = 2 * (j.at[2 * i] | (uint32_t)j.at[2 * i + 1] << 8) + 2 * j.lane_n;
        before += i < part ? len : 0;
        own += i == part ? len : 0;
        all += len;
    }
    before = __reduce_add_sync(TG_ALL_LANES, before);
    own = __reduce_add_sync(TG_ALL_LANES, own);
    all = __reduce_add_sync(TG_ALL_LANES, all);
    uint64_t left = (uint64_t)(j.end - first);
    if (left < (uint64_t)all + 2 * j.lane_n || (left - all) % 2 != 0) {
        return false;
    }
    s->at = first + before;
    s->len = part + 1 < j.part_n ? own : (uint32_t)(left - all);
    s->from = part * j.each;
    s->n = min(j.each, j.count - s->from);
    return true;
}

/* Decodes the segments of a block, a warp each; returns whether this lane finds them sound. */
template <bool IS_WIDE> TG_DEVICE bool decode_parts(decode_space *d, const decode_job &j, uint32_t block)
{
    uint32_t warp = threadIdx.x / TG_WARP;
    bool all_sound = true;
    if (block * WARPS >= j.part_n) {
        return true;
    }
    make_slots<IS_WIDE>(d, j);
    __syncthreads();
    for (uint32_t part = block * WARPS + warp; part < j.part_n; part += BLOCKS * WARPS) {
        segment s;
        if (!find_segment(&s, j, part)) {
            return false;
        }
        bool sound = j.base > 256 ? decode_segment<IS_WIDE>((uint16_t *)(void *)j.out + s.from, d, warp, j, s)
                                  : decode_segment<IS_WIDE>(j.out + s.from, d, warp, j, s);
        all_sound = all_sound && sound;
    }
    return all_sound;
}

/* All symbols are the same; nothing follows the table. */
TG_DEVICE bool fill_chunk(const decode_job &j, uint32_t block)
{
    for (uint32_t i = block * THREADS + threadIdx.x; i < j.count; i += BLOCKS * THREADS) {
        if (j.base > 256) {
            ((uint16_t *)(void *)j.out)[i] = (uint16_t)j.first;
        } else {
            j.out[i] = (uint8_t)j.first;
        }
    }
    return j.lane_n == 1 && j.at == j.end;
}

/* What a block does of a chunk of the given form. */
TG_DEVICE bool decode_some(decode_space *d, decode_job *j, uint32_t form, uint32_t block)
{
    j->bits = form >> 4;
    j->lane_n = 1u << (form & 15);
    bool are_lanes = j->lane_n == 1 || j->lane_n == 4 || j->lane_n == 16 || j->lane_n == TG_PACK_LANES;
    if (j->bits < BITS_MIN || j->bits > BITS_MAX || !are_lanes || !read_table(d, j)) {
        return false;
    }
    if (j->first == j->last) {
        return fill_chunk(*j, block);
    }
    if (!read_cut(j)) {
        return false;
    }
    return j->bits > 12 || j->base > 256 ? decode_parts<true>(d, *j, block) : decode_parts<false>(d, *j, block);
}

/* What a block does of its chunk. Blocks are as encode_segments has them. */
TG_DEVICE void decode_own(decode_space &d, const tg_gpu_pass &p, const uint8_t *body, uint8_t *scratch, uint32_t what)
{
    uint32_t chunk = p.first + blockIdx.x % p.chunk_n, block = blockIdx.x / p.chunk_n;
    tg_pack_job j;
    const tg_view *v = &p.space.views[chunk];
    if (!tg_pack_job_of(&j, p, scratch, chunk, what) || !j.is_coded || j.unit->symbol == TG_GPU_HUFFMAN ||
        v->is_joint) {
        return;
    }
    const uint8_t *bytes = body + v->symbols;
    uint64_t len = v->indices - v->symbols, before = 1 + (uint64_t)j.lower_len;
    if (len == 0 || bytes[0] == 0) { /* the plain form, which other kernels read */
        if (what == TG_PACK_WORDS && len != 1 + (uint64_t)j.plain_len) {
            tg_refuse_chunk(p, chunk);
        }
        return;
    }
    decode_job job = {};
    job.at = bytes + before;
    job.end = bytes + len;
    job.out = (uint8_t *)j.symbols;
    job.count = j.count;
    job.base = j.base;
    if (len < before || !decode_some(&d, &job, bytes[0], block)) {
        tg_refuse_chunk(p, chunk);
    }
}

/* Of symbols, the launch before this one reads plain chunks. It has begun after all before it had ended, and does not touch coded ones:
 * so this one does not wait for it before it decodes. */
__global__ static void __launch_bounds__(THREADS)
    decode_chunks(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch, uint32_t what)
{
    __shared__ decode_space d;
    if (what != TG_PACK_SYMBOLS) {
        tg_after_previous();
    }
    tg_next_may_begin();
    decode_own(d, p, body, scratch, what);
    if (what == TG_PACK_SYMBOLS) {
        tg_after_previous(); /* those who wait for this one wait for that, too */
    }
}

void tg_pack_rans_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch, uint32_t what)
{
    TG_LAUNCH_EARLY(decode_chunks, p->overlaps, p->chunk_n * BLOCKS, THREADS, p->stream, *p, body, scratch, what);
}
