/* Packs: round trips, the promised sizes, and damaged bytes. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const tg_index_part tg_index_adacomp8, tg_index_adacomp16;

enum { N = TG_CHUNK };

static size_t random_mask(uint64_t *mask, size_t n, double density, test_random *r)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (size_t i = 0; i < n; i++) {
        mask[i / 64] |= (uint64_t)(test_uniform(r) < density) << i % 64;
    }
    return (size_t)tg_mask_count(mask, n);
}

/* Writes, checks the size against bitmap and limit, reads back. Returns the length. */
static size_t round_trip(const tg_index_part *part, const uint64_t *mask, size_t n, size_t count)
{
    uint8_t *bytes = test_room(tg_bitmap_len(n)); /* of the exact length: a sanitizer detects any access past its end */
    uint64_t *back = test_room(tg_words(n) * sizeof *back);
    uint8_t mode = 255;
    size_t len = part->write(bytes, &mode, mask, NULL, n, count);
    assert_true(len <= tg_bitmap_len(n));
    assert_true(len <= part->limit(n, count) + 1);
    assert_true(part->read(back, mode, bytes, len, n, count));
    assert_memory_equal(back, mask, tg_words(n) * sizeof *mask);
    /* The same from a list, and to one. */
    uint32_t *list = test_room((count + TG_LIST_MORE) * sizeof *list), *listed = test_room(count * sizeof *listed);
    uint8_t *again = test_room(tg_bitmap_len(n)), mode_again = 255;
    assert_int_equal(tg_kernels_best()->select.list_marks(list, mask, 0, n), count);
    assert_int_equal(part->write(again, &mode_again, mask, list, n, count), len);
    assert_true(mode_again == mode);
    assert_memory_equal(again, bytes, len);
    if (part->list != NULL && mode <= TG_MODE_RICE_MAX) {
        assert_true(part->list(listed, mode, bytes, len, n, count));
        assert_memory_equal(listed, list, count * sizeof *list);
    }
    free(again);
    free(listed);
    free(list);
    free(back);
    free(bytes);
    return len;
}

/* No indices at all have no such form. */
static void none_are_refused(void **state)
{
    (void)state;
    uint64_t mask[2];
    const uint8_t bytes[] = {0, 128, 0, 0}; /* a state without symbols */
    assert_false(tg_index_gaps.read_rans(mask, TG_MODE_RANS, bytes, sizeof bytes, 100, 0));
}

static void indices_round_trip(void **state)
{
    (void)state;
    test_random r = {11};
    uint64_t *mask = test_room(tg_words(N) * sizeof *mask);
    static const size_t sizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 1023, 4096, 5000, N - 1, N};
    static const double densities[] = {0, 1e-5, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.97, 1};
    for (size_t i = 0; i < 13 * 11; i++) {
        size_t n = sizes[i % 13], count = random_mask(mask, n, densities[i / 13], &r);
        if (count == 0) {
            mask[(n - 1) / 64] |= UINT64_C(1) << (n - 1) % 64;
            count = 1;
        }
        round_trip(&tg_index_gaps, mask, n, count);
        round_trip(&tg_index_bitmap, mask, n, count);
    }
    /* blocks, two blocks, single elements at the ends */
    for (size_t i = 0; i < 200; i++) {
        size_t n = 1 + (size_t)(test_bits(&r) % N);
        memset(mask, 0, tg_words(n) * sizeof *mask);
        for (int block = 0; block < 2; block++) {
            uint64_t from = test_bits(&r) % n, to = from + 1 + test_bits(&r) % 5000;
            tg_mask_fill(mask, from, to < n ? to : n);
        }
        round_trip(&tg_index_gaps, mask, n, (size_t)tg_mask_count(mask, n));
    }
    free(mask);
}

