/* Kernels of coders, of every instruction set that this processor has, against the scalar ones: the same bytes and symbols. */
#include "kernels/digits.h"
#include "kernels/kernels.h"
#include "kernels/prefix.h"
#include "kernels/rans.h"
#include "kernels/rice.h"
#include "pack/pack.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* ---- the range coder --------------------------------------------------------------------------------------------------- */

enum { KERNEL_N = 64 * 50 };

/* Any frequencies out of 2^bits, at least one of them not 0; now and then a single one. */
static void any_frequencies(uint32_t *frequencies, uint32_t base, uint32_t bits, test_random *r)
{
    uint32_t left = 1u << bits;
    uint32_t only = test_bits(r) % 8 == 0 ? (uint32_t)(test_bits(r) % base) : base;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = s + 1 == base ? left : (uint32_t)(test_bits(r) % (1 + left / (base > 64 ? 20 : 3)));
        frequencies[s] = only == base ? f : s == only ? left : 0;
        left -= only == base ? f : 0;
    }
}

static void any_states(uint32_t *states, uint32_t bits_n, test_random *r)
{
    uint32_t first = tg_rans_start(bits_n), end = first << 16;
    for (uint32_t l = 0; l < TG_RANS_LANES; l++) {
        uint64_t bits = test_bits(r);
        states[l] = bits % 8 == 0 ? first : bits % 8 == 1 ? end - 1 : first + (uint32_t)((bits >> 8) % (end - first));
    }
}

/* Every instruction set pulls the same symbols out of any states and words, of one segment or two. */
static void compare_pulls(const tg_kernels *fast, size_t reader_n, uint32_t lane_n, const uint32_t *frequencies,
                          uint32_t base, uint32_t bits, test_random *r)
{
    static uint32_t slots[4096];
    static uint16_t symbols[2][2][KERNEL_N];
    tg_rans_slots all = {.slots = slots, .bits = bits, .upper = 1u << bits};
    uint32_t at = 0, few_n = 0;
    for (uint32_t l = 0; l < TG_RANS_FEW; l++) {
        all.few_start[l] = 1u << bits;
    }
    for (uint32_t s = 0; s < base; s++) {
        all.upper = s == 256 ? at : all.upper;
        if (frequencies[s] > 0 && few_n++ < TG_RANS_FEW) {
            all.few_symbol[few_n - 1] = s;
            all.few_start[few_n - 1] = at;
            all.few_frequency[few_n - 1] = frequencies[s];
        }
        for (uint32_t o = 0; o < frequencies[s]; o++) {
            slots[at++] = (s & 255) | (frequencies[s] - 1) << 8 | o << 20;
        }
    }
    assert_int_equal(at, 1u << bits);
    all.few_n = few_n <= TG_RANS_FEW ? few_n : 0;
    size_t len = (size_t)(test_bits(r) % (4 * KERNEL_N));
    uint8_t *words = test_room(len + 1);
    for (size_t i = 0; i < len; i++) {
        words[i] = (uint8_t)test_bits(r);
    }
    tg_rans_reader readers[2][2];
    size_t counts[2];
    for (size_t i = 0; i < reader_n; i++) {
        counts[i] = KERNEL_N - (size_t)(test_bits(r) % 80);
        any_states(readers[0][i].states, bits, r);
        readers[0][i].at = words + (size_t)(test_bits(r) % (len + 1));
        readers[0][i].left = counts[i];
        readers[1][i] = readers[0][i];
        readers[0][i].symbols = symbols[0][i];
        readers[1][i].symbols = symbols[1][i];
    }
    tg_kernels_scalar.coders.rans_pull(readers[0], reader_n, lane_n, words + len, &all);
    fast->coders.rans_pull(readers[1], reader_n, lane_n, words + len, &all);
    for (size_t i = 0; i < reader_n; i++) {
        const tg_rans_reader *a = &readers[0][i], *b = &readers[1][i];
        assert_ptr_equal(a->at, b->at);
        assert_int_equal(a->left, b->left);
        assert_int_equal(a->symbols - symbols[0][i], b->symbols - symbols[1][i]);
        assert_int_equal(a->symbols - symbols[0][i], counts[i] - a->left);
        assert_memory_equal(a->states, b->states, sizeof a->states);
        assert_memory_equal(symbols[0][i], symbols[1][i], (counts[i] - a->left) * sizeof(uint16_t));
    }
    free(words);
}

