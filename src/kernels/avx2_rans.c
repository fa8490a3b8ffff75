/* The range coder for AVX2: 8 states per vector. A segment has two or four vectors; two segments of four are interleaved. The
 * number of vectors and the kind of table are constant arguments of inlined functions, so that each combination is compiled by
 * itself. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/rans.h"

enum { VECTORS_MAX = TG_RANS_LANES / 8 /* of a segment */ };

TG_AVX2_INLINE __m256i load(const uint32_t *values)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)values);
}

TG_AVX2_INLINE void store(uint32_t *values, __m256i vector)
{
    _mm256_storeu_si256((__m256i *)(void *)values, vector);
}

TG_AVX2_INLINE uint32_t marks_of(__m256i mask)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(mask));
}

/* Eight 32-bit integers below 2^16 as 16-bit words. */
TG_AVX2_INLINE __m128i words_of(__m256i values)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
}

/* ---- encoding -------------------------------------------------------------------------------------------------------- */

/* Entries of 8 symbols: the upper halves of all, and the lower halves of even and odd lanes, each in the low half of a 64-bit
 * lane, as the multiplication needs them. */
typedef struct planned {
    __m256i upper, even, odd;
} planned;

/* Where entries are looked up. Up to FEW are in registers; of more, permutations and blends take longer than loads. */
enum { FEW = 8 };

typedef struct planner {
    const uint64_t *plans;
    __m256i first, lowers, uppers; /* the entries, if are_few */
    uint32_t bits;
    bool are_few;
} planner;

/* By single loads: gather instructions take longer on many CPUs. */
TG_AVX2_INLINE planned look(const uint16_t *s, const uint64_t *plans)
{
    __m256i even = _mm256_setr_epi64x((long long)plans[s[0]], (long long)plans[s[2]], (long long)plans[s[4]],
                                      (long long)plans[s[6]]);
    __m256i odd = _mm256_setr_epi64x((long long)plans[s[1]], (long long)plans[s[3]], (long long)plans[s[5]],
                                     (long long)plans[s[7]]);
    return (planned){_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa), even, odd};
}

TG_AVX2_INLINE planned pick(const uint16_t *symbols, const planner *p)
{
    __m256i some = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)symbols));
    __m256i at = _mm256_sub_epi32(some, p->first), lower = _mm256_permutevar8x32_epi32(p->lowers, at);
    return (planned){_mm256_permutevar8x32_epi32(p->uppers, at), lower, _mm256_srli_epi64(lower, 32)};
}

TG_AVX2_INLINE planned plan(const uint16_t *symbols, const planner *p)
{
    return p->are_few ? pick(symbols, p) : look(symbols, p->plans);
}

/* Encodes one symbol into each of 8 states. Emitted words are put in front of `at`, where there is space for eight; returns the new
 * `at`. */
TG_AVX2_INLINE uint8_t *push(__m256i *states, uint8_t *at, planned p, uint32_t bits)
{
    const __m256i mask = _mm256_set1_epi32(TG_PLAN_MASK), one = _mm256_set1_epi32(1);
    __m256i less = _mm256_and_si256(p.upper, mask), frequency = _mm256_add_epi32(less, one);
    __m256i start = _mm256_and_si256(_mm256_srli_epi32(p.upper, TG_PLAN_START - 32), mask);
    __m256i log = _mm256_srli_epi32(p.upper, TG_PLAN_LOG - 32);
    /* A state is below 2^31, the limit at most 2^31. */
    __m256i x = *states, limit = _mm256_slli_epi32(frequency, 17);
    __m256i gives = _mm256_cmpgt_epi32(x, _mm256_sub_epi32(limit, one));
    uint32_t marks = marks_of(gives);
    __m256i last = _mm256_permutevar8x32_epi32(x, lanes_in(&tg_avx2_marked_last[marks]));
    _mm_storeu_si128((__m128i *)(void *)(at - 16), words_of(_mm256_and_si256(last, _mm256_set1_epi32(0xffff))));
    at -= 2 * (size_t)_mm_popcnt_u32(marks);
    x = _mm256_srlv_epi32(x, _mm256_and_si256(gives, _mm256_set1_epi32(16)));
    /* (x * inverse) >> (31 + log) is the upper half of 2 x * inverse, shifted by log. */
    __m256i twice = _mm256_add_epi32(x, x);
    __m256i even = _mm256_mul_epu32(twice, p.even), odd = _mm256_mul_epu32(_mm256_srli_epi64(twice, 32), p.odd);
    __m256i quotient = _mm256_srlv_epi32(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa), log);
    /* quotient * 2^bits + x mod frequency */
    __m256i rest = _mm256_sub_epi32(_mm256_set1_epi32(1 << bits), frequency);
    *states = _mm256_add_epi32(_mm256_add_epi32(x, start), _mm256_mullo_epi32(quotient, rest));
    return at;
}

