/* The range coder for AVX-512: 16 states per vector. A segment has one or two vectors; two segments of two are interleaved. The
 * number of vectors and the kind of table are constant arguments of inlined functions, so that each combination is compiled by
 * itself. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/rans.h"

/* The states. Not an array, which compilers would keep in memory. Of two segments, c and d are the second one's. */
typedef struct vectors {
    __m512i a, b, c, d;
} vectors;

TG_AVX512_INLINE vectors load(const uint32_t *one, const uint32_t *two, int vector_n)
{
    vectors x = {.a = _mm512_loadu_si512(one)};
    x.b = vector_n >= 2 ? _mm512_loadu_si512(one + 16) : x.a;
    x.c = vector_n == 4 ? _mm512_loadu_si512(two) : x.a;
    x.d = vector_n == 4 ? _mm512_loadu_si512(two + 16) : x.a;
    return x;
}

TG_AVX512_INLINE void store(uint32_t *one, uint32_t *two, const vectors *x, int vector_n)
{
    _mm512_storeu_si512(one, x->a);
    if (vector_n >= 2) {
        _mm512_storeu_si512(one + 16, x->b);
    }
    if (vector_n == 4) {
        _mm512_storeu_si512(two, x->c);
        _mm512_storeu_si512(two + 16, x->d);
    }
}

/* ---- encoding -------------------------------------------------------------------------------------------------------- */

/* Entries of 16 symbols: the upper halves of all, and the lower halves of even and odd lanes, each in the low half of a 64-bit
 * lane, as the multiplication needs them. */
typedef struct planned {
    __m512i upper, even, odd;
} planned;

/* Table look-ups of eight 64-bit words, and of sixteen 32-bit words, by single loads: gather instructions take half as long
 * again on CPUs with mitigations for Gather Data Sampling, or with slow gathers. */
TG_AVX512_INLINE __m512i eight(const uint64_t *from, const uint16_t *at, int step)
{
    return _mm512_setr_epi64((long long)from[at[0]], (long long)from[at[step]], (long long)from[at[2 * step]],
                             (long long)from[at[3 * step]], (long long)from[at[4 * step]],
                             (long long)from[at[5 * step]], (long long)from[at[6 * step]],
                             (long long)from[at[7 * step]]);
}

TG_AVX512_INLINE __m128i four(const uint32_t *from, const volatile uint64_t *at)
{
    uint64_t a = at[0], b = at[1]; /* half the loads */
    return _mm_setr_epi32((int)from[(uint32_t)a], (int)from[a >> 32], (int)from[(uint32_t)b], (int)from[b >> 32]);
}

TG_AVX512_INLINE __m512i sixteen(const uint32_t *from, __m512i at)
{
    _Alignas(32) uint64_t indices[8];
    const volatile uint64_t *a = indices; /* volatile, or compilers extract the lanes by shuffles, which are scarce */
    /* Two stores: loads of parts of a 64-byte store are slow. */
    _mm256_store_si256((__m256i *)(void *)indices, _mm512_castsi512_si256(at));
    _mm256_store_si256((__m256i *)(void *)(indices + 4), _mm512_extracti64x4_epi64(at, 1));
    __m512i lower = _mm512_castsi256_si512(_mm256_setr_m128i(four(from, a), four(from, a + 2)));
    return _mm512_inserti64x4(lower, _mm256_setr_m128i(four(from, a + 4), four(from, a + 6)), 1);
}

/* Where entries are looked up. */
typedef struct planner {
    const uint64_t *plans;
    __m512i first, lowers[2], uppers[2]; /* the entries, if are_few */
    uint32_t bits;
    bool are_few;
} planner;

TG_AVX512_INLINE planned look(const uint16_t *symbols, const uint64_t *plans)
{
    __m512i even = eight(plans, symbols, 2), odd = eight(plans, symbols + 1, 2);
    return (planned){_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd), even, odd};
}