/* And pushes any symbols into any states with the same words. */
static void compare_pushes(const tg_kernels *fast, size_t writer_n, uint32_t lane_n, const uint32_t *frequencies,
                           uint32_t base, uint32_t bits, test_random *r)
{
    uint64_t *plans = test_room(base * sizeof *plans), start = 0;
    uint16_t used[TG_BASE_MAX], symbols[2][KERNEL_N];
    uint32_t used_n = 0;
    for (uint32_t s = 0; s < base; s++) {
        uint32_t f = frequencies[s], log = 0;
        plans[s] = 0;
        if (f > 0) {
            for (; 1u << log < f; log++) {
            }
            plans[s] = ((UINT64_C(1) << (31 + log)) + f - 1) / f | (uint64_t)(f - 1) << TG_PLAN_FREQUENCY |
                       start << TG_PLAN_START | (uint64_t)log << TG_PLAN_LOG;
            used[used_n++] = (uint16_t)s;
            start += f;
        }
    }
    tg_rans_plans all = {.plans = plans, .bits = bits, .first = used[0], .span = 1u + used[used_n - 1] - used[0]};
    tg_rans_writer writers[2][2];
    uint8_t *words[2][2];
    size_t counts[2];
    for (size_t i = 0; i < writer_n; i++) {
        size_t n = counts[i] = (size_t)(test_bits(r) % KERNEL_N);
        for (size_t s = 0; s < n; s++) {
            symbols[i][s] = used[test_bits(r) % used_n];
        }
        any_states(writers[0][i].states, bits, r);
        writers[0][i].symbols = symbols[i];
        writers[0][i].count = n;
        writers[1][i] = writers[0][i];
        for (size_t k = 0; k < 2; k++) {
            words[k][i] = test_room(2 * n + 1);
            writers[k][i].at = words[k][i] + 2 * n;
        }
    }
    tg_kernels_scalar.coders.rans_push(writers[0], writer_n, lane_n, &all);
    fast->coders.rans_push(writers[1], writer_n, lane_n, &all);
    for (size_t i = 0; i < writer_n; i++) {
        const tg_rans_writer *a = &writers[0][i], *b = &writers[1][i];
        size_t len = (size_t)(words[0][i] + 2 * counts[i] - a->at);
        assert_int_equal(words[1][i] + 2 * counts[i] - b->at, len);
        assert_memory_equal(a->states, b->states, sizeof a->states);
        assert_memory_equal(a->at, b->at, len);
        free(words[1][i]);
        free(words[0][i]);
    }
    free(plans);
}

static void range_coders_agree(void **state)
{
    (void)state;
    static const uint32_t bases[] = {1, 2, 3, 4, 5, 11, 16, 17, 32, 33, 247, 256, 257, 512};
    static const uint32_t lanes[] = {16, 32, 32, 1, 4};
    test_random r = {29};
    uint32_t frequencies[TG_BASE_MAX];
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (int round = 0; fast != NULL && round < 2000; round++) {
            uint32_t base = bases[round % 14], bits = 8 + (uint32_t)(test_bits(&r) % 7),
                     lane = (uint32_t)(round / 14 % 5);
            any_frequencies(frequencies, base, bits, &r);
            size_t segment_n = lane == 2 ? 2 : 1;
            compare_pushes(fast, segment_n, lanes[lane], frequencies, base, bits, &r);
            if (bits <= 12 && lane < 3) {
                compare_pulls(fast, segment_n, lanes[lane], frequencies, base, bits, &r);
            }
        }
    }
}

/* ---- prefix codes ------------------------------------------------------------------------------------------------------ */

