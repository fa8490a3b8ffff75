/* Kernels of every instruction set that this CPU has access nothing outside of what they are given: all buffers lie between pages
 * without access, at the end of their own pages or, where a kernel writes downwards, at the start. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support.h"

#include "kernels/digits.h"
#include "kernels/kernels.h"
#include "kernels/minifloat.h"
#include "kernels/rans.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFERS = 6, SPACE = 1 << 16, N = 700 };

/* Where the pages of each buffer begin. */
static uint8_t *starts[BUFFERS];
static size_t space;

static int make_buffers(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)state;
    space = (SPACE + page - 1) / page * page;
    for (size_t b = 0; b < BUFFERS; b++) {
        uint8_t *all = mmap(NULL, space + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED || mprotect(all + page, space, PROT_READ | PROT_WRITE) != 0) {
            return -1;
        }
        starts[b] = all + page;
    }
    return 0;
}

/* The last `len` bytes of a buffer, with random content. */
static void *last(size_t buffer, size_t len)
{
    test_random random = {buffer + 1};
    uint8_t *bytes = starts[buffer] + space - len;
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)test_bits(&random);
    }
    return bytes;
}

static float *last_floats(size_t buffer, size_t n)
{
    test_random random = {buffer + 1};
    float *floats = last(buffer, n * sizeof *floats);
    for (size_t i = 0; i < n; i++) {
        floats[i] = (float)(int64_t)(test_bits(&random) % 2001) * 0.001f - 1;
    }
    return floats;
}

static uint16_t *last_symbols(size_t buffer, size_t n, uint32_t base)
{
    test_random random = {buffer + 1};
    uint16_t *symbols = last(buffer, n * sizeof *symbols);
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(test_bits(&random) % base);
    }
    return symbols;
}

typedef void (*call)(const tg_kernels *k, size_t n);

static void everywhere(call all)
{
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (size_t n = 0; k != NULL && n < N; n += 1 + n / 100) {
            all(k, n);
        }
    }
}

static void call_passes(const tg_kernels *k, size_t n)
{
    const float *a = last_floats(0, n), *b = last_floats(1, n);
    float *out = last_floats(2, n), *also = last_floats(3, n);
    assert_true(k->passes.all_finite(a, n));
    for (int streams = 0; streams < 2; streams++) {
        assert_true(k->passes.accumulate(out, also, a, b, 0.5f, n, streams));
        assert_true(k->passes.subtract(out, a, b, n, streams));
        assert_true(k->passes.divide(out, a, 2.0f, n, streams));
        assert_true(k->passes.divide(out, a, 3.0f, n, streams));
        k->passes.copy(out, a, n, streams);
    }
    k->passes.stream_bytes(last(4, n), (const uint8_t *)a, n);
    k->passes.add(out, a, 0.5f, n);
    assert_true(k->halves.fp16_narrow(last(4, 2 * n), a, n));
    assert_true(k->halves.all_finite(starts[4] + space - 2 * n, 0x7c00, n));
    k->halves.fp16_widen(out, starts[4] + space - 2 * n, n);
    k->halves.fp16_add(out, starts[4] + space - 2 * n, 0.5f, n);
    assert_true(k->halves.bf16_narrow(last(4, 2 * n), a, n));
    k->halves.bf16_widen(out, starts[4] + space - 2 * n, n);
    k->halves.bf16_add(out, starts[4] + space - 2 * n, 0.5f, n);
    tg_store_fence();
}

static void call_selection(const tg_kernels *k, size_t n)
{
    float *a = last_floats(0, n);
    const float *b = last_floats(1, n);
    uint64_t *mask = last(2, (n + 63) / 64 * 8);
    (void)k->select.largest_key(a, n);
    k->select.mark_keys(mask, a, 0x3f000000, n);
    size_t marks = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        marks += (size_t)__builtin_popcountll(mask[w]);
    }
    assert_int_equal(k->select.list_marks(last(3, (marks + TG_LIST_MORE) * sizeof(uint32_t)), mask, 3, n), marks);
    float *values = last(4, marks * sizeof *values);
    assert_int_equal(k->select.compress(values, a, mask, n), marks);
    k->select.expand_add(a, mask, values, 0.5f, n);
    k->select.expand_set(a, mask, values, n);
    for (size_t at = 0; at < n; at += 1 + n / 3) {
        k->select.mark_bin(mask, at, a + at, b + at, 0.5f, 0x3f000000, n - at);
    }
}

