/* Kernels of every instruction set that this processor has, against the scalar ones: the same bits for any values, lengths
 * and alignment. */
#include "support.h"

#include "base/bits.h"
#include "base/half.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 2048 };
static const size_t lens[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 1000, 1023, N - 3};
enum { LEN_N = sizeof lens / sizeof *lens };

static const uint32_t edges[] = {0,          0x80000000, 1,          0x007fffff, 0x00800000, 0x33000000,
                                 0x33000001, 0x337fffff, 0x33800000, 0x387fc000, 0x387fe000, 0x387fffff,
                                 0x38800000, 0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7f0000,
                                 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7f80ffff,
                                 0x7fa00000, 0x7fc00000, 0x7fffffff, 0x3f808000, 0x3f818000, 0x3f800000};
enum { EDGE_N = sizeof edges / sizeof *edges };

/* Any bits: edges with either sign among values of all magnitudes. */
static void fill(float *values, test_random *random)
{
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)test_bits(random);
        values[i] = tg_bits_float(bits % 4 == 0 ? edges[bits / 8 % EDGE_N] | (bits & 0x80000000u) : bits);
    }
}

typedef void (*look)(const tg_kernels *fast, const float *a, const float *b, size_t n);

/* With every level, length and a few alignments. */
static void everywhere(look compare)
{
    float a[N], b[N];
    test_random random = {7};
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (int round = 0; fast != NULL && round < 50; round++) {
            fill(a, &random);
            fill(b, &random);
            for (size_t l = 0; l < LEN_N; l++) {
                compare(fast, a + round % 3, b + round % 2, lens[l]);
            }
        }
    }
}

/* At odd addresses as well. */
static void compare_halves(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    uint8_t want[2][2 * N + 1] = {{0}}, got[2][2 * N + 1] = {{0}};
    size_t odd = n % 2;
    (void)b;
    bool finite = tg_kernels_scalar.halves.fp16_narrow(want[0] + odd, a, n);
    assert_int_equal(tg_kernels_scalar.halves.bf16_narrow(want[1] + odd, a, n), finite);
    assert_int_equal(fast->halves.fp16_narrow(got[0] + odd, a, n), finite);
    assert_int_equal(fast->halves.bf16_narrow(got[1] + odd, a, n), finite);
    assert_memory_equal(want, got, sizeof want);
    float widened[2][N] = {{0}}, back[2][N] = {{0}};
    const uint8_t *any = (const uint8_t *)a;
    tg_kernels_scalar.halves.fp16_widen(widened[0], any + odd, n);
    tg_kernels_scalar.halves.bf16_widen(widened[1], any + odd, n);
    fast->halves.fp16_widen(back[0], any + odd, n);
    fast->halves.bf16_widen(back[1], any + odd, n);
    assert_memory_equal(widened, back, sizeof widened);
}

static void halves_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_halves);
}

static void every_half_is_widened_alike(void **state)
{
    (void)state;
    static uint16_t all[65536];
    static float want[65536], got[65536];
    for (uint32_t i = 0; i < 65536; i++) {
        all[i] = (uint16_t)i;
    }
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        if (fast != NULL) {
            tg_kernels_scalar.halves.fp16_widen(want, all, 65536);
            fast->halves.fp16_widen(got, all, 65536);
            assert_memory_equal(want, got, sizeof want);
        }
    }
}

static bool is_nan(float value)
{
    return (tg_float_bits(value) & 0x7fffffffu) > 0x7f800000u;
}

/* Sums of two NaNs are a NaN, but which of them is not said. */
static void assert_same(const float *want, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(tg_float_bits(want[i]) == tg_float_bits(got[i]) || (is_nan(want[i]) && is_nan(got[i])));
    }
}

static void compare_arithmetic(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    /* Powers of two at both ends of the range have a reciprocal that is no power of two in fp32. */
    static const float divisors[] = {1.0f, 2.0f, 3.0f, 7.0f, 64.0f, 0x1p-126f, 0x1p126f, 0x1p127f, 0x1p-149f};
    float want[N], got[N];
    for (int streams = 0; streams < 2; streams++) {
        for (int s = 0; s < 2; s++) {
            float share = s == 0 ? 1.0f : 0.37f;
            bool finite = tg_kernels_scalar.passes.accumulate(want, NULL, a, b, share, n, streams);
            assert_int_equal(fast->passes.accumulate(got, NULL, a, b, share, n, streams), finite);
            tg_store_fence();
            assert_same(want, got, n);
            float twice[N], *also = twice + (n % 3 < N - n ? n % 3 : 0);
            memset(got, 0, sizeof got);
            assert_int_equal(fast->passes.accumulate(got, also, a, b, share, n, streams), finite);
            tg_store_fence();
            assert_same(want, got, n);
            assert_same(want, also, n);
        }
        size_t odd = n % 3 < N - n ? n % 3 : 0; /* where streaming can not begin at once */
        bool finite = tg_kernels_scalar.passes.subtract(want + odd, a, b, n, streams);
        assert_int_equal(fast->passes.subtract(got + odd, a, b, n, streams), finite);
        tg_store_fence();
        assert_same(want + odd, got + odd, n);
        for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
            finite = tg_kernels_scalar.passes.divide(want + odd, a, divisors[d], n, streams);
            assert_int_equal(fast->passes.divide(got + odd, a, divisors[d], n, streams), finite);
            tg_store_fence();
            assert_same(want + odd, got + odd, n);
        }
        fast->passes.stream_bytes((uint8_t *)got + odd, (const uint8_t *)a, n);
        tg_store_fence();
        assert_memory_equal(a, (uint8_t *)got + odd, n);
        fast->passes.copy(got + odd, a, n, streams);
        tg_store_fence();
        assert_memory_equal(a, got + odd, n * sizeof *a);
    }
}

