/* Frequencies of a rANS stream (pack/rans_table.c, pack/rans_encode.c) on the GPU: a block a chunk finds the precision, the
 * frequencies and the segments that the host would, writes the table of frequencies, and leaves plans for the coder. Each of the
 * three precisions is the work of four warps: other kernels wait for this one, which is short, so few symbols are a thread's. */
#include "exec/cuda/pack.h"

enum { DRAFTS = 3, EACH = 4 /* warps of a draft */, WARPS = DRAFTS * EACH, THREADS = WARPS * 32 };

/* What the warps of a block share. */
typedef struct table_space {
    uint32_t counts[TG_PACK_BASE];
    uint32_t frequency[DRAFTS][TG_PACK_BASE];
    uint64_t keys[DRAFTS][TG_PACK_BASE];
    uint32_t bits[TG_PACK_BASE];   /* low bits of frequencies as they are written */
    uint32_t starts[TG_PACK_BASE]; /* sums of the frequencies before */
    uint64_t body_len[DRAFTS];
    uint32_t head_len[DRAFTS];
    uint32_t first, last; /* symbols that occur */
    struct {              /* what each warp has found of a draft */
        uint64_t cost;
        uint32_t sum, head, first, last;
    } of[WARPS];
} table_space;

TG_DEVICE uint32_t precision_of(uint32_t draft)
{
    return draft == 0 ? 12 : draft == 1 ? 10 : 14;
}

/* ---- frequencies ------------------------------------------------------------------------------------------------------------ */

/* What one unit of a symbol's frequency costs: its count over its frequency, as the bits of a binary64, which order as integers.
 * Different quotients of a count below 2^19 and a frequency below 2^15 are different numbers, and equal ones are equal. */
TG_DEVICE uint64_t cost_key(uint32_t count, uint32_t frequency)
{
    return (uint64_t)__double_as_longlong((double)count / (double)frequency);
}

/* The key of a symbol, so that the largest is best. If its frequency is to become less: the inverted cost of what is left of it,
 * else its cost. 0: it cannot be. */
TG_DEVICE uint64_t key_of(uint32_t count, uint32_t frequency, bool loses)
{
    if (count == 0 || (loses && frequency == 1)) {
        return 0;
    }
    return loses ? ~cost_key(count, frequency - 1) : cost_key(count, frequency);
}

/* The best of a lane's symbols, which are neighbours: `owned` from lane * owned on. The first of equal ones. */
typedef struct candidate {
    uint64_t key;
    uint32_t symbol;
    uint64_t then; /* the largest key that the lane has without it */
} candidate;

TG_DEVICE candidate best_of_lane(const uint64_t *keys, uint32_t owned)
{
    candidate best = {0, tg_lane() * owned, 0};
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i;
        uint64_t key = keys[s];
        bool is_best = key > best.key;
        best.then = is_best ? best.key : key > best.then ? key : best.then;
        best.symbol = is_best ? s : best.symbol;
        best.key = is_best ? key : best.key;
    }
    return best;
}

/* Symbols of a lane, of a base. */
TG_DEVICE uint32_t owned_of(uint32_t base)
{
    return (base + TG_WARP - 1) / TG_WARP;
}

/* The largest key of all lanes. */
TG_DEVICE uint64_t most_of_all(uint64_t key)
{
    uint32_t high = (uint32_t)(key >> 32), most = __reduce_max_sync(TG_ALL_LANES, high);
    uint32_t low = high == most ? (uint32_t)key : 0;
    return (uint64_t)most << 32 | __reduce_max_sync(TG_ALL_LANES, low);
}

/* Whether this lane's key is among the n largest of all lanes; of equal ones, which have ascending symbols, the first. */
TG_DEVICE bool is_among(uint64_t key, uint32_t n)
{
    uint32_t better = 0;
    TG_ROLL
    for (uint32_t other = 0; other < TG_WARP; other++) {
        uint64_t its = __shfl_sync(TG_ALL_LANES, key, (int)other);
        better += its > key || (its == key && other < tg_lane()) ? 1 : 0;
    }
    return better < n;
}