static void call_symbols(const tg_kernels *k, size_t n)
{
    const float *values = last_floats(0, n);
    uint16_t *symbols = last_symbols(1, n, 2), *upper = last(2, n * sizeof *upper);
    const tg_draws draws = {.upper = upper, .key = 1};
    k->symbols.draw(last(3, 16 * n), 1, 2, 3, n, values);
    k->symbols.ternary(symbols, values, &draws, 1.0f, n);
    k->symbols.two_sided(symbols, values, &draws, 1.0f, n);
    k->symbols.levels(symbols, values, &draws, 1.0f, 7.0f, 7, n);
    k->symbols.natural(symbols, values, &draws, n);
    k->symbols.powers(last_floats(4, n), symbols, n);
    k->symbols.minifloats(symbols, values, 0.1f, (tg_float_format){1, 1, 7}, n);
    k->symbols.signs(symbols, values, n);
    k->symbols.mark_above(symbols, values, 0.25f, n);
    for (uint32_t table_n = 2; table_n < 80; table_n += 1 + table_n / 3) {
        float *table = last_floats(3, table_n);
        for (uint32_t i = 0; i < table_n; i++) {
            table[i] = (float)i / (float)table_n - 0.5f;
        }
        k->symbols.count_above(symbols, values, table, table_n - 1, n);
        k->symbols.look_up(last_floats(4, n), symbols, table, table_n, n);
        k->symbols.look_up_add(last_floats(4, n), symbols, table, table_n, n);
        k->symbols.round_between(symbols, values, &draws, table, table_n, 1.0f, n);
    }
}

static void call_statistics(const tg_kernels *k, size_t n)
{
    const float *values = last_floats(0, n);
    double sums[2] = {0};
    float ends[2];
    (void)k->statistics.magnitudes(values, n);
    (void)k->statistics.squares(values, n);
    (void)k->statistics.moments(sums, values, n);
    (void)k->statistics.sums_around(sums, values, 0.25f, 0.5f, n);
    (void)k->statistics.sum_above(sums, values, 0.25f, n);
    if (n == 0) {
        return;
    }
    k->statistics.ends(ends, values, n);
    (void)k->statistics.ways_up(values, 1, 0x1p40, n);
    for (size_t m = 0; m < n; m += 1 + n / 3) {
        tg_ordered at = k->statistics.nth(last(1, 2 * n * sizeof(float)), values, n, m);
        assert_true(at.less <= m && m < at.less + at.equal);
        k->statistics.split(last_floats(2, n), values, n, &at);
    }
}

static void call_bits(const tg_kernels *k, size_t n)
{
    static const tg_digits digits[] = {{2, 1, 1},   {3, 5, 8},     {4, 1, 2},     {5, 3, 7},    {6, 5, 13},
                                       {9, 5, 16},  {10, 3, 10},   {11, 2, 7},    {16, 1, 4},   {33, 8, 41},
                                       {63, 8, 48}, {127, 6, 42},  {200, 1, 8},   {200, 3, 23}, {512, 1, 9},
                                       {300, 1, 9}, {9999, 1, 14}, {65536, 1, 16}};
    for (size_t d = 0; d < sizeof digits / sizeof *digits; d++) {
        size_t len = ((n + digits[d].symbols - 1) / digits[d].symbols * digits[d].bits + 7) / 8;
        const uint16_t *symbols = last_symbols(0, n, digits[d].base);
        uint16_t *back = last(1, n * sizeof *back);
        uint8_t *bytes = last(2, len);
        uint32_t counts[TG_BASE_MAX] = {0};
        k->coders.bits_write(bytes, symbols, n, digits[d]);
        assert_true(k->coders.bits_read(back, bytes, n, digits[d]));
        assert_memory_equal(back, symbols, n * sizeof *back);
        if (digits[d].base <= TG_BASE_MAX) {
            k->coders.count(counts, symbols, n, digits[d].base);
        }
        uint64_t limit = 1; /* n numbers that are as large as possible */
        for (uint32_t i = 0; i < digits[d].symbols; i++) {
            limit *= digits[d].base;
        }
        size_t numbers = n / digits[d].symbols / 8 * 8, numbers_len = numbers / 8 * digits[d].bits;
        uint8_t *exact = last(3, numbers_len);
        memcpy(exact, bytes, numbers_len);
        assert_true(k->coders.numbers_below(exact, numbers, digits[d].bits, limit));
        for (size_t bit = 0; bit < 8 * numbers_len && limit >> digits[d].bits == 0; bit++) { /* one that is not */
            exact[bit / 8] |= (uint8_t)(1u << bit % 8);
            if (bit % digits[d].bits == digits[d].bits - 1) {
                assert_false(k->coders.numbers_below(exact, numbers, digits[d].bits, limit));
                memcpy(exact, bytes, numbers_len);
            }
        }
    }
}

