/* Packing kernels against the host's packs: the same bytes for symbols and words of many bases, counts and distributions; the same
 * symbols back; the same verdict on damage. */
#include "packing.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t bases[] = {2, 3, 5, 9, 11, 16, 17, 33, 65, 239, 247, 256, 257, 300, 511, 512};
static const uint32_t counts[] = {1, 2, 3, 31, 63, 64, 65, 257, 1000, 8191, 8192, 8195};

enum { BASES = sizeof bases / sizeof *bases, COUNTS = sizeof counts / sizeof *counts };

/* A pass over chunks, which is written and read. */
static void check(packing *p)
{
    packing_open(p);
    packing_check_writing(p);
    packing_check_reading(p);
    packing_close(p);
}

static void check_counts(uint32_t pack, uint32_t base, uint32_t word_len)
{
    packing p = {0};
    for (uint32_t i = 0; i < COUNTS; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            packing_chunk c = {
                .base = base, .word_len = word_len, .count = counts[i], .pack = pack, .is_sparse = k == 1};
            packing_add(&p, c, (i + k * 2 + base) % PACKING_SHAPES, base * 1000 + i * 10 + k);
        }
    }
    check(&p);
}

static void test_plain_bits(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < BASES; b++) {
        check_counts(TG_GPU_BITS, bases[b], 0);
    }
}

static void test_rans(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < BASES; b++) {
        check_counts(TG_GPU_RANS, bases[b], 0);
    }
}

static void test_huffman(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < BASES; b++) {
        check_counts(TG_GPU_HUFFMAN, bases[b], 0);
    }
}

/* Streams of 32 threads that fill the shared memory of the decoder to the last byte, at any alignment. */
static void test_huffman_that_fills_shared_memory(void **state)
{
    (void)state;
    packing p = {0};
    for (uint32_t i = 0; i < 32; i++) {
        packing_chunk c = {.base = 240 + i % 16, .count = 32768 + i % 3, .pack = TG_GPU_HUFFMAN};
        packing_add(&p, c, PACKING_SEVEN_BITS, i);
    }
    check(&p);
}

static void test_lossless(void **state)
{
    (void)state;
    check_counts(TG_GPU_LOSSLESS, 0, 2);
    check_counts(TG_GPU_LOSSLESS, 0, 4);
}

/* Codes from the shapes, also for rows that there are not. */
static void test_codes_of_models(void **state)
{
    (void)state;
    static const uint32_t formats[][2] = {{TG_GPU_FP4, 11}, {TG_GPU_FP8, 247}, {TG_GPU_FP8, 239}};
    for (uint32_t f = 0; f < 3; f++) {
        packing p = {0};
        for (uint32_t i = 0; i < COUNTS; i++) {
            packing_chunk c = {.base = formats[f][1],
                               .count = counts[i],
                               .pack = TG_GPU_HUFFMAN,
                               .quantize = formats[f][0],
                               .by_model = i % 5 != 4,
                               .row = (uint8_t)(7 * i % 50)};
            packing_add(&p, c, i % 3 == 0 ? 2 : i % PACKING_SHAPES, 77 + i);
        }
        check(&p);
    }
}

/* Whole chunks and a little less, of all packs at once. */
static void test_long(void **state)
{
    (void)state;
    static const uint32_t long_bases[] = {3, 11, 247, 512}, long_counts[] = {65537, 262143, 262144};
    packing p = {0};
    for (uint32_t i = 0; i < 12; i++) {
        packing_chunk c = {.base = long_bases[i % 4], .count = long_counts[i / 4], .pack = TG_GPU_RANS};
        packing_add(&p, c, 2 + i % 4, i);
        c.pack = TG_GPU_HUFFMAN;
        packing_add(&p, c, 2 + i % 3, i);
        c.pack = TG_GPU_BITS;
        packing_add(&p, c, 0, i);
        if (i % 4 == 0) {
            c = (packing_chunk){.word_len = i == 4 ? 2 : 4, .count = long_counts[i / 4], .pack = TG_GPU_LOSSLESS};
            packing_add(&p, c, 2, i);
        }
    }
    check(&p);
}

/* ---- damage ------------------------------------------------------------------------------------------------------------ */