static void compare_sums(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    float want[N], got[N];
    const uint8_t *halves = (const uint8_t *)b + n % 2;
    memcpy(want, a, n * sizeof *a);
    memcpy(got, a, n * sizeof *a);
    tg_kernels_scalar.passes.add(want, b, 0.37f, n);
    fast->passes.add(got, b, 0.37f, n);
    tg_kernels_scalar.halves.fp16_add(want, halves, -1.5f, n);
    fast->halves.fp16_add(got, halves, -1.5f, n);
    tg_kernels_scalar.halves.bf16_add(want, halves, 3.0f, n);
    fast->halves.bf16_add(got, halves, 3.0f, n);
    assert_same(want, got, n);
}

static void sums_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_sums);
}

static void arithmetic_is_the_same(void **state)
{
    (void)state;
    everywhere(compare_arithmetic);
}

static void compare_marks(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    uint64_t want[N / 64], got[N / 64];
    for (size_t e = 0; e < EDGE_N + 8; e++) {
        uint32_t least = e < EDGE_N ? edges[e] & 0x7fffffffu : tg_float_bits(b[e]) & 0x7fffffffu;
        memset(want, 0x55, sizeof want);
        memset(got, 0x55, sizeof got);
        tg_kernels_scalar.select.mark_keys(want, a, least, n);
        fast->select.mark_keys(got, a, least, n);
        assert_memory_equal(want, got, sizeof want);
    }
    assert_int_equal(tg_kernels_scalar.passes.all_finite(a, n), fast->passes.all_finite(a, n));
    assert_int_equal(tg_kernels_scalar.select.largest_key(a, n), fast->select.largest_key(a, n));
}

/* Bins begin at any bit of a mask. */
static void compare_bins(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    uint64_t want[N / 64 + 3], got[N / 64 + 3];
    for (size_t at = 0; at < 130; at += 1 + at / 3) {
        uint32_t least = (tg_float_bits(b[at]) & 0x7fffffffu) | 1u;
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        tg_kernels_scalar.select.mark_bin(want, at, a, b, at % 2 == 0 ? 1.0f : 0.37f, least, n);
        fast->select.mark_bin(got, at, a, b, at % 2 == 0 ? 1.0f : 0.37f, least, n);
        assert_memory_equal(want, got, sizeof want);
    }
}

static void bins_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_bins);
}

/* The product is rounded before it is added: where the bound is an element's own reach, a fused operation shows. */
static void bins_round_twice(void **state)
{
    (void)state;
    test_random random = {11};
    float u[64], g[64];
    for (int round = 0; round < 64; round++) {
        for (size_t i = 0; i < 64; i++) {
            u[i] = tg_bits_float(0x3f800000u | (uint32_t)(test_bits(&random) >> 41));
            g[i] = tg_bits_float(0x3f800000u | (uint32_t)(test_bits(&random) >> 41));
        }
        uint32_t least = tg_float_bits(u[round] + 0.37f * g[round]);
        uint64_t want = 0;
        tg_kernels_scalar.select.mark_bin(&want, 0, u, g, 0.37f, least, 64);
        for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
            const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
            uint64_t got = 0;
            if (fast != NULL) {
                fast->select.mark_bin(&got, 0, u, g, 0.37f, least, 64);
                assert_true(got == want);
            }
        }
    }
}

static void marks_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_marks);
}

/* Values at marked elements: none, few, half, all. The marks are the sign bits of b, or words without any. */
static void compare_marked(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    for (uint32_t share = 0; share < 4; share++) {
        uint64_t mask[N / 64] = {0};
        float want[N], got[N];
        size_t count = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = tg_float_bits(b[i]);
            bool marks =
                share == 3 || (share == 2 && bits >> 31 != 0) || (share == 1 && i / 64 % 3 == 1 && bits % 16 == 0);
            mask[i / 64] |= (uint64_t)marks << i % 64;
            count += marks ? 1 : 0;
        }
        memset(want, 0x77, sizeof want);
        memset(got, 0x77, sizeof got);
        assert_int_equal(tg_kernels_scalar.select.compress(want, a, mask, n), count);
        assert_int_equal(fast->select.compress(got, a, mask, n), count);
        assert_memory_equal(want, got, sizeof want);
        tg_kernels_scalar.select.expand_set(want, mask, a, n);
        fast->select.expand_set(got, mask, a, n);
        assert_memory_equal(want, got, sizeof want);
        memcpy(want, b, n * sizeof *b);
        memcpy(got, b, n * sizeof *b);
        tg_kernels_scalar.select.expand_add(want, mask, a, 0.37f, n);
        fast->select.expand_add(got, mask, a, 0.37f, n);
        assert_same(want, got, n);
    }
}