/* The warps of a draft set its frequencies as tg_rans_normalise does: first those that counts ask for, whose sum is not known yet, ... */
TG_DEVICE void start_draft(table_space *t, uint32_t draft, uint32_t count, uint32_t base)
{
    uint32_t sum = 0, warp = threadIdx.x / TG_WARP, first = base, last = 0;
    const double whole = (double)(1u << precision_of(draft)), half = (double)(count / 2), all = (double)count;
    for (uint32_t s = threadIdx.x % (EACH * TG_WARP); s < owned_of(base) * TG_WARP; s += EACH * TG_WARP) {
        uint32_t own = t->counts[s]; /* 0 from the base on */
        uint32_t f = (uint32_t)(((double)own * whole + half) / all);
        f = f == 0 && own > 0 ? 1 : f;
        t->frequency[draft][s] = f;
        sum += f;
        first = own > 0 ? min(first, s) : first;
        last = own > 0 ? s : last;
    }
    sum = __reduce_add_sync(TG_ALL_LANES, sum);
    first = __reduce_min_sync(TG_ALL_LANES, first);
    last = __reduce_max_sync(TG_ALL_LANES, last);
    if (tg_lane() == 0) {
        t->of[warp].sum = sum;
        t->of[warp].first = first;
        t->of[warp].last = last;
    }
}

TG_DEVICE uint32_t sum_of_draft(const table_space *t, uint32_t draft)
{
    uint32_t sum = 0;
    for (uint32_t w = draft * EACH; w < (draft + 1) * EACH; w++) {
        sum += t->of[w].sum;
    }
    return sum;
}

/* ... then keys, by which one warp changes them, unless the sum is right. */
TG_DEVICE void make_keys(table_space *t, uint32_t draft, uint32_t base, uint32_t sum)
{
    uint32_t total = 1u << precision_of(draft);
    for (uint32_t s = threadIdx.x % (EACH * TG_WARP); s < owned_of(base) * TG_WARP && sum != total; s += EACH * TG_WARP) {
        t->keys[draft][s] = key_of(t->counts[s], t->frequency[draft][s], sum > total);
    }
}

TG_DEVICE void change_frequencies(uint32_t *frequency, uint64_t *keys, const uint32_t *counts, uint32_t base,
                                  uint32_t total, uint32_t sum)
{
    uint32_t owned = owned_of(base);
    bool loses = sum > total;
    /* The host changes one symbol after the other, always the best. A symbol's key becomes less each time, so the best of the lanes
     * whose best exceeds all other keys, those that follow them included, are the next ones of the host, whatever their order. */
    for (uint32_t left = loses ? sum - total : total - sum; left > 0;) {
        candidate best = best_of_lane(keys, owned);
        uint32_t s = best.symbol, changed = frequency[s] + (loses ? -1 : 1);
        uint64_t key = best.key > 0 ? key_of(counts[s], changed, loses) : 0;
        bool changes = best.key > most_of_all(key > best.then ? key : best.then);
        uint32_t n = (uint32_t)__popc(__ballot_sync(TG_ALL_LANES, changes));
        if (n == 0 || n > left) {
            n = n == 0 ? 1 : left;
            changes = is_among(best.key, n);
        }
        if (changes) {
            frequency[s] = changed;
            keys[s] = key;
        }
        left -= n;
        __syncwarp();
    }
}

/* ---- cost -------------------------------------------------------------------------------------------------------------------- */

/* 256 times the binary logarithm, rounded down, as in pack/rans_table.c. */
TG_DEVICE uint32_t log_of(uint32_t number)
{
    uint32_t whole = 31 - (uint32_t)__clz((int)number), log = whole;
    uint64_t x = ((uint64_t)number << 31) >> whole;
    for (int bit = 0; bit < 8; bit++) {
        x = (x * x) >> 31;
        uint32_t is_set = (uint32_t)(x >> 32);
        log = log << 1 | is_set;
        x >>= is_set;
    }
    return log;
}

