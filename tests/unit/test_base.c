/* Base: Philox, half floats over their whole domain, masks, numbers, the pool. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "base/number.h"
#include "base/philox.h"
#include "base/pool.h"
#include "kernels/hash.h"
#include "kernels/kernels.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "support.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void philox_known_answers(void **state)
{
    (void)state;
    uint32_t out[4];
    tg_philox(out, 0, (const uint32_t[4]){0, 0, 0, 0});
    assert_memory_equal(out, ((const uint32_t[4]){0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48}), 16);
    tg_philox(out, UINT64_MAX, (const uint32_t[4]){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX});
    assert_memory_equal(out, ((const uint32_t[4]){0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662}), 16);
}

static void draws_below_a_limit_are_exact(void **state)
{
    (void)state;
    tg_stream s = tg_stream_of(7, 3, 1, 0);
    test_random r = {1};
    for (int i = 0; i < 10000; i++) {
        uint64_t limit = (test_bits(&r) >> (test_bits(&r) % 64)) | 1;
        uint64_t x = tg_stream_bits(&s, (uint64_t)i);
        __extension__ typedef unsigned __int128 wide;
        assert_int_equal(tg_stream_below(&s, (uint64_t)i, limit), (uint64_t)((wide)x * limit >> 64));
    }
}

static void streams_differ(void **state)
{
    (void)state;
    uint64_t key = tg_stream_of(1, 2, 3, 4).key;
    assert_int_not_equal(key, tg_stream_of(2, 2, 3, 4).key);
    assert_int_not_equal(key, tg_stream_of(1, 3, 3, 4).key);
    assert_int_not_equal(key, tg_stream_of(1, 2 + (UINT64_C(1) << 32), 3, 4).key);
    assert_int_not_equal(key, tg_stream_of(1, 2, 4, 4).key);
    assert_int_not_equal(key, tg_stream_of(1, 2, 3, 5).key);
}

/* Every fp16 pattern is widened as defined, and survives a round trip. */
static void fp16_all_patterns(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float value = tg_fp16_to_float((uint16_t)h);
        int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        double sign = h & 0x8000 ? -1 : 1;
        if (exponent == 31) {
            assert_true(mantissa == 0 ? isinf(value) : isnan(value));
        } else {
            double expected = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
            assert_true((double)value == sign * expected && (signbit(value) != 0) == (sign < 0));
        }
        if (!isnan(value)) {
            assert_int_equal(tg_float_to_fp16(value), h);
        } else {
            assert_true(isnan(tg_fp16_to_float(tg_float_to_fp16(value))));
        }
    }
}

/* Between every two neighbours: the midpoint is rounded to the even one, and a value next to it to the nearer one. */
static void check_rounding(uint16_t (*to)(float), float (*from)(uint16_t), uint16_t last_finite)
{
    for (uint32_t h = 0; h < last_finite; h++) {
        float low = from((uint16_t)h), high = from((uint16_t)(h + 1));
        double middle = ((double)low + (double)high) / 2;
        float m = (float)middle;
        if ((double)m == middle) {
            assert_int_equal(to(m), h % 2 == 0 ? h : h + 1);
            assert_int_equal(to(-m), 0x8000 | (h % 2 == 0 ? h : h + 1));
            assert_int_equal(to(nextafterf(m, 0)), h);
            assert_int_equal(to(nextafterf(m, INFINITY)), h + 1);
        }
    }
}

static void halves_round_to_even(void **state)
{
    (void)state;
    check_rounding(tg_float_to_fp16, tg_fp16_to_float, 0x7bff);
    check_rounding(tg_float_to_bf16, tg_bf16_to_float, 0x7f7f);
    /* Finite stays finite. */
    static const float beyond[] = {65519.996f, 65520.0f, 1e6f, 3.4028234663852886e38f};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        assert_int_equal(tg_float_to_fp16(beyond[i]), 0x7bff);
        assert_int_equal(tg_float_to_fp16(-beyond[i]), 0xfbff);
    }
    assert_int_equal(tg_float_to_bf16(beyond[3]), 0x7f7f);
    assert_int_equal(tg_float_to_bf16(-beyond[3]), 0xff7f);
    assert_int_equal(tg_float_to_fp16(-INFINITY), 0xfc00);
    assert_int_equal(tg_float_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(tg_float_to_fp16(0x1p-25f), 0);
    assert_int_equal(tg_float_to_fp16(nextafterf(0x1p-25f, 1)), 1);
}

static void bf16_all_patterns(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float value = tg_bf16_to_float((uint16_t)h);
        uint16_t back = tg_float_to_bf16(value);
        assert_true(isnan(value) ? isnan(tg_bf16_to_float(back)) : back == h);
    }
}

static void masks_match_single_bits(void **state)
{
    (void)state;
    test_random r = {3};
    for (int round = 0; round < 2000; round++) {
        uint64_t source[5] = {0}, out[5];
        bool bit[320] = {false};
        uint64_t a = test_bits(&r) % 321, b = test_bits(&r) % 321;
        uint64_t from = a < b ? a : b, to = a < b ? b : a;
        tg_mask_fill(source, from, to);
        for (uint64_t i = from; i < to; i++) {
            bit[i] = true;
        }
        assert_int_equal(tg_mask_count(source, 320), to - from);
        uint64_t at = test_bits(&r) % 320;
        size_t n = (size_t)(test_bits(&r) % (320 - at + 1));
        tg_mask_extract(out, source, at, n);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(out[i / 64] >> i % 64 & 1, bit[at + i]);
        }
        if (n % 64 != 0) {
            assert_int_equal(out[n / 64] >> n % 64, 0);
        }
    }
}