/* Bits of a Rice code, the first lowest. */
static size_t put_gap_by_definition(uint8_t *bytes, size_t bit, uint32_t gap, unsigned k)
{
    for (uint32_t q = gap >> k; q > 0; q--, bit++) {
        bytes[bit / 8] |= (uint8_t)(1u << bit % 8);
    }
    bit++; /* a zero */
    for (unsigned b = 0; b < k; b++, bit++) {
        bytes[bit / 8] |= (uint8_t)((gap >> b & 1) << bit % 8);
    }
    return bit;
}

/* One long gap among short ones, of any length around what is read at a time, at any bit. */
static void long_gaps_are_read(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    for (unsigned k = 0; k <= TG_MODE_RICE_MAX; k++) {
        for (uint32_t quotient = 0; quotient < 140; quotient++) {
            for (size_t place = 0; place < COUNT; place += 1 + place / 8) {
                uint8_t bytes[1024] = {0};
                uint32_t want[COUNT], got[COUNT] = {0}, next = 0;
                size_t bit = 0;
                for (size_t i = 0; i < COUNT; i++) {
                    uint32_t gap = i == place ? quotient << k | ((1u << k) - 1) : (uint32_t)(i % 3 << k) / 2;
                    bit = put_gap_by_definition(bytes, bit, gap, k);
                    want[i] = next + gap;
                    next = want[i] + 1;
                }
                size_t len = (bit + 7) / 8;
                assert_true(tg_index_gaps.list(got, (uint8_t)k, bytes, len, next, COUNT));
                assert_memory_equal(got, want, sizeof want);
                assert_false(tg_index_gaps.list(got, (uint8_t)k, bytes, len, next - 1, COUNT));
                assert_false(tg_index_gaps.list(got, (uint8_t)k, bytes, len - 1, next, COUNT));
            }
        }
    }
}

/* A block of any length costs a few bytes, not a bit an element. */
static void blocks_are_cheap(void **state)
{
    (void)state;
    uint64_t *mask = test_room(tg_words(N) * sizeof *mask);
    memset(mask, 0, N / 8);
    tg_mask_fill(mask, 1000, 100000);
    assert_true(round_trip(&tg_index_gaps, mask, N, 99000) <= 6);
    free(mask);
}

/* Random subsets of 2^20 elements, coded in chunks with their headers, within 5% of the bound H(p)/p. */
static void gaps_come_near_the_bound(void **state)
{
    (void)state;
    test_random r = {12};
    static const double densities[] = {0.001, 0.01, 0.03, 0.1};
    uint64_t *mask = test_room(tg_words(N) * sizeof *mask);
    for (int d = 0; d < 4; d++) {
        double p = densities[d], entropy = -p * log2(p) - (1 - p) * log2(1 - p);
        size_t count = 0, len = 0;
        for (int chunk = 0; chunk < 4; chunk++) {
            size_t marked = random_mask(mask, N, p, &r);
            count += marked;
            len += TG_INDEX_HEADER + round_trip(&tg_index_gaps, mask, N, marked);
        }
        double bits = 8 * (double)len / (double)count;
        print_message("density %g%%: %.3f bits an index, bound %.3f, %.2f%% above\n", 100 * p, bits, entropy / p,
                      100 * (bits / (entropy / p) - 1));
        assert_true(bits < 1.05 * entropy / p);
    }
    free(mask);
}

/* Whatever the bytes, reading terminates and stays in bounds, and accepted bytes are a mask of `count` elements below n in canonical
 * form: written again in the same mode, it gives the same bytes. */
static void damaged_indices_are_refused_or_sound(void **state)
{
    (void)state;
    test_random r = {13};
    uint64_t accepted = 0;
    for (int i = 0; i < 200000; i++) {
        size_t n = 1 + (size_t)(test_bits(&r) % 300), len = (size_t)(test_bits(&r) % 12);
        size_t count = 1 + (size_t)(test_bits(&r) % (i % 2 ? n : 4));
        uint8_t *bytes = test_room(len);
        for (size_t b = 0; b < len; b++) {
            bytes[b] = (uint8_t)(test_bits(&r) >> (test_bits(&r) % 8));
        }
        static const uint8_t modes[] = {0, 1, 3, 5, 18, 19, 31, 32, 33, 34, 35, 255};
        uint8_t mode = modes[test_bits(&r) % 12];
        uint64_t mask[6];
        if (count <= n && tg_index_gaps.read(mask, mode, bytes, len, n, count)) {
            accepted++;
            assert_int_equal(tg_mask_count(mask, n), count);
            assert_true(n % 64 == 0 || mask[n / 64] >> n % 64 == 0);
        }
        free(bytes);
    }
    assert_true(accepted > 100);
}

