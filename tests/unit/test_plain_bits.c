/* Symbols at their plain width (pack/bits.c), by the kernels that this CPU uses, against the definition in docs/format.md. */
#include "support.h"

#include "pack/pack.h"

#include <math.h>
#include <string.h>

enum { N = 3000 };
static const size_t lens[] = {1, 7, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 1000, 2048, N};
enum { LEN_N = sizeof lens / sizeof *lens };

/* Group by group, as in docs/format.md. Returns the bits of a group. */
static uint32_t write_by_definition(uint8_t *out, const uint16_t *symbols, size_t n, uint32_t base)
{
    uint32_t best_n = 1, best_bits = 0;
    double least = INFINITY;
    for (uint32_t k = 1; k <= 8 && pow(base, k) <= 0x1p48; k++) {
        uint32_t bits = 0;
        while (ldexp(1, (int)bits) < pow(base, k)) {
            bits++;
        }
        if ((double)bits / k < least - 1e-9) {
            least = (double)bits / k;
            best_n = k;
            best_bits = bits;
        }
    }
    memset(out, 0, (size_t)tg_bits_len(n, base));
    for (size_t at = 0, bit = 0; at < n; at += best_n, bit += best_bits) {
        uint64_t number = 0, place = 1;
        for (size_t i = at; i < at + best_n && i < n; i++, place *= base) {
            number += symbols[i] * place;
        }
        for (uint32_t b = 0; b < best_bits; b++) {
            out[(bit + b) / 8] |= (uint8_t)((number >> b & 1) << (bit + b) % 8);
        }
    }
    return best_n;
}

static void bits_are_as_defined(void **state)
{
    (void)state;
    static uint16_t symbols[N], back[N];
    static uint8_t bytes[2 * N], expected[2 * N];
    static const uint32_t bases[] = {2,  3,  4,  5,  6,   7,   9,   10,  11,  15,  17, 31,
                                     33, 40, 41, 63, 100, 127, 128, 200, 255, 257, 512};
    test_random random = {5};
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        for (size_t l = 0; l < LEN_N; l++) {
            size_t n = lens[l], len = (size_t)tg_bits_len(n, bases[b]);
            for (size_t i = 0; i < n; i++) {
                symbols[i] = (uint16_t)(test_bits(&random) % 4 == 0 ? bases[b] - 1 : test_bits(&random) % bases[b]);
            }
            (void)write_by_definition(expected, symbols, n, bases[b]);
            memset(bytes, 0xa5, sizeof bytes);
            tg_bits_write(bytes, symbols, n, bases[b]);
            assert_memory_equal(bytes, expected, len);
            assert_true(bytes[len] == 0xa5); /* nothing written after it */
            assert_true(tg_bits_check(bytes, n, bases[b]));
            assert_true(tg_bits_read(back, bytes, n, bases[b]));
            assert_memory_equal(back, symbols, n * sizeof *back);
        }
    }
}

/* All numbers of five digits in sequence. */
static void all_fives_are_read(void **state)
{
    (void)state;
    enum { NUMBERS = 59049 };
    static uint8_t bytes[2 * NUMBERS];
    static uint16_t symbols[5 * NUMBERS];
    for (uint32_t base = 3; base <= 9; base += 6) {
        size_t len = base == 3 ? 1 : 2, n = base == 3 ? 243 : NUMBERS;
        for (size_t i = 0; i < n; i++) {
            bytes[len * i] = (uint8_t)i;
            bytes[len * i + len - 1] = (uint8_t)(i >> 8 * (len - 1));
        }
        assert_true(tg_bits_read(symbols, bytes, 5 * n, base));
        for (size_t i = 0; i < n; i++) {
            size_t number = i;
            for (size_t digit = 0; digit < 5; digit++, number /= base) {
                assert_int_equal(symbols[5 * i + digit], number % base);
            }
        }
    }
}

/* Both detect a group that is too large, or a set bit after the last group. */
static void bad_bits_are_refused(void **state)
{
    (void)state;
    static uint16_t symbols[N], back[N];
    static uint8_t bytes[2 * N];
    static const uint32_t bases[] = {3, 5, 9, 11, 33, 100};
    test_random random = {6};
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        uint32_t align = tg_bits_align(bases[b]);
        size_t n = 1000 / align * align, len = (size_t)tg_bits_len(n, bases[b]);
        for (size_t i = 0; i < n; i++) {
            symbols[i] = (uint16_t)(test_bits(&random) % bases[b]);
        }
        size_t groups = n / (align / 8), bits = 8 * len / groups;
        for (size_t g = 0; g < groups; g++) {
            tg_bits_write(bytes, symbols, n, bases[b]);
            for (size_t bit = g * bits; bit < (g + 1) * bits; bit++) {
                bytes[bit / 8] |= (uint8_t)(1u << bit % 8);
            }
            assert_false(tg_bits_check(bytes, n, bases[b]));
            assert_false(tg_bits_read(back, bytes, n, bases[b]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_as_defined),
        cmocka_unit_test(bad_bits_are_refused),
        cmocka_unit_test(all_fives_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
