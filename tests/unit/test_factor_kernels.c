/* Products with low-rank factors: kernels of every instruction set against the scalar ones, and those against sums in fp64. */
#include "support.h"

#include "base/half.h"
#include "kernels/factors.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = TG_LEAF_ROWS, RANK = 64, STRIDE = TG_LEAF + 5, SIZE = RANK * STRIDE };
static const size_t lens[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 1000, 1023, TG_LEAF};
static const uint32_t ranks[] = {1, 2, 3, 4, 5, 8, 9, 13, 64};
enum { LEN_N = sizeof lens / sizeof *lens, RANK_N = sizeof ranks / sizeof *ranks };

typedef struct operands {
    float values[ROWS * STRIDE], residual[ROWS * STRIDE], factor[SIZE], sums[2][SIZE], also[2][SIZE];
} operands;

static void fill(float *values, size_t n, test_random *random, bool any)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = test_bits(random);
        values[i] =
            any && bits % 8 == 0 ? tg_bits_float((uint32_t)(bits >> 32)) : (float)(int32_t)(bits >> 32) * 0x1p-29f;
    }
}

/* Which NaN a sum is differs between CPUs. */
static void same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true((isnan(a[i]) && isnan(b[i])) || tg_float_bits(a[i]) == tg_float_bits(b[i]));
    }
}

static void refill(operands *o, test_random *random, bool any)
{
    fill(o->values, ROWS * STRIDE, random, any);
    fill(o->residual, ROWS * STRIDE, random, any);
    fill(o->factor, SIZE, random, any);
    fill(o->sums[0], SIZE, random, false);
    fill(o->also[0], SIZE, random, false);
    memcpy(o->sums[1], o->sums[0], sizeof o->sums[1]); /* so that writes where there should be none are noticed */
    memcpy(o->also[1], o->also[0], sizeof o->also[1]);
}

static void compare(const tg_kernels *fast, operands *o, test_random *random, uint32_t rank, size_t n, bool any)
{
    const tg_factor_kernels *of[2] = {&tg_kernels_scalar.factors, &fast->factors};
    size_t row_n = test_bits(random) % (ROWS + 1), abreast = 1 + test_bits(random) % 4;
    bool fed = test_bits(random) % 2 == 0, kept = test_bits(random) % 4 != 0;
    uint32_t limit = tg_float_bits(any ? 1e30f : 4.0f);
    const tg_matrix m = {o->values + 1, fed ? o->residual + 2 : NULL, 0.75f, STRIDE};
    bool beyond[2];
    refill(o, random, any);
    for (int i = 0; i < 2; i++) {
        beyond[i] = of[i]->multiply(o->sums[i], &m, row_n, o->factor + 3, STRIDE, rank, limit, n);
    }
    assert_int_equal(beyond[0], beyond[1]);
    same(o->sums[0], o->sums[1], SIZE);
    memcpy(o->sums[0], o->also[0], sizeof o->sums[0]);
    memcpy(o->sums[1], o->also[0], sizeof o->sums[1]);
    for (int i = 0; i < 2; i++) {
        of[i]->multiply_back(o->sums[i], STRIDE, &m, row_n, o->factor + 3, STRIDE, rank, n);
    }
    same(o->sums[0], o->sums[1], SIZE);
    for (int i = 0; i < 2; i++) {
        of[i]->expand(o->sums[i], kept ? o->also[i] : NULL, &m, abreast, o->values, o->factor, STRIDE, rank, n);
    }
    same(o->sums[0], o->sums[1], SIZE);
    same(o->also[0], o->also[1], SIZE);
    double dots[2][4] = {{0}}, shares[RANK];
    for (uint32_t k = 0; k < rank; k++) {
        shares[k] = (double)test_gaussian(random);
    }
    for (int i = 0; i < 2; i++) {
        of[i]->dots(dots[i], o->factor, o->factor + STRIDE, STRIDE, (uint32_t)abreast, n);
        of[i]->project(o->sums[i], o->factor, STRIDE, shares, rank - 1, n);
    }
    for (size_t b = 0; b < 4; b++) {
        assert_true(memcmp(&dots[0][b], &dots[1][b], sizeof dots[0][b]) == 0 ||
                    (isnan(dots[0][b]) && isnan(dots[1][b])));
    }
    same(o->sums[0], o->sums[1], SIZE);
}