static void strictness(void **state)
{
    (void)state;
    uint64_t mask[2];
    /* Rice 0: index 1 is "1 0", padded with zeros. */
    assert_true(tg_index_gaps.read(mask, 0, (const uint8_t[]){0x01}, 1, 8, 1));
    assert_false(tg_index_gaps.read(mask, 0, (const uint8_t[]){0x05}, 1, 8, 1));       /* a set bit after the end */
    assert_false(tg_index_gaps.read(mask, 0, (const uint8_t[]){0x01, 0x00}, 2, 8, 1)); /* a byte too many */
    assert_false(tg_index_gaps.read(mask, 0, (const uint8_t[]){0xff}, 1, 8, 1));       /* no end */
    assert_false(tg_index_gaps.read(mask, 0, (const uint8_t[]){0x01}, 1, 1, 1));       /* index 1 of 1 */
    /* Runs: skip 2, length 3. */
    assert_true(tg_index_gaps.read(mask, 33, (const uint8_t[]){2, 2}, 2, 8, 3));
    assert_false(tg_index_gaps.read(mask, 33, (const uint8_t[]){2, 2}, 2, 8, 2));
    assert_false(tg_index_gaps.read(mask, 33, (const uint8_t[]){0x82, 0, 2}, 3, 8, 3)); /* a long 2 */
    assert_false(tg_index_gaps.read(mask, 33, (const uint8_t[]){2, 0, 0, 1}, 4, 8, 3)); /* runs that touch */
    assert_false(tg_index_gaps.read(mask, 33, (const uint8_t[]){2, 6}, 2, 8, 7));       /* past the end */
    assert_false(tg_index_gaps.read(mask, 33, (const uint8_t[]){2}, 1, 8, 3));          /* half a pair */
    /* Bitmap of 3 elements. */
    assert_true(tg_index_gaps.read(mask, 32, (const uint8_t[]){5}, 1, 3, 2));
    assert_false(tg_index_gaps.read(mask, 32, (const uint8_t[]){13}, 1, 3, 3));
    assert_false(tg_index_bitmap.read(mask, 0, (const uint8_t[]){1}, 1, 8, 1)); /* bitmap knows its mode alone */
    assert_true(tg_index_gaps.read(mask, 34, NULL, 0, 3, 3));
    assert_false(tg_index_gaps.read(mask, 34, NULL, 0, 3, 2));
}

static void symbols_round_trip(void **state)
{
    (void)state;
    test_random r = {14};
    static const uint32_t bases[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 33, 100, 255, 256, 257, 512, 9999, 65536};
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        for (size_t n = 1; n < 70; n++) {
            uint16_t symbols[70], back[70];
            for (size_t i = 0; i < n; i++) {
                symbols[i] = (uint16_t)(n % 3 == 0 ? bases[b] - 1 : test_bits(&r) % bases[b]);
            }
            size_t len = (size_t)tg_bits_len(n, bases[b]);
            uint8_t *bytes = test_room(len);
            tg_bits_write(bytes, symbols, n, bases[b]);
            assert_true(tg_bits_read(back, bytes, n, bases[b]));
            assert_memory_equal(back, symbols, n * sizeof *symbols);
            free(bytes);
        }
    }
}