TG_DEVICE uint32_t low_bits_of(uint32_t frequency)
{
    return 31 - (uint32_t)__clz((int)(frequency + 1));
}

/* Bytes of the first and the last symbol, and of the sizes of frequencies. */
TG_DEVICE uint32_t sizes_at(uint32_t base)
{
    return base <= 256 ? 2 : 4;
}

TG_DEVICE uint32_t lows_at(const table_space *t, uint32_t base)
{
    return sizes_at(base) + (t->last - t->first + 1) / 2;
}

/* The first and the last symbol that occurs, by one thread: the warps of any draft have found them. */
TG_DEVICE void find_ends(table_space *t)
{
    t->first = min(min(t->of[0].first, t->of[1].first), min(t->of[2].first, t->of[3].first));
    t->last = max(max(t->of[0].last, t->of[1].last), max(t->of[2].last, t->of[3].last));
}
static_assert((int)EACH == 4, "find_ends has four");

/* What the frequencies of a draft cost, by its warps. */
TG_DEVICE void find_cost(table_space *t, uint32_t draft, uint32_t base)
{
    uint32_t bits = precision_of(draft), *frequency = t->frequency[draft], head = 0, warp = threadIdx.x / TG_WARP;
    uint64_t cost = 0;
    for (uint32_t s = threadIdx.x % (EACH * TG_WARP); s < base; s += EACH * TG_WARP) {
        cost += t->counts[s] == 0 ? 0 : (uint64_t)t->counts[s] * ((bits << 8) - log_of(frequency[s]));
        head += s < t->last ? low_bits_of(frequency[s]) : 0; /* 0 before the first */
    }
    cost = tg_sum_lanes(cost);
    head = __reduce_add_sync(TG_ALL_LANES, head);
    if (tg_lane() == 0) {
        t->of[warp].cost = cost;
        t->of[warp].head = head;
    }
}

/* Its lengths, by one thread. */
TG_DEVICE void find_lengths(table_space *t, uint32_t draft, uint32_t base)
{
    uint64_t cost = 0;
    uint32_t head = 0;
    for (uint32_t w = draft * EACH; w < (draft + 1) * EACH; w++) {
        cost += t->of[w].cost;
        head += t->of[w].head;
    }
    t->body_len[draft] = cost >> 11;
    t->head_len[draft] = lows_at(t, base) + (head + 7) / 8;
}

/* All drafts, and what they cost; all threads. */
TG_DEVICE void make_drafts(table_space *t, uint32_t count, uint32_t base)
{
    uint32_t warp = threadIdx.x / TG_WARP, draft = warp / EACH, total = 1u << precision_of(draft);
    start_draft(t, draft, count, base);
    __syncthreads();
    uint32_t sum = sum_of_draft(t, draft);
    make_keys(t, draft, base, sum);
    if (threadIdx.x == 0) {
        find_ends(t);
    }
    __syncthreads();
    if (warp % EACH == 0 && sum != total) {
        change_frequencies(t->frequency[draft], t->keys[draft], t->counts, base, total, sum);
    }
    __syncthreads();
    find_cost(t, draft, base);
    __syncthreads();
    if (threadIdx.x < DRAFTS) {
        find_lengths(t, threadIdx.x, base);
    }
    __syncthreads();
}

/* The draft that the host chooses, of 12, 10 and 14 bits in this order. */
TG_DEVICE uint32_t choose_draft(const table_space *t, uint32_t base)
{
    uint32_t best = 0;
    for (uint32_t other = 1; other < DRAFTS; other++) {
        uint64_t len = t->body_len[best] + t->head_len[best], other_len = t->body_len[other] + t->head_len[other];
        bool may = 1u << precision_of(other) >= 2 * base;
        if (may && other_len + (best == 0 ? len / 512 : 0) < len) {
            best = other;
        }
    }
    return best;
}

