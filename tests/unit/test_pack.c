/* Packs: round trips, the promised sizes, and damaged bytes. */
#include "base/bits.h"
#include "codec/codec.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const tg_index_part tg_index_gaps;
extern const tg_symbol_part tg_symbol_bits;

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
    uint8_t *bytes = test_room(tg_bitmap_len(n)); /* exactly: a byte too far is seen by the sanitizer */
    uint64_t *back = test_room(tg_words(n) * sizeof *back);
    uint8_t mode = 255;
    size_t len = part->write(bytes, &mode, mask, n, count);
    assert_true(len <= tg_bitmap_len(n));
    assert_true(len <= part->limit(n, count) + 1);
    assert_true(part->read(back, mode, bytes, len, n, count));
    assert_memory_equal(back, mask, tg_words(n) * sizeof *mask);
    free(back);
    free(bytes);
    return len;
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
            len += TG_CHUNK_HEADER + round_trip(&tg_index_gaps, mask, N, marked);
        }
        double bits = 8 * (double)len / (double)count;
        print_message("density %g%%: %.3f bits an index, bound %.3f, %.2f%% above\n", 100 * p, bits, entropy / p,
                      100 * (bits / (entropy / p) - 1));
        assert_true(bits < 1.05 * entropy / p);
    }
    free(mask);
}

/* Whatever the bytes are, reading ends, stays inside, and what it accepts is a mask of `count` below n that only one
 * reading of the rules allows: written again in the same mode it gives the same bytes. */
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
    assert_false(tg_index_gaps.read(mask, 0, (const uint8_t[]){0x05}, 1, 8, 1));       /* a set bit behind the end */
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
    for (uint32_t symbol_len = 1; symbol_len <= 4; symbol_len++) {
        for (size_t n = 0; n < 70; n += 3) {
            uint32_t symbols[70], back[70];
            for (size_t i = 0; i < n; i++) {
                symbols[i] = (uint32_t)test_bits(&r) & (UINT32_MAX >> (32 - 8 * symbol_len));
            }
            uint8_t *bytes = test_room(n * symbol_len);
            assert_int_equal(tg_symbol_bits.len(n, symbol_len), n * symbol_len);
            tg_symbol_bits.write(bytes, symbols, n, symbol_len);
            tg_symbol_bits.read(back, bytes, n, symbol_len);
            assert_memory_equal(back, symbols, n * sizeof *symbols);
            free(bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_round_trip),
        cmocka_unit_test(blocks_are_cheap),
        cmocka_unit_test(gaps_come_near_the_bound),
        cmocka_unit_test(damaged_indices_are_refused_or_sound),
        cmocka_unit_test(strictness),
        cmocka_unit_test(symbols_round_trip),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