/* Of few symbols, from registers. */
TG_AVX512_INLINE planned pick(const uint16_t *some, const planner *p)
{
    __m512i symbols = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)some));
    __m512i at = _mm512_sub_epi32(symbols, p->first);
    __m512i lower = _mm512_permutex2var_epi32(p->lowers[0], at, p->lowers[1]);
    __m512i upper = _mm512_permutex2var_epi32(p->uppers[0], at, p->uppers[1]);
    return (planned){upper, lower, _mm512_srli_epi64(lower, 32)};
}

TG_AVX512_INLINE planned plan(const uint16_t *symbols, const planner *p)
{
    return p->are_few ? pick(symbols, p) : look(symbols, p->plans);
}

/* Places of words when n of 16, which are in front, move to the end: from entry n on. */
static const uint16_t to_end[32] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Encodes one symbol into each of 16 states. Emitted words are put in front of `at`; returns the new `at`. There is space for 16
 * words, which are all written, since masked stores are slow on some CPUs. */
TG_AVX512_INLINE uint8_t *push(__m512i *states, uint8_t *at, planned p, uint32_t bits)
{
    const __m512i mask = _mm512_set1_epi32(TG_PLAN_MASK);
    __m512i less = _mm512_and_si512(p.upper, mask), frequency = _mm512_add_epi32(less, _mm512_set1_epi32(1));
    __m512i start = _mm512_and_si512(_mm512_srli_epi32(p.upper, TG_PLAN_START - 32), mask);
    __m512i log = _mm512_srli_epi32(p.upper, TG_PLAN_LOG - 32);
    __m512i x = *states, limit = _mm512_slli_epi32(frequency, 17);
    __mmask16 gives = _mm512_cmpge_epu32_mask(x, limit);
    uint32_t word_n = (uint32_t)_mm_popcnt_u32(gives);
    __m256i words = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(gives, x));
    __m256i order = _mm256_loadu_si256((const __m256i *)(const void *)(to_end + word_n));
    _mm256_storeu_si256((__m256i *)(void *)(at - 32), _mm256_permutexvar_epi16(order, words));
    at -= 2 * (size_t)word_n;
    x = _mm512_mask_srli_epi32(x, gives, x, 16);
    /* (x * inverse) >> (31 + log) is the upper half of 2 x * inverse, shifted by log. */
    __m512i twice = _mm512_add_epi32(x, x);
    __m512i even = _mm512_mul_epu32(twice, p.even), odd = _mm512_mul_epu32(_mm512_srli_epi64(twice, 32), p.odd);
    __m512i quotient = _mm512_srlv_epi32(_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd), log);
    /* quotient * 2^bits + x mod frequency */
    __m512i rest = _mm512_sub_epi32(_mm512_set1_epi32(1 << bits), frequency);
    *states = _mm512_add_epi32(_mm512_add_epi32(x, start), _mm512_mullo_epi32(quotient, rest));
    return at;
}

/* Encodes the last `count` symbols, whole rounds, of one segment, or of each of two. */
TG_AVX512_INLINE void push_rounds(tg_rans_writer *w, size_t count, const tg_rans_plans *plans, int vector_n,
                                  bool are_few)
{
    uint32_t halves[2][TG_RANS_SPAN] = {{0}};
    for (uint32_t s = 0; are_few && s < plans->span; s++) {
        halves[0][s] = (uint32_t)plans->plans[plans->first + s];
        halves[1][s] = (uint32_t)(plans->plans[plans->first + s] >> 32);
    }
    const planner p = {.plans = plans->plans,
                       .first = _mm512_set1_epi32((int)plans->first),
                       .lowers = {_mm512_loadu_si512(halves[0]), _mm512_loadu_si512(halves[0] + 16)},
                       .uppers = {_mm512_loadu_si512(halves[1]), _mm512_loadu_si512(halves[1] + 16)},
                       .bits = plans->bits,
                       .are_few = are_few};
    tg_rans_writer *v = vector_n == 4 ? w + 1 : w;
    const size_t lane_n = vector_n == 1 ? 16 : 32;
    vectors x = load(w->states, v->states, vector_n);
    uint8_t *at = w->at, *other = v->at;
    const uint16_t *here = w->symbols + w->count, *there = v->symbols + v->count, *first = here - count;
    while (here > first) {
        here -= lane_n;
        if (vector_n == 4) {
            there -= lane_n;
            other = push(&x.d, other, plan(there + 16, &p), p.bits);
        }
        if (vector_n >= 2) {
            at = push(&x.b, at, plan(here + 16, &p), p.bits);
        }
        if (vector_n == 4) {
            other = push(&x.c, other, plan(there, &p), p.bits);
        }
        at = push(&x.a, at, plan(here, &p), p.bits);
    }
    store(w->states, v->states, &x, vector_n);
    w->at = at;
    w->count -= count;
    if (vector_n == 4) {
        v->at = other;
        v->count -= count;
    }
}