static void kernels_are_the_same(void **state)
{
    (void)state;
    operands *o = test_room(sizeof *o);
    test_random random = {3};
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *fast = tg_kernels_of((tg_simd_level)level);
        for (size_t r = 0; fast != NULL && r < RANK_N; r++) {
            for (size_t l = 0; l < LEN_N; l++) {
                compare(fast, o, &random, ranks[r], lens[l], false);
                compare(fast, o, &random, ranks[r], lens[l], true);
            }
        }
    }
    free(o);
}

/* In place: averages over values, and the residual over itself. */
static void results_may_replace_operands(void **state)
{
    (void)state;
    operands *o = test_room(sizeof *o);
    test_random random = {4};
    for (int level = TG_SIMD_SCALAR; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        for (size_t l = 0; k != NULL && l < LEN_N; l++) {
            const tg_matrix m = {o->values, o->residual, 1, STRIDE};
            float weights[8];
            refill(o, &random, false);
            fill(weights, 8, &random, false);
            k->factors.expand(o->sums[0], o->also[0], &m, 2, weights, o->factor, STRIDE, 4, lens[l]);
            k->factors.expand(o->values, o->residual, &m, 2, weights, o->factor, STRIDE, 4, lens[l]);
            for (size_t i = 0; i < 2; i++) {
                same(o->values + i * STRIDE, o->sums[0] + i * STRIDE, lens[l]);
                same(o->residual + i * STRIDE, o->also[0] + i * STRIDE, lens[l]);
            }
        }
    }
    free(o);
}

/* Within n roundings of the sum of magnitudes, by far. */
static void near(float sum, double want, double magnitudes)
{
    assert_true(fabs((double)sum - want) <= 0x1p-24 * 45 * magnitudes);
}

static void sums_are_those_of_the_definition(void **state)
{
    (void)state;
    operands *o = test_room(sizeof *o);
    test_random random = {5};
    for (size_t l = 0; l < LEN_N; l++) {
        size_t n = lens[l], rank = 5;
        const tg_matrix m = {o->values, o->residual, 0.5f, STRIDE};
        refill(o, &random, false);
        memset(o->also[0], 0, sizeof o->also[0]);
        tg_kernels_scalar.factors.multiply(o->sums[0], &m, ROWS, o->factor, STRIDE, (uint32_t)rank, UINT32_MAX >> 1, n);
        tg_kernels_scalar.factors.multiply_back(o->also[0], STRIDE, &m, ROWS, o->factor, STRIDE, (uint32_t)rank, n);
        for (size_t k = 0; k < rank; k++) {
            for (size_t i = 0; i < ROWS; i++) {
                double sum = 0, magnitudes = 0;
                for (size_t j = 0; j < n; j++) {
                    double value = (double)o->values[i * STRIDE + j] + 0.5 * (double)o->residual[i * STRIDE + j];
                    sum += value * (double)o->factor[k * STRIDE + j];
                    magnitudes += fabs(value * (double)o->factor[k * STRIDE + j]);
                }
                near(o->sums[0][i * rank + k], sum, magnitudes);
            }
            for (size_t j = 0; j < n; j++) {
                double sum = 0, magnitudes = 0;
                for (size_t i = 0; i < ROWS; i++) {
                    double value = (double)o->values[i * STRIDE + j] + 0.5 * (double)o->residual[i * STRIDE + j];
                    sum += value * (double)o->factor[k * STRIDE + i];
                    magnitudes += fabs(value * (double)o->factor[k * STRIDE + i]);
                }
                near(o->also[0][k * STRIDE + j], sum, magnitudes);
            }
        }
    }
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_the_same),
        cmocka_unit_test(results_may_replace_operands),
        cmocka_unit_test(sums_are_those_of_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