/* Encodes the last `count` symbols, whole rounds, of one segment, or of each of two. */
TG_AVX2_INLINE void push_rounds(tg_rans_writer *w, size_t writer_n, size_t count, const tg_rans_plans *plans,
                                int vector_n, bool are_few)
{
    uint32_t halves[2][FEW] = {{0}};
    for (uint32_t s = 0; are_few && s < plans->span; s++) {
        halves[0][s] = (uint32_t)plans->plans[plans->first + s];
        halves[1][s] = (uint32_t)(plans->plans[plans->first + s] >> 32);
    }
    const planner p = {.plans = plans->plans,
                       .first = _mm256_set1_epi32((int)plans->first),
                       .lowers = load(halves[0]),
                       .uppers = load(halves[1]),
                       .bits = plans->bits,
                       .are_few = are_few};
    tg_rans_writer *other = w + (writer_n - 1);
    __m256i x[VECTORS_MAX], y[VECTORS_MAX];
    for (int v = 0; v < vector_n; v++) {
        x[v] = load(w->states + 8 * v);
        y[v] = load(other->states + 8 * v);
    }
    uint8_t *at = w->at, *at_other = other->at;
    const uint16_t *here = w->symbols + w->count, *there = other->symbols + other->count, *first = here - count;
    while (here > first) {
        for (int v = vector_n - 1; v >= 0; v--) {
            here -= 8;
            at = push(&x[v], at, plan(here, &p), p.bits);
            if (writer_n == 2) {
                there -= 8;
                at_other = push(&y[v], at_other, plan(there, &p), p.bits);
            }
        }
    }
    for (int v = 0; v < vector_n; v++) {
        store(w->states + 8 * v, x[v]);
        if (writer_n == 2) {
            store(other->states + 8 * v, y[v]);
        }
    }
    w->at = at;
    w->count -= count;
    if (writer_n == 2) {
        other->at = at_other;
        other->count -= count;
    }
}

TG_AVX2_INLINE void push_any(tg_rans_writer *w, size_t writer_n, size_t count, const tg_rans_plans *plans, int vector_n)
{
    plans->span <= FEW ? push_rounds(w, writer_n, count, plans, vector_n, true)
                       : push_rounds(w, writer_n, count, plans, vector_n, false);
}