static void numbers_are_shortest_and_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.01, "0.01"},   {1, "1"},        {0.1 + 0.2, "0.30000000000000004"},
                 {1e-5, "1e-5"},   {1e20, "1e20"},  {0, "0"},
                 {1e100, "1e100"}, {0.001, "0.001"}};
    char text[TG_NUMBER_CAP];
    double back = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_number_write(text, cases[i].value);
        assert_string_equal(text, cases[i].text);
        assert_true(tg_number_read(&back, text, strlen(text)) && back == cases[i].value);
    }
    static const char *const bad[] = {"", "x", "1x", "nan", "inf", "0x10", " 1", "1e999", "1,5", "--1", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(tg_number_read(&back, bad[i], strlen(bad[i])));
    }
}

static void count_job(void *context, uint32_t worker, size_t job)
{
    atomic_int *counts = context;
    assert_true(worker < 7);
    atomic_fetch_add(&counts[job], 1);
}

static void pool_does_every_job_once(void **state)
{
    (void)state;
    tg_allocator a = tg_allocator_or_standard(NULL);
    for (uint32_t workers = 0; workers <= 7; workers++) {
        tg_pool *pool = NULL;
        MUST(tg_pool_new(&pool, workers, &a, why));
        for (size_t jobs = 0; jobs < 40; jobs += 3) {
            atomic_int counts[40] = {0};
            tg_pool_run(pool, jobs, count_job, counts);
            for (size_t i = 0; i < 40; i++) {
                assert_int_equal(counts[i], i < jobs);
            }
        }
        tg_pool_free(pool);
    }
}

/* docs/format.md, H: the list of leaves, then the list of that list's leaves, and so on. */
static uint64_t hash_by_definition(const uint8_t *bytes, size_t len)
{
    if (len <= TG_HASH_LEAF) {
        return XXH3_64bits(bytes, len);
    }
    size_t leaf_n = (len + TG_HASH_LEAF - 1) / TG_HASH_LEAF;
    uint8_t *list = test_room(leaf_n * 8);
    for (size_t i = 0; i < leaf_n; i++) {
        size_t at = i * TG_HASH_LEAF;
        tg_put64(list + 8 * i, XXH3_64bits(bytes + at, len - at < TG_HASH_LEAF ? len - at : TG_HASH_LEAF));
    }
    uint64_t hash = hash_by_definition(list, leaf_n * 8);
    free(list);
    return hash;
}

static void hashes_follow_the_definition(void **state)
{
    (void)state;
    enum { MOST = 3 * 1024 * 1024 };
    uint8_t *bytes = test_room(MOST);
    test_random r = {3};
    for (size_t i = 0; i < MOST; i++) {
        bytes[i] = (uint8_t)test_bits(&r);
    }
    static const size_t lens[] = {
        0,    1,     3,     8,     16,     17,     128,         240,     241,     4095,           4096,           4097,
        8192, 12289, 40960, 65536, 262143, 524288, 2097152 - 1, 2097152, 2097153, 2097152 + 4096, 2097152 + 4097, MOST};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        assert_true(tg_hash(bytes, lens[i]) == hash_by_definition(bytes, lens[i]));
    }
    uint64_t words[] = {0x0807060504030201u, 0x100f0e0d0c0b0a09u};
    assert_true(tg_hash_words(words, 2) == tg_hash("\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20", 16));
    assert_true(tg_hash("", 0) == 0x2d06800538d394c2u && tg_hash(NULL, 0) == tg_hash("", 0));
    for (size_t len = 1; len < TG_HASH_LEAVES * TG_HASH_LEAF; len += len / 2 + 4000) {
        tg_hashing h = {.leaf_n = 0};
        for (size_t at = 0, n = 0; at < len; at += n) {
            n = TG_HASH_LEAF * (size_t)(1 + test_bits(&r) % 4);
            n = n < len - at ? n : len - at;
            tg_hashing_add(&h, bytes + at, n, bytes, 2 * n);
        }
        assert_true(tg_hashing_end(&h) == tg_hash(bytes, len));
    }
    for (int level = 0; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        const tg_prefetch next = {(const char *)bytes, 4096, 7, 2};
        for (size_t at = 0; k != NULL && at < 64 * 4096; at += 4097) {
            assert_true(k->passes.hash_leaf(bytes + at, &next) == XXH3_64bits(bytes + at, TG_HASH_LEAF));
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),     cmocka_unit_test(draws_below_a_limit_are_exact),
        cmocka_unit_test(streams_differ),           cmocka_unit_test(fp16_all_patterns),
        cmocka_unit_test(bf16_all_patterns),        cmocka_unit_test(halves_round_to_even),
        cmocka_unit_test(masks_match_single_bits),  cmocka_unit_test(numbers_are_shortest_and_read_back),
        cmocka_unit_test(pool_does_every_job_once), cmocka_unit_test(hashes_follow_the_definition),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