/* Each byte changed, cut short, a byte too long, and the bytes of another chunk. */
static void check_damage(packing_chunk c, uint32_t shape)
{
    packing p = {0};
    test_random r = {c.base + c.count};
    packing_add(&p, c, shape, 5);
    packing_open(&p);
    size_t len = p.chunks[0].len, step = len > 400 ? len / 50 : 1;
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    memcpy(bytes, p.chunks[0].bytes, len);
    bytes[len] = 0;
    assert_true(packing_is_sound(&p, bytes, len));
    for (size_t i = 0; i < len; i += i < 20 || i + 20 > len ? 1 : step) {
        uint8_t was = bytes[i];
        bytes[i] = (uint8_t)(was ^ 1u << test_bits(&r) % 8);
        (void)packing_is_sound(&p, bytes, len);
        bytes[i] = (uint8_t)test_bits(&r);
        (void)packing_is_sound(&p, bytes, len);
        bytes[i] = was;
    }
    for (size_t i = 1; i < len; i += step * 3) {
        (void)packing_is_sound(&p, bytes, len - i);
    }
    (void)packing_is_sound(&p, bytes, len + 1);
    for (uint32_t i = 0; i < 30; i++) { /* a sound beginning, then noise */
        size_t kept = i % 2 == 0 ? test_bits(&r) % len : 1;
        for (size_t k = kept; k < len; k++) {
            bytes[k] = (uint8_t)test_bits(&r);
        }
        (void)packing_is_sound(&p, bytes, len);
        memcpy(bytes, p.chunks[0].bytes, len);
    }
    free(bytes);
    packing_close(&p);
}

static void test_damage_of_bits(void **state)
{
    (void)state;
    check_damage((packing_chunk){.base = 3, .count = 511, .pack = TG_GPU_BITS}, 0);
    check_damage((packing_chunk){.base = 2, .count = 61, .pack = TG_GPU_BITS}, 0);
    check_damage((packing_chunk){.base = 17, .count = 203, .pack = TG_GPU_BITS, .is_sparse = true}, 0);
}

static void test_damage_of_rans(void **state)
{
    (void)state;
    check_damage((packing_chunk){.base = 11, .count = 300, .pack = TG_GPU_RANS}, 2);
    check_damage((packing_chunk){.base = 300, .count = 2000, .pack = TG_GPU_RANS}, 5);
    check_damage((packing_chunk){.base = 11, .count = 20000, .pack = TG_GPU_RANS}, 2);
    check_damage((packing_chunk){.base = 3, .count = 40, .pack = TG_GPU_RANS}, 0);
}

static void test_damage_of_huffman(void **state)
{
    (void)state;
    check_damage((packing_chunk){.base = 11, .count = 300, .pack = TG_GPU_HUFFMAN}, 2);
    check_damage((packing_chunk){.base = 11, .count = 8200, .pack = TG_GPU_HUFFMAN}, 2);
    packing_chunk c = {
        .base = 11, .count = 400, .pack = TG_GPU_HUFFMAN, .quantize = TG_GPU_FP4, .by_model = true, .row = 30};
    check_damage(c, 2);
}

static void test_damage_of_lossless(void **state)
{
    (void)state;
    check_damage((packing_chunk){.word_len = 2, .count = 300, .pack = TG_GPU_LOSSLESS}, 2);
    check_damage((packing_chunk){.word_len = 4, .count = 200, .pack = TG_GPU_LOSSLESS}, 2);
}

static void test_lacks(void **state)
{
    (void)state;
    tg_gpu_unit u = {.coded = 1, .symbol = 5};
    assert_string_equal(tg_gpu_pack_lacks(&u), "zstd");
    u.symbol = TG_GPU_RANS;
    assert_null(tg_gpu_pack_lacks(&u));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_bits),
        cmocka_unit_test(test_rans),
        cmocka_unit_test(test_huffman),
        cmocka_unit_test(test_huffman_that_fills_shared_memory),
        cmocka_unit_test(test_lossless),
        cmocka_unit_test(test_codes_of_models),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_damage_of_bits),
        cmocka_unit_test(test_damage_of_rans),
        cmocka_unit_test(test_damage_of_huffman),
        cmocka_unit_test(test_damage_of_lossless),
        cmocka_unit_test(test_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