TG_AVX2 void tg_avx2_rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans)
{
    size_t common = SIZE_MAX;
    for (size_t i = 0; i < writer_n; i++) {
        tg_rans_push_rest(&w[i], lane_n < 16 ? 0 : lane_n, lane_n, plans);
        common = w[i].count < common ? w[i].count : common;
    }
    for (size_t i = 0; i < writer_n && lane_n == 32; i++) {
        push_any(&w[i], 1, w[i].count - (writer_n == 2 ? common : 0), plans, 4);
    }
    if (writer_n == 2 && lane_n == 32) {
        push_any(w, 2, common, plans, 4);
    }
    for (size_t i = 0; i < writer_n && lane_n == 16; i++) {
        push_any(&w[i], 1, w[i].count, plans, 2);
    }
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

/* Where symbols are looked up: in the slots, or, if at most eight symbols occur, by comparing with the starts of all but the first
 * of them. */
typedef struct finder {
    const uint32_t *slots;
    __m256i lowest, upper, start;
    __m128i bits;
    __m256i starts[FEW], entries; /* of few symbols; entries are as slots, but with the start in place of the offset */
    int few_n;                    /* 0, FEW / 2 or FEW */
} finder;

/* Eight slots, by single loads, too. */
TG_AVX2_INLINE __m256i look_up(__m256i low, const uint32_t *slots)
{
    _Alignas(32) uint32_t indices[8];
    const volatile uint32_t *at = indices; /* volatile, or compilers extract the lanes by shuffles, which are scarce */
    _mm256_store_si256((__m256i *)(void *)indices, low);
    return _mm256_setr_epi32((int)slots[at[0]], (int)slots[at[1]], (int)slots[at[2]], (int)slots[at[3]],
                             (int)slots[at[4]], (int)slots[at[5]], (int)slots[at[6]], (int)slots[at[7]]);
}

TG_AVX2_INLINE __m256i search(__m256i low, const finder *f)
{
    __m256i at = _mm256_setzero_si256();
    for (int s = 1; s < f->few_n; s++) {
        at = _mm256_sub_epi32(at, _mm256_cmpgt_epi32(low, f->starts[s]));
    }
    return _mm256_permutevar8x32_epi32(f->entries, at);
}

/* Decodes one symbol from each of 8 states, which refill from `at`; returns the new `at`. */
TG_AVX2_INLINE const uint8_t *pull(uint16_t *symbols, __m256i *states, const uint8_t *at, const finder *f)
{
    __m256i low = _mm256_and_si256(*states, f->lowest);
    __m256i slot = f->few_n > 0 ? search(low, f) : look_up(low, f->slots);
    __m256i symbol = _mm256_and_si256(slot, _mm256_set1_epi32(255));
    __m256i is_upper = _mm256_cmpgt_epi32(low, f->upper);
    symbol = _mm256_add_epi32(symbol, _mm256_and_si256(is_upper, _mm256_set1_epi32(256)));
    _mm_storeu_si128((__m128i *)(void *)symbols, words_of(symbol));
    __m256i less = _mm256_and_si256(_mm256_srli_epi32(slot, 8), _mm256_set1_epi32(4095));
    __m256i frequency = _mm256_add_epi32(less, _mm256_set1_epi32(1)), offset = _mm256_srli_epi32(slot, 20);
    offset = f->few_n > 0 ? _mm256_sub_epi32(low, offset) : offset;
    __m256i next = _mm256_mullo_epi32(frequency, _mm256_srl_epi32(*states, f->bits));
    next = _mm256_add_epi32(next, offset);
    /* Below 2^31, since slots of a sound table keep states so. */
    __m256i is_low = _mm256_cmpgt_epi32(f->start, next);
    uint32_t marks = marks_of(is_low);
    __m256i here = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
    here = _mm256_permutevar8x32_epi32(here, lanes_in(&tg_avx2_ranks[marks]));
    __m256i longer = _mm256_or_si256(_mm256_slli_epi32(next, 16), here);
    *states = _mm256_blendv_epi8(next, longer, is_low);
    return at + 2 * (size_t)_mm_popcnt_u32(marks);
}

TG_AVX2_INLINE void pull_rounds(tg_rans_reader *r, size_t reader_n, const uint8_t *end, const tg_rans_slots *slots,
                                int vector_n, int few_n)
{
    finder f = {.slots = slots->slots,
                .lowest = _mm256_set1_epi32((1 << slots->bits) - 1),
                .upper = _mm256_set1_epi32((int)slots->upper - 1),
                .start = _mm256_set1_epi32((int)tg_rans_start(slots->bits)),
                .bits = _mm_cvtsi32_si128((int)slots->bits),
                .few_n = few_n};
    uint32_t entries[FEW] = {0};
    for (int s = 0; s < few_n; s++) {
        entries[s] = (slots->few_symbol[s] & 255) | (slots->few_frequency[s] - 1) << 8 | slots->few_start[s] << 20;
        f.starts[s] = _mm256_set1_epi32((int)slots->few_start[s] - 1);
    }
    f.entries = load(entries);
    tg_rans_reader *s = r + (reader_n - 1);
    const size_t lane_n = 8 * (size_t)vector_n, count = r->left < s->left ? r->left : s->left;
    __m256i x[VECTORS_MAX], y[VECTORS_MAX];
    for (int v = 0; v < vector_n; v++) {
        x[v] = load(r->states + 8 * v);
        y[v] = load(s->states + 8 * v);
    }
    const uint8_t *at = r->at, *other = s->at;
    size_t i = 0;
    for (; count - i >= lane_n && (size_t)(end - at) >= 2 * lane_n &&
           (reader_n < 2 || (size_t)(end - other) >= 2 * lane_n);
         i += lane_n) {
        for (int v = 0; v < vector_n; v++) {
            at = pull(r->symbols + i + 8 * v, &x[v], at, &f);
            if (reader_n == 2) {
                other = pull(s->symbols + i + 8 * v, &y[v], other, &f);
            }
        }
    }
    for (int v = 0; v < vector_n; v++) {
        store(r->states + 8 * v, x[v]);
        if (reader_n == 2) {
            store(s->states + 8 * v, y[v]);
        }
    }
    tg_rans_advance(r, at, i);
    if (reader_n == 2) {
        tg_rans_advance(s, other, i);
    }
}

TG_AVX2_INLINE void pull_any(tg_rans_reader *r, size_t reader_n, const uint8_t *end, const tg_rans_slots *slots,
                             int vector_n)
{
    slots->few_n == 0 || slots->few_n > FEW ? pull_rounds(r, reader_n, end, slots, vector_n, 0)
    : slots->few_n > FEW / 2                ? pull_rounds(r, reader_n, end, slots, vector_n, FEW)
                                            : pull_rounds(r, reader_n, end, slots, vector_n, FEW / 2);
}

TG_AVX2 void tg_avx2_rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                               const tg_rans_slots *slots)
{
    if (lane_n == 32 && reader_n == 2) {
        pull_any(r, 2, end, slots, 4);
        return;
    }
    for (size_t i = 0; i < reader_n; i++) {
        lane_n == 32 ? pull_any(&r[i], 1, end, slots, 4) : pull_any(&r[i], 1, end, slots, 2);
    }
}
#endif