/* Any codes, in room that is exact: what is written is the same, and what is behind it is not touched. */
static void compare_writes(const tg_kernels *fast, uint32_t base, test_random *r)
{
    static tg_prefix_codes codes;
    static uint16_t symbols[KERNEL_N];
    uint64_t bits = 0;
    for (uint32_t s = 0; s < base; s++) {
        uint64_t length = 1 + test_bits(r) % TG_PREFIX_LONGEST;
        codes.entries[s] = length | (test_bits(r) & ((1u << length) - 1)) << TG_PREFIX_CODE;
    }
    codes.has_pairs = base <= TG_PREFIX_PAIR_BASE;
    for (uint32_t i = 0; codes.has_pairs && i < base * base; i++) {
        uint64_t a = codes.entries[i % base], b = codes.entries[i / base], length = a & 63;
        uint64_t pair = a >> TG_PREFIX_CODE | (b >> TG_PREFIX_CODE) << length;
        codes.pairs[i % base + TG_PREFIX_PAIR_BASE * (i / base)] = (length + (b & 63)) | pair << TG_PREFIX_CODE;
    }
    size_t n = (size_t)(test_bits(r) % (test_bits(r) % 2 == 0 ? 20 : KERNEL_N));
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(test_bits(r) % base);
        bits += codes.entries[symbols[i]] & 63;
    }
    size_t len = (size_t)((bits + 7) / 8);
    uint8_t *want = test_room(len + 1), *got = test_room(len + 1);
    memset(want, 0, len + 1);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint64_t b = 0; b < (codes.entries[symbols[i]] & 63); b++, at++) {
            want[at / 8] |= (uint8_t)((codes.entries[symbols[i]] >> (TG_PREFIX_CODE + b) & 1) << at % 8);
        }
    }
    assert_ptr_equal(fast->coders.prefix_write(got, got + len, symbols, n, &codes), got + len);
    assert_memory_equal(got, want, len);
    free(got);
    free(want);
}

/* Any tables: they need not be those of a code. */
static void compare_reads(const tg_kernels *fast, size_t stream_n, test_random *r)
{
    static tg_prefix_tables tables;
    tables.has_slots = test_bits(r) % 2 == 0;
    for (uint32_t i = 0; i < TG_PREFIX_SLOTS; i++) {
        uint64_t length = 1 + test_bits(r) % TG_PREFIX_LONGEST, n = 1 + test_bits(r) % TG_PREFIX_SLOT_SYMBOLS;
        tables.singles[i] = (uint16_t)(length | test_bits(r) % 512 << TG_PREFIX_SINGLE_SYMBOL);
        tables.slots[i] = length | n << TG_PREFIX_SLOT_N | test_bits(r) << TG_PREFIX_SLOT_SYMBOL;
    }
    tg_prefix_stream streams[2][4];
    uint8_t *bytes[4];
    uint16_t *symbols[2][4];
    for (size_t i = 0; i < stream_n; i++) {
        size_t len = (size_t)(test_bits(r) % 300), n = (size_t)(test_bits(r) % 400);
        bytes[i] = test_room(len);
        for (size_t b = 0; b < len; b++) {
            bytes[i][b] = (uint8_t)test_bits(r);
        }
        for (int k = 0; k < 2; k++) {
            symbols[k][i] = test_room(n * sizeof(uint16_t));
            memset(symbols[k][i], 0, n * sizeof(uint16_t));
            streams[k][i] = (tg_prefix_stream){.at = bytes[i],
                                               .end = bytes[i] + len,
                                               .skip = len > 0 ? (uint32_t)(len % 8) : 0,
                                               .out = symbols[k][i],
                                               .out_end = symbols[k][i] + n};
        }
    }
    tg_kernels_scalar.coders.prefix_read(streams[0], stream_n, &tables);
    fast->coders.prefix_read(streams[1], stream_n, &tables);
    for (size_t i = 0; i < stream_n; i++) {
        const tg_prefix_stream *a = &streams[0][i], *b = &streams[1][i];
        assert_ptr_equal(a->at, b->at);
        assert_int_equal(a->skip, b->skip);
        assert_int_equal(a->out - symbols[0][i], b->out - symbols[1][i]);
        assert_true(a->at <= a->end && a->out <= a->out_end);
        assert_true(a->end - a->at < 24 || a->out_end - a->out < 16); /* what is left is little */
        assert_memory_equal(symbols[0][i], symbols[1][i], (size_t)(a->out - symbols[0][i]) * sizeof(uint16_t));
        free(symbols[0][i]);
        free(symbols[1][i]);
        free(bytes[i]);
    }
}

static void prefix_codes_agree(void **state)
{
    (void)state;
    static const uint32_t bases[] = {1, 2, 3, 11, 16, 17, 247, 512};
    test_random r = {31};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (int round = 0; fast != NULL && round < 300; round++) {
            compare_writes(fast, bases[round % 8], &r);
            compare_reads(fast, round % 3 == 0 ? 1 : 4, &r);
        }
    }
}

/* ---- plain bits and counts --------------------------------------------------------------------------------------------- */

enum { SYMBOL_N = 9000 };