/* The group of every base is what the format says: of up to 8 symbols, the fewest that take the fewest bits a symbol. */
static void every_base_has_its_group(void **state)
{
    (void)state;
    for (uint32_t base = 2; base <= 1024; base++) {
        uint64_t best_k = 0, best_bits = 0, numbers = 1;
        for (uint64_t k = 1; k <= 8 && numbers <= (UINT64_C(1) << 48) / base; k++) {
            uint64_t bits = 0;
            numbers *= base;
            while (UINT64_C(1) << bits < numbers) {
                bits++;
            }
            if (best_k == 0 || bits * best_k < best_bits * k) {
                best_k = k;
                best_bits = bits;
            }
        }
        assert_int_equal(tg_bits_align(base), 8 * best_k);
        assert_int_equal(tg_bits_len(8 * best_k, base), best_bits);
    }
}

/* Five ternary symbols a byte and so on, and what is beyond them refused. */
static void symbols_take_their_size(void **state)
{
    (void)state;
    static const struct {
        uint32_t base, symbols, bits;
    } cases[] = {{2, 1, 1},   {3, 5, 8},   {4, 1, 2},   {5, 3, 7},     {9, 5, 16},
                 {17, 8, 33}, {256, 1, 8}, {512, 1, 9}, {65536, 1, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t groups = 0; groups < 9; groups++) {
            uint64_t len = (groups * cases[i].bits + 7) / 8;
            assert_int_equal(tg_bits_len(groups * cases[i].symbols, cases[i].base), len);
        }
    }
    uint16_t symbols[8];
    assert_true(tg_bits_read(symbols, (const uint8_t[]){242}, 5, 3)); /* 22222 */
    assert_false(tg_bits_read(symbols, (const uint8_t[]){243}, 5, 3));
    assert_true(tg_bits_read(symbols, (const uint8_t[]){26}, 3, 3)); /* 222, and nothing above it */
    assert_false(tg_bits_read(symbols, (const uint8_t[]){27}, 3, 3));
    assert_false(tg_bits_read(symbols, (const uint8_t[]){0xfd}, 3, 5)); /* 125 in 7 bits, a bit after it */
    assert_false(tg_bits_read(symbols, (const uint8_t[]){0x80}, 3, 5));
    assert_false(tg_bits_read(symbols, (const uint8_t[]){0x10}, 4, 2));
}

/* ---- joint places and signs ------------------------------------------------------------------------------------------ */

/* What the layout of format.md costs, counted without writing it: 0 where it is no less than a bitmap and signs. */
static size_t joint_cost(const uint64_t *mask, size_t n, size_t count, uint32_t cell, unsigned place_bits)
{
    size_t entries = 0, bin = 0, farthest = (size_t)1 << place_bits;
    long before = -1;
    for (size_t i = 0; i < n; i++) {
        if ((mask[i / 64] >> i % 64 & 1) == 0) {
            continue;
        }
        size_t to = i / cell;
        long place = (long)(i % cell);
        if (to > bin && (to > bin + 1 || place > before)) {
            entries += (to - bin + farthest - 1) / farthest;
        }
        bin = to;
        before = place;
        entries++;
    }
    size_t len = entries * (place_bits + 2) / 8;
    return len < (n + 7) / 8 + (count + 7) / 8 ? len : 0;
}