/* How the stream is cut, as cut_for of pack/rans_encode.c. */
TG_DEVICE void cut_for(tg_pack_code *c, uint32_t count, uint64_t spare)
{
    const uint32_t most = TG_PACK_ROUNDS, lanes = TG_PACK_LANES;
    uint32_t least = (count + most - 1) / most, states = (uint32_t)(spare * 8 / 21);
    if (least > 16 || states >= lanes) {
        uint32_t segments = (uint32_t)(spare / (2 + lanes * 21 / 8)), least_n = (least + lanes - 1) / lanes;
        segments = min(segments, 4 * count / (most * lanes)) / 2 * 2;
        segments = max(segments, least_n > 1 ? (least_n + 1) / 2 * 2 : 1);
        uint32_t each = (count + segments - 1) / segments;
        c->lane_n = lanes;
        c->part_n = segments;
        c->each = (each + lanes - 1) / lanes * lanes;
        return;
    }
    states = max(states, least);
    c->lane_n = states > 4 && (states >= 16 || least > 4) ? 16 : states >= 4 || least > 1 ? 4 : 1;
    c->part_n = 1;
    c->each = count;
}

/* ---- what is left for the coder ------------------------------------------------------------------------------------------------ */

/* A plan, in two words, so that warps that load those of any symbols meet in few banks of shared memory: the inverse of the frequency f; and
 * the shift of the inverse, from bit 4 on the start, and from bit 18 on what f leaves of 2^bits.
 *
 * The quotient of x and f, rounded down, is the upper word of (x + 1) times the inverse, shifted. The inverse is the largest number below
 * 2^p / f, p being 32 plus the shift. So the product is less than (x + 1) / f, by at most (x + 1) / 2^p. That is at most 1 / f, because x + 1
 * is at most 2^17 f, and that at most 2^p / f. */
TG_DEVICE uint2 plan_of(uint32_t f, uint32_t start, uint32_t bits)
{
    uint32_t rest = (1u << bits) - f;
    if (f <= 1) {
        return make_uint2(~0u, rest << 18 | start << 4);
    }
    uint32_t log = 32 - (uint32_t)__clz((int)(f - 1));
    /* In binary64, whose quotient is below 2^32 and too far from the next integer to be rounded to it, unless it is one. */
    uint64_t number = 1ull << (31 + log), inverse = (uint64_t)((double)number / (double)f);
    inverse -= inverse * f == number ? 1 : 0;
    return make_uint2((uint32_t)inverse, rest << 18 | start << 4 | (log - 1));
}

/* One warp sums frequencies. */
TG_DEVICE void find_starts(table_space *t, const uint32_t *frequency, uint32_t base)
{
    uint32_t own = 0, owned = owned_of(base);
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i;
        own += s < base ? frequency[s] : 0;
    }
    uint32_t start = tg_sum_before(own);
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i;
        if (s < base) {
            t->starts[s] = start;
            start += frequency[s];
        }
    }
}

/* One warp puts the low bits of all frequencies but the last into t->bits, which are zero. */
TG_DEVICE void write_lows(table_space *t, const uint32_t *frequency, uint32_t base)
{
    uint32_t own = 0, owned = owned_of(base);
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i;
        own += s < t->last ? low_bits_of(frequency[s]) : 0;
    }
    uint32_t at = tg_sum_before(own);
    for (uint32_t i = 0; i < owned; i++) {
        uint32_t s = tg_lane() * owned + i;
        if (s < t->last) {
            uint32_t b = low_bits_of(frequency[s]);
            uint64_t low = (uint64_t)((frequency[s] + 1) & ((1u << b) - 1)) << at % 32;
            atomicOr(&t->bits[at / 32], (uint32_t)low);
            if (low >> 32 != 0) {
                atomicOr(&t->bits[at / 32 + 1], (uint32_t)(low >> 32));
            }
            at += b;
        }
    }
}