TG_AVX512_INLINE void push_any(tg_rans_writer *w, size_t count, const tg_rans_plans *plans, int vector_n)
{
    plans->span <= TG_RANS_SPAN ? push_rounds(w, count, plans, vector_n, true)
                                : push_rounds(w, count, plans, vector_n, false);
}

TG_AVX512 void tg_avx512_rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans)
{
    size_t common = SIZE_MAX;
    for (size_t i = 0; i < writer_n; i++) {
        tg_rans_push_rest(&w[i], lane_n < 16 ? 0 : lane_n, lane_n, plans);
        common = w[i].count < common ? w[i].count : common;
    }
    for (size_t i = 0; i < writer_n && lane_n == 32; i++) {
        push_any(&w[i], w[i].count - (writer_n == 2 ? common : 0), plans, 2);
    }
    if (writer_n == 2 && lane_n == 32) {
        push_any(w, common, plans, 4);
    }
    for (size_t i = 0; i < writer_n && lane_n == 16; i++) {
        push_any(&w[i], w[i].count, plans, 1);
    }
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

/* The symbols of 16 states, their frequencies, and the offsets of the states within them. */
typedef struct places {
    __m512i symbol, frequency, offset;
} places;

/* Where symbols are looked up. */
typedef struct finder {
    const uint32_t *slots;
    __m512i lowest, upper, start;
    __m128i bits;
    __m512i symbols, starts, frequencies; /* of few symbols */
    bool are_few;                         /* search among these; false: use the slots */
    bool has_upper;                       /* some symbols are 256 or more */
} finder;

TG_AVX512_INLINE places look_up(__m512i low, const finder *f)
{
    __m512i slot = sixteen(f->slots, low);
    __m512i symbol = _mm512_and_si512(slot, _mm512_set1_epi32(255));
    __m512i less = _mm512_and_si512(_mm512_srli_epi32(slot, 8), _mm512_set1_epi32(4095));
    if (f->has_upper) {
        __mmask16 is_upper = _mm512_cmpge_epu32_mask(low, f->upper);
        symbol = _mm512_mask_add_epi32(symbol, is_upper, symbol, _mm512_set1_epi32(256));
    }
    return (places){.symbol = symbol,
                    .frequency = _mm512_add_epi32(less, _mm512_set1_epi32(1)),
                    .offset = _mm512_srli_epi32(slot, 20)};
}

/* Of few symbols, by binary search in registers. */
TG_AVX512_INLINE places search(__m512i low, const finder *f)
{
    __m512i at = _mm512_setzero_si512();
    for (int step = TG_RANS_FEW / 2; step > 0; step /= 2) {
        __m512i further = _mm512_add_epi32(at, _mm512_set1_epi32(step));
        __mmask16 beyond = _mm512_cmpge_epu32_mask(low, _mm512_permutexvar_epi32(further, f->starts));
        at = _mm512_mask_mov_epi32(at, beyond, further);
    }
    return (places){.symbol = _mm512_permutexvar_epi32(at, f->symbols),
                    .frequency = _mm512_permutexvar_epi32(at, f->frequencies),
                    .offset = _mm512_sub_epi32(low, _mm512_permutexvar_epi32(at, f->starts))};
}

/* Decodes one symbol from each of 16 states, which refill from `at`, to 32-bit lanes; returns the new `at`. */
TG_AVX512_INLINE const uint8_t *pull(__m512i *symbols, __m512i *states, const uint8_t *at, const finder *f)
{
    __m512i low = _mm512_and_si512(*states, f->lowest);
    places p = f->are_few ? search(low, f) : look_up(low, f);
    __m512i next = _mm512_mullo_epi32(p.frequency, _mm512_srl_epi32(*states, f->bits));
    next = _mm512_add_epi32(next, p.offset);
    __mmask16 is_low = _mm512_cmplt_epu32_mask(next, f->start);
    __m512i here = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
    here = _mm512_maskz_expand_epi32(is_low, here);
    *symbols = p.symbol;
    *states = _mm512_mask_or_epi32(next, is_low, _mm512_slli_epi32(next, 16), here);
    return at + 2 * (size_t)_mm_popcnt_u32(is_low);
}

TG_AVX512_INLINE __m512i repeat(const uint32_t few[TG_RANS_FEW])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)few));
}