static void marked_values_are_the_same(void **state)
{
    (void)state;
    everywhere(compare_marked);
}

/* Words that are taken apart, and come together again. */
static void compare_split_words(const tg_kernels *fast, const float *a, const float *b, size_t n)
{
    for (uint32_t word_len = 2; word_len <= 4; word_len += 2) {
        uint8_t words[4 * N], back[4 * N];
        uint16_t want[N] = {0}, got[N] = {0};
        uint8_t want_lowers[3 * N] = {0}, got_lowers[3 * N] = {0};
        for (size_t i = 0; i < n; i++) {
            uint32_t word = tg_float_bits(i % 2 == 0 ? a[i] : b[i]) >> (32 - 8 * word_len);
            for (uint32_t k = 0; k < word_len; k++) {
                words[word_len * i + k] = (uint8_t)(word >> 8 * k);
            }
        }
        tg_kernels_scalar.coders.split_words(want, want_lowers, words, word_len, n);
        fast->coders.split_words(got, got_lowers, words, word_len, n);
        assert_memory_equal(want, got, sizeof want);
        assert_memory_equal(want_lowers, got_lowers, sizeof want_lowers);
        tg_kernels_scalar.coders.join_words(back, want, want_lowers, word_len, n);
        assert_memory_equal(back, words, n * word_len);
        memset(back, 0, sizeof back);
        fast->coders.join_words(back, want, want_lowers, word_len, n);
        assert_memory_equal(back, words, n * word_len);
    }
}

static void words_are_split_alike(void **state)
{
    (void)state;
    everywhere(compare_split_words);
}

/* One bad value anywhere is found. */
static void what_is_not_finite_is_found(void **state)
{
    (void)state;
    float values[200];
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (size_t at = 0; k != NULL && at < 200; at++) {
            for (size_t i = 0; i < 200; i++) {
                values[i] = tg_bits_float(0x7f7fffff);
            }
            assert_true(k->passes.all_finite(values, 200));
            values[at] = tg_bits_float(at % 2 == 0 ? 0x7f800000 : 0xff800001);
            assert_false(k->passes.all_finite(values, 200));
            assert_true(k->passes.all_finite(values, at));
        }
    }
}

/* Nobody has told the processor to take small numbers for zero. */
static void small_numbers_are_added(void **state)
{
    (void)state;
    float small[67], twice[67];
    for (uint32_t i = 0; i < 67; i++) {
        small[i] = tg_bits_float(i << 16);
    }
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        if (k != NULL) {
            (void)k->passes.accumulate(twice, NULL, small, small, 1.0f, 67, false);
            for (uint32_t i = 0; i < 67; i++) {
                assert_int_equal(tg_float_bits(twice[i]), i << 17);
            }
        }
    }
}

/* A table that leaves a kernel out has NULL there, which no compiler minds. */
static void tables_are_whole(void **state)
{
    (void)state;
    typedef void (*entry)(void);
    enum { ENTRY_N = sizeof(tg_kernels) / sizeof(entry) };
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        if (k != NULL) {
            entry entries[ENTRY_N];
            memcpy(entries, k, sizeof entries);
            for (size_t i = 0; i < ENTRY_N; i++) {
                assert_true(entries[i] != NULL);
            }
        }
    }
}

/* What TG_SIMD=named leads to. It is looked up once, so every name has a process of its own. */
static bool leads_to(const char *named, const char *level)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        setenv("TG_SIMD", named, 1);
        _exit(strcmp(tg_simd(), level) == 0 ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status == 0;
}

static void names_choose_levels(void **state)
{
    (void)state;
    static const char *const names[TG_SIMD_LEVELS] = {"scalar", "avx2", "avx512", "neon"};
    const char *best = NULL;
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        best = tg_kernels_of((tg_simd_level)level) != NULL ? names[level] : best;
    }
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        assert_true(leads_to(names[level], tg_kernels_of((tg_simd_level)level) != NULL ? names[level] : best));
    }
    assert_true(leads_to("", best));
    assert_true(leads_to("sse9", best));
#if defined(__AARCH64EL__)
    assert_string_equal(best, "neon");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_the_same),
        cmocka_unit_test(every_half_is_widened_alike),
        cmocka_unit_test(arithmetic_is_the_same),
        cmocka_unit_test(sums_are_the_same),
        cmocka_unit_test(marks_are_the_same),
        cmocka_unit_test(marked_values_are_the_same),
        cmocka_unit_test(words_are_split_alike),
        cmocka_unit_test(bins_are_the_same),
        cmocka_unit_test(what_is_not_finite_is_found),
        cmocka_unit_test(small_numbers_are_added),
        cmocka_unit_test(tables_are_whole),
        cmocka_unit_test(bins_round_twice),
        cmocka_unit_test(names_choose_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