static void call_words(const tg_kernels *k, size_t n)
{
    for (uint32_t word_len = 2; word_len <= 4; word_len += 2) {
        const uint8_t *words = last(0, word_len * n);
        uint16_t *uppers = last(1, n * sizeof *uppers);
        uint8_t *lowers = last(2, (word_len - 1) * n), *back = last(3, word_len * n);
        k->coders.split_words(uppers, lowers, words, word_len, n);
        k->coders.join_words(back, uppers, lowers, word_len, n);
        assert_memory_equal(back, words, word_len * n);
    }
}

/* Symbols of the same frequency, out of 2^8. */
static void call_range_coder(const tg_kernels *k, size_t n)
{
    for (uint32_t base = 2; base <= 256; base *= 4) {
        uint64_t *plans = last(0, base * sizeof *plans);
        uint32_t *slots = last(1, 256 * sizeof *slots), f = 256 / base, log = (uint32_t)__builtin_ctz(f);
        tg_rans_slots all = {.slots = slots, .bits = 8, .upper = 256, .few_n = base <= TG_RANS_FEW ? base : 0};
        for (uint32_t s = 0; s < TG_RANS_FEW; s++) {
            all.few_symbol[s] = s;
            all.few_start[s] = s < base ? s * f : 256;
            all.few_frequency[s] = f;
        }
        for (uint32_t s = 0; s < base; s++) {
            plans[s] = UINT64_C(1) << 31 | (uint64_t)(f - 1) << TG_PLAN_FREQUENCY | (uint64_t)(s * f) << TG_PLAN_START |
                       (uint64_t)log << TG_PLAN_LOG;
        }
        for (uint32_t i = 0; i < 256; i++) {
            slots[i] = i / f | (f - 1) << 8 | i % f << 20;
        }
        const tg_rans_plans coder = {.plans = plans, .bits = 8, .first = 0, .span = base};
        const uint16_t *symbols = last_symbols(2, n, base);
        for (uint32_t run = 0; run < 3; run++) { /* 16 states, 32, and two segments of 32 */
            uint32_t lane_n = run == 0 ? 16 : 32;
            size_t segment_n = run == 2 ? 2 : 1;
            tg_rans_writer w[2] = {{.symbols = symbols, .count = n}, {.symbols = symbols, .count = n}};
            tg_rans_reader r[2];
            for (uint32_t l = 0; l < 2 * TG_RANS_LANES; l++) {
                w[l / TG_RANS_LANES].states[l % TG_RANS_LANES] = tg_rans_start(8);
            }
            w[0].at = starts[4] + 2 * n;
            w[1].at = starts[3] + 2 * n;
            k->coders.rans_push(w, segment_n, lane_n, &coder);
            size_t len = (size_t)(starts[4] + 2 * n - w[0].at); /* the same for both */
            const uint8_t *words = last(5, len), *stop = words + len;
            memcpy(starts[5] + space - len, w[0].at, len);
            assert_memory_equal(w[segment_n - 1].at, w[0].at, len);
            for (size_t i = 0; i < segment_n; i++) {
                memcpy(r[i].states, w[i].states, sizeof r[i].states);
                r[i].at = words;
                r[i].symbols = last(3 + (uint32_t)i, n * sizeof(uint16_t));
                r[i].left = n;
            }
            k->coders.rans_pull(r, segment_n, lane_n, stop, &all);
            for (size_t i = 0; i < segment_n; i++) {
                size_t done = n - r[i].left;
                assert_memory_equal(r[i].symbols - done, symbols, done * sizeof *symbols);
            }
        }
    }
}

static void passes_stay_inside(void **state)
{
    (void)state;
    everywhere(call_passes);
}

static void selection_stays_inside(void **state)
{
    (void)state;
    everywhere(call_selection);
}

static void symbols_stay_inside(void **state)
{
    (void)state;
    everywhere(call_symbols);
}

static void statistics_stay_inside(void **state)
{
    (void)state;
    everywhere(call_statistics);
}

static void bits_stay_inside(void **state)
{
    (void)state;
    everywhere(call_bits);
}

static void words_stay_inside(void **state)
{
    (void)state;
    everywhere(call_words);
}

static void range_coders_stay_inside(void **state)
{
    (void)state;
    everywhere(call_range_coder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_stay_inside),       cmocka_unit_test(selection_stays_inside),
        cmocka_unit_test(symbols_stay_inside),      cmocka_unit_test(statistics_stay_inside),
        cmocka_unit_test(bits_stay_inside),         cmocka_unit_test(words_stay_inside),
        cmocka_unit_test(range_coders_stay_inside),
    };
    return cmocka_run_group_tests(tests, make_buffers, NULL);
}