/* Both write the same bytes, nothing after them, and read them back; both refuse a bit after the last symbol. */
static void compare_bits(const tg_kernels *fast, tg_digits d, size_t n, test_random *r)
{
    static uint16_t symbols[SYMBOL_N], back[SYMBOL_N + 1];
    size_t bits = (n + d.symbols - 1) / d.symbols * d.bits, len = (bits + 7) / 8;
    uint8_t *want = test_room(len + 1), *got = test_room(len + 1);
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(test_bits(r) % 4 == 0 ? d.base - 1 : test_bits(r) % d.base);
    }
    want[len] = got[len] = 0xa5;
    tg_kernels_scalar.coders.bits_write(want, symbols, n, d);
    fast->coders.bits_write(got, symbols, n, d);
    assert_memory_equal(want, got, len + 1);
    back[n] = 0xa5a5;
    assert_true(fast->coders.bits_read(back, got, n, d));
    assert_memory_equal(back, symbols, n * sizeof *back);
    assert_int_equal(back[n], 0xa5a5);
    for (size_t bit = bits; bit < 8 * len; bit++) {
        got[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(tg_kernels_scalar.coders.bits_read(back, got, n, d));
        assert_false(fast->coders.bits_read(back, got, n, d));
        got[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (int round = 0; round < 4 && len > 0; round++) { /* any number there */
        uint8_t *byte = got + test_bits(r) % len, before = *byte;
        *byte = (uint8_t)test_bits(r);
        bool sound = tg_kernels_scalar.coders.bits_read(symbols, got, n, d);
        assert_int_equal(fast->coders.bits_read(back, got, n, d), sound);
        assert_true(!sound || memcmp(back, symbols, n * sizeof *back) == 0);
        *byte = before;
    }
    free(got);
    free(want);
}

/* Any bytes, which may hold numbers that are too large: all refuse the same ones, and read the same symbols from others. One group is
 * the largest that is valid, or larger, or all bytes are random. */
static void compare_hostile(const tg_kernels *fast, tg_digits d, size_t n, test_random *r)
{
    static uint16_t symbols[SYMBOL_N], back[2][SYMBOL_N];
    size_t groups = (n + d.symbols - 1) / d.symbols, len = (groups * d.bits + 7) / 8;
    uint64_t limit = 1, most = (UINT64_C(1) << d.bits) - 1;
    uint8_t *bytes = test_room(len);
    for (uint32_t i = 0; i < d.symbols; i++) {
        limit *= d.base;
    }
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < n; i++) {
            symbols[i] = (uint16_t)(test_bits(r) % d.base);
        }
        tg_kernels_scalar.coders.bits_write(bytes, symbols, n, d);
        size_t bit = groups > 0 ? (size_t)(test_bits(r) % groups) * d.bits : 0;
        uint64_t number = kind == 0 || limit > most ? limit - 1 : limit + test_bits(r) % (most - limit + 1);
        for (uint32_t b = 0; kind < 2 && groups > 0 && b < d.bits; b++, bit++) {
            bytes[bit / 8] = (uint8_t)((bytes[bit / 8] & ~(1u << bit % 8)) | (number >> b & 1) << bit % 8);
        }
        for (size_t i = 0; kind == 2 && i < len; i++) {
            bytes[i] = (uint8_t)test_bits(r);
        }
        bool sound = tg_kernels_scalar.coders.bits_read(back[0], bytes, n, d);
        assert_int_equal(fast->coders.bits_read(back[1], bytes, n, d), sound);
        assert_true(!sound || memcmp(back[0], back[1], n * sizeof **back) == 0);
        size_t whole = n / d.symbols / 8 * 8; /* moved to the buffer's end */
        memmove(bytes + len - whole * d.bits / 8, bytes, whole * d.bits / 8);
        const uint8_t *numbers = bytes + len - whole * d.bits / 8;
        sound = tg_kernels_scalar.coders.numbers_below(numbers, whole, d.bits, limit);
        assert_int_equal(fast->coders.numbers_below(numbers, whole, d.bits, limit), sound);
    }
    free(bytes);
}

static void compare_counts(const tg_kernels *fast, uint32_t base, size_t n, test_random *r)
{
    static uint16_t symbols[SYMBOL_N];
    uint32_t want[TG_BASE_MAX] = {0}, got[2][TG_BASE_MAX] = {{0}};
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (uint16_t)(test_bits(r) % base);
        want[symbols[i]]++;
    }
    tg_kernels_scalar.coders.count(got[0], symbols, n, base);
    fast->coders.count(got[1], symbols, n, base);
    assert_memory_equal(want, got[0], sizeof want);
    assert_memory_equal(want, got[1], sizeof want);
}