/* All threads write the table: the first and the last symbol, sizes of frequencies, their low bits. */
TG_DEVICE void write_table(uint8_t *out, const table_space *t, const uint32_t *frequency, uint32_t base, uint32_t len)
{
    uint32_t n = t->last - t->first, sizes = sizes_at(base), lows = lows_at(t, base);
    for (uint32_t i = threadIdx.x; i < len; i += THREADS) {
        uint32_t byte = 0;
        if (i < sizes) {
            uint32_t end = i < sizes / 2 ? t->first : t->last;
            byte = base <= 256 ? end : end >> i % 2 * 8;
        } else if (i < lows) {
            uint32_t k = 2 * (i - sizes), s = t->first + k;
            byte = low_bits_of(frequency[s]) | (k + 1 < n ? low_bits_of(frequency[s + 1]) << 4 : 0);
        } else {
            byte = t->bits[(i - lows) / 4] >> 8 * ((i - lows) % 4);
        }
        out[i] = (uint8_t)byte;
    }
}

/* One thread decides the form. `table_len` bytes are before the number of segments. */
TG_DEVICE void decide(tg_pack_code *c, const table_space *t, const tg_pack_job &j, uint32_t chosen)
{
    uint32_t table_len = t->head_len[chosen], bits = precision_of(chosen);
    uint64_t least = t->body_len[0], len = t->body_len[chosen] + table_len;
    for (uint32_t draft = 1; draft < DRAFTS; draft++) {
        bool may = 1u << precision_of(draft) >= 2 * j.base;
        least = may && t->body_len[draft] < least ? t->body_len[draft] : least;
    }
    uint64_t most = least + (least + j.lower_len) / 112;
    c->bits = bits;
    c->lane_n = 1;
    c->part_n = 0;
    c->each = j.count;
    if (t->first < t->last) {
        cut_for(c, j.count, most > len ? most - len : 0);
    }
    c->head_len = table_len + (c->lane_n == TG_PACK_LANES ? 1 : 0);
    c->form = bits << 4 | (31 - (uint32_t)__clz((int)c->lane_n));
}

__global__ static void __launch_bounds__(THREADS) make_tables(tg_gpu_pass p, uint8_t *scratch, uint32_t what)
{
    __shared__ table_space t;
    tg_pack_job j;
    uint32_t chunk = p.first + blockIdx.x, warp = threadIdx.x / TG_WARP;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_job_of(&j, p, scratch, chunk, what) || !j.is_coded || j.unit->symbol == TG_GPU_HUFFMAN) {
        return;
    }
    tg_pack_scratch s = tg_pack_scratch_of(p, scratch, chunk);
    tg_pack_sum_counts(t.counts, s.counts, j.tile_n, j.base);
    for (uint32_t i = threadIdx.x; i < TG_PACK_BASE; i += THREADS) {
        t.bits[i] = 0;
    }
    __syncthreads();
    make_drafts(&t, j.count, j.base);
    uint32_t chosen = choose_draft(&t, j.base), table_len = t.head_len[chosen];
    bool is_coded = t.body_len[chosen] + table_len <= j.plain_len - 1 - j.lower_len;
    if (threadIdx.x == THREADS - 1) { /* of a warp that has nothing else to do */
        decide(s.code, &t, j, chosen);
        s.code->is_coded = is_coded ? 1 : 0;
    }
    if (!is_coded) {
        return;
    }
    if (warp == 0) {
        write_lows(&t, t.frequency[chosen], j.base);
    } else if (warp == 1) {
        find_starts(&t, t.frequency[chosen], j.base);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        s.code->pairs[i] = plan_of(t.frequency[chosen][i], t.starts[i], precision_of(chosen));
    }
    uint8_t *out = p.space.out[chunk] + p.space.views[chunk].symbols + 1 + j.lower_len;
    write_table(out, &t, t.frequency[chosen], j.base, table_len);
    if (threadIdx.x == 0 && s.code->lane_n == TG_PACK_LANES) {
        out[table_len] = (uint8_t)(s.code->part_n - 1);
    }
}

void tg_pack_rans_table(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what)
{
    TG_LAUNCH_EARLY(make_tables, p->overlaps, p->chunk_n, THREADS, p->stream, *p, scratch, what);
}