TG_AVX512_INLINE void pull_rounds(tg_rans_reader *r, const uint8_t *end, const tg_rans_slots *slots, int vector_n,
                                  bool are_few, bool has_upper)
{
    const finder f = {.slots = slots->slots,
                      .lowest = _mm512_set1_epi32((1 << slots->bits) - 1),
                      .upper = _mm512_set1_epi32((int)slots->upper),
                      .start = _mm512_set1_epi32((int)tg_rans_start(slots->bits)),
                      .bits = _mm_cvtsi32_si128((int)slots->bits),
                      .symbols = repeat(slots->few_symbol),
                      .starts = repeat(slots->few_start),
                      .frequencies = repeat(slots->few_frequency),
                      .are_few = are_few,
                      .has_upper = has_upper};
    tg_rans_reader *s = vector_n == 4 ? r + 1 : r;
    const size_t lane_n = vector_n == 1 ? 16 : 32, count = r->left < s->left ? r->left : s->left;
    uint16_t even[32];
    for (uint16_t l = 0; l < 32; l++) {
        even[l] = (uint16_t)(2 * l);
    }
    const __m512i evens = _mm512_loadu_si512(even);
    vectors x = load(r->states, s->states, vector_n);
    const uint8_t *at = r->at, *other = s->at;
    size_t i = 0;
    for (; count - i >= lane_n && (size_t)(end - at) >= 2 * lane_n &&
           (vector_n < 4 || (size_t)(end - other) >= 2 * lane_n);
         i += lane_n) {
        __m512i a, b, c, d; /* symbols of two vectors are stored together */
        at = pull(&a, &x.a, at, &f);
        if (vector_n == 4) {
            other = pull(&c, &x.c, other, &f);
        }
        if (vector_n >= 2) {
            at = pull(&b, &x.b, at, &f);
            _mm512_storeu_si512(r->symbols + i, _mm512_permutex2var_epi16(a, evens, b));
        } else {
            _mm256_storeu_si256((__m256i *)(void *)(r->symbols + i), _mm512_cvtepi32_epi16(a));
        }
        if (vector_n == 4) {
            other = pull(&d, &x.d, other, &f);
            _mm512_storeu_si512(s->symbols + i, _mm512_permutex2var_epi16(c, evens, d));
        }
    }
    store(r->states, s->states, &x, vector_n);
    tg_rans_advance(r, at, i);
    if (vector_n == 4) {
        tg_rans_advance(s, other, i);
    }
}

TG_AVX512_INLINE void pull_any(tg_rans_reader *r, const uint8_t *end, const tg_rans_slots *slots, int vector_n)
{
    bool has_upper = slots->upper >> slots->bits == 0;
    slots->few_n > 0 ? pull_rounds(r, end, slots, vector_n, true, false)
    : has_upper      ? pull_rounds(r, end, slots, vector_n, false, true)
                     : pull_rounds(r, end, slots, vector_n, false, false);
}

TG_AVX512 void tg_avx512_rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                                   const tg_rans_slots *slots)
{
    if (lane_n == 32 && reader_n == 2) {
        pull_any(r, end, slots, 4);
        return;
    }
    for (size_t i = 0; i < reader_n; i++) {
        lane_n == 32 ? pull_any(&r[i], end, slots, 2) : pull_any(&r[i], end, slots, 1);
    }
}
#endif