static void plain_bits_and_counts_agree(void **state)
{
    (void)state;
    static const tg_digits digits[] = {{2, 1, 1},   {3, 5, 8},    {4, 1, 2},    {5, 3, 7},   {6, 5, 13},   {7, 6, 17},
                                       {8, 1, 3},   {9, 5, 16},   {10, 3, 10},  {11, 2, 7},  {13, 7, 26},  {16, 1, 4},
                                       {17, 8, 33}, {22, 2, 9},   {30, 1, 5},   {33, 8, 41}, {58, 8, 47},  {64, 1, 6},
                                       {80, 3, 19}, {115, 7, 48}, {127, 6, 42}, {128, 1, 7}, {150, 4, 29}, {200, 1, 8},
                                       {239, 1, 8}, {247, 1, 8},  {256, 1, 8},  {500, 1, 9}, {512, 1, 9}};
    test_random r = {37};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (size_t d = 0; fast != NULL && d < sizeof digits / sizeof *digits; d++) {
            for (size_t n = 0; n < 400; n += 1 + n / 200 * 7) {
                compare_bits(fast, digits[d], n, &r);
                compare_hostile(fast, digits[d], n, &r);
                compare_counts(fast, digits[d].base, n, &r);
            }
            compare_bits(fast, digits[d], SYMBOL_N - 3, &r);
            compare_hostile(fast, digits[d], SYMBOL_N - 3, &r);
            compare_counts(fast, digits[d].base, SYMBOL_N - 3, &r);
        }
    }
}

/* ---- Rice codes -------------------------------------------------------------------------------------------------------- */

/* Ascending indices with gaps of about 2^k, and now and then one whose code is longer than eight bytes. */
static size_t any_list(uint32_t *list, unsigned k, size_t most, test_random *r)
{
    uint32_t at = 0;
    for (size_t i = 0; i < most; i++) {
        uint64_t bits = test_bits(r);
        at += (uint32_t)(bits >> 8) % (2u << k) + (bits % 256 == 0 ? 70u << k : 0);
        list[i] = at++;
    }
    return most;
}

/* The same bytes as the scalar kernel, nothing after the end, and the list comes back. */
static void compare_rice(const tg_kernels *fast, unsigned k, size_t n, test_random *r)
{
    enum { SPACE = 4096, GUARD = 0xa5 };
    uint32_t list[200], back[200];
    size_t count = any_list(list, k, n, r), len = 8 + (size_t)(test_bits(r) % (SPACE - 64));
    uint8_t bytes[2][SPACE];
    tg_rice_writer writers[2];
    for (int w = 0; w < 2; w++) {
        const tg_kernels *kernels = w == 0 ? &tg_kernels_scalar : fast;
        memset(bytes[w], GUARD, SPACE);
        writers[w] = (tg_rice_writer){.out = bytes[w], .end = bytes[w] + len};
        size_t done = kernels->coders.rice_write(&writers[w], k, list, count);
        assert_true(done <= count);
        count = done;
        for (size_t i = len; i < SPACE; i++) {
            assert_int_equal(bytes[w][i], GUARD);
        }
    }
    size_t written = (size_t)(writers[0].out - bytes[0]);
    assert_int_equal(writers[1].out - bytes[1], written);
    assert_true(writers[0].held == writers[1].held && writers[0].held_n == writers[1].held_n);
    assert_int_equal(writers[0].next, writers[1].next);
    assert_memory_equal(bytes[0], bytes[1], written);
    for (int w = 0; w < 2; w++) {
        bytes[w][written] = (uint8_t)writers[w].held;
        tg_rice_reader reader = {.bytes = bytes[w], .bit_n = 8 * (uint64_t)SPACE, .left = count, .list = back};
        assert_true((w == 0 ? &tg_kernels_scalar : fast)->coders.rice_read(&reader, k, UINT32_MAX));
        assert_memory_equal(back, list, (count - reader.left) * sizeof *list);
    }
}

static void rice_codes_agree(void **state)
{
    (void)state;
    test_random random = {23};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (unsigned k = 0; fast != NULL && k <= 17; k++) {
            for (size_t n = 0; n < 200; n += 1 + n / 4) {
                compare_rice(fast, k, n, &random);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(range_coders_agree),
        cmocka_unit_test(prefix_codes_agree),
        cmocka_unit_test(plain_bits_and_counts_agree),
        cmocka_unit_test(rice_codes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