static void joint_round_trip(void **state)
{
    (void)state;
    static const tg_index_part *const parts[] = {&tg_index_adacomp8, &tg_index_adacomp16};
    static const size_t sizes[] = {1, 2, 63, 64, 65, 997, 20011, 262144};
    static const double densities[] = {0.00002, 0.001, 0.02, 0.1, 0.5, 1};
    static const uint32_t cells[2][5] = {{1, 7, 50, 63, 64}, {1, 50, 500, 4097, 16384}};
    test_random r = {15};
    for (size_t k = 0; k < 2 * 8 * 6 * 5; k++) {
        const tg_index_part *part = parts[k % 2];
        size_t n = sizes[k / 2 % 8], words = (n + 63) / 64;
        uint32_t cell = cells[k % 2][k / 96];
        double density = densities[k / 16 % 6];
        uint64_t *mask = test_room(words * 8), *back = test_room(words * 8);
        memset(mask, 0, words * 8);
        size_t count = 0;
        for (size_t i = 0; i < n; i++) {
            bool set = test_uniform(&r) < density || (i == n - 1 && count == 0);
            mask[i / 64] |= (uint64_t)set << i % 64;
            count += set;
        }
        uint16_t *symbols = test_room(count * sizeof *symbols),
                 *symbols_back = test_room((count + 1) * sizeof *symbols);
        for (size_t i = 0; i < count; i++) {
            symbols[i] = (uint16_t)(test_bits(&r) % 2);
        }
        size_t room = (n + 7) / 8 + (count + 7) / 8;
        uint8_t *bytes = test_room(room), mode = 0;
        size_t len = part->write_joint(bytes, &mode, mask, symbols, n, count, cell);
        assert_int_equal(len, joint_cost(mask, n, count, cell, k % 2 == 0 ? 6 : 14));
        if (len > 0) {
            assert_int_equal(mode, 35 + k % 2);
            assert_true(part->read_joint(back, symbols_back, mode, bytes, len, n, count, cell));
            assert_memory_equal(back, mask, words * 8);
            assert_memory_equal(symbols_back, symbols, count * sizeof *symbols);
            assert_false(part->read_joint(back, symbols_back, mode, bytes, len - 1, n, count, cell));
            assert_false(part->read_joint(back, symbols_back, mode, bytes, len, n, count + 1, cell));
            assert_false(part->read_joint(back, symbols_back, (uint8_t)(71 - mode), bytes, len, n, count, cell));
        }
        free(bytes);
        free(symbols_back);
        free(symbols);
        free(back);
        free(mask);
    }
}

static void joint_strictness(void **state)
{
    (void)state;
    uint64_t mask[4];
    uint16_t symbols[4];
    enum { PLUS = 1 << 6, MINUS = 2 << 6, NEITHER = 3 << 6 };
#define READ(count, n, ...)                                                                                           \
    tg_index_adacomp8.read_joint(mask, symbols, 35, (const uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}), \
                                 n, count, 50)
    assert_true(READ(3, 120, PLUS | 4, MINUS | 9, PLUS | 9)); /* the next bin, as 9 is not behind 9 */
    assert_true((mask[0] >> 4 & 1) && (mask[0] >> 9 & 1) && (mask[0] >> 59 & 1) && symbols[0] == 0 && symbols[1] == 1);
    assert_true(READ(2, 120, PLUS | 4, 0 | 1, MINUS | 19));   /* two bins on: element 119, the last */
    assert_false(READ(2, 119, PLUS | 4, 0 | 1, MINUS | 19));  /* there is none */
    assert_false(READ(1, 120, PLUS | 50));                    /* a bin has 50 places */
    assert_false(READ(1, 120, NEITHER | 4));                  /* no such code */
    assert_false(READ(1, 120, PLUS | 4, 0 | 0));              /* nothing is skipped at the end */
    assert_false(READ(1, 120, PLUS | 4, PLUS | 5));           /* more than announced */
    assert_false(READ(3, 120, PLUS | 4, PLUS | 5));           /* fewer */
    assert_false(READ(1, 120, 63, 63, 63, 63, 63, PLUS | 4)); /* far beyond the end */
#undef READ
    assert_false(tg_index_adacomp16.read_joint(mask, symbols, 36, (const uint8_t[]){4, 64, 5}, 3, 120, 1, 500));
    assert_true(tg_index_adacomp16.read_joint(mask, symbols, 36, (const uint8_t[]){4, 64}, 2, 120, 1, 500));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_round_trip),
        cmocka_unit_test(none_are_refused),
        cmocka_unit_test(long_gaps_are_read),
        cmocka_unit_test(blocks_are_cheap),
        cmocka_unit_test(gaps_come_near_the_bound),
        cmocka_unit_test(damaged_indices_are_refused_or_sound),
        cmocka_unit_test(strictness),
        cmocka_unit_test(symbols_round_trip),
        cmocka_unit_test(every_base_has_its_group),
        cmocka_unit_test(symbols_take_their_size),
        cmocka_unit_test(joint_round_trip),
        cmocka_unit_test(joint_strictness),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
