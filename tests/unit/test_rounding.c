/* Random rounding has no bias that can be seen: of many draws, as many round up as should. TG_DRAWS=1000000000 makes the long
 * test (a minute with AVX-512); by default a few million draws are made. */
#include "support.h"

#include "base/philox.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>

enum { AT_ONCE = 65536, KERNELS = 5 };

static const double chances[] = {0,    0x1p-40, 0x1p-32, 0x1p-25, 1e-6, 0x1p-17, 1e-4,        0.001,
                                 0.01, 0.1,     1.0 / 3, 0.5,     0.75, 0.999,   1 - 0x1p-17, 1};

/* Rounds values that are to round up with probability p; returns how many did. */
static size_t round_up(uint16_t *symbols, float *values, const tg_draws *draws, int kernel, float p)
{
    const tg_symbol_kernels *k = &tg_kernels_best()->symbols;
    static const float bounds[] = {-3, -1, 0, 1, 8};
    uint16_t low = 0;
    float value = kernel == 0 ? p : kernel == 1 ? 2 * p - 1 : kernel == 2 ? 3 + p : kernel == 3 ? 1 + p : p;
    for (size_t i = 0; i < AT_ONCE; i++) {
        values[i] = value;
    }
    switch (kernel) {
    case 0:
        k->ternary(symbols, values, draws, 1.0f, AT_ONCE);
        low = 1;
        break;
    case 1: k->two_sided(symbols, values, draws, 1.0f, AT_ONCE); break;
    case 2:
        k->levels(symbols, values, draws, 1.0f, 1.0f, 16, AT_ONCE);
        low = 16 + 3;
        break;
    case 3:
        k->natural(symbols, values, draws, AT_ONCE);
        low = 127;
        break;
    default:
        k->round_between(symbols, values, draws, bounds, 5, 1.0f, AT_ONCE);
        low = 2;
        break;
    }
    size_t up = 0;
    for (size_t i = 0; i < AT_ONCE; i++) {
        up += symbols[i] != low ? 1 : 0;
    }
    return up;
}

/* The probability that a kernel is really asked for: values are floats. */
static double asked(int kernel, float p)
{
    return kernel == 1   ? ((double)(2 * p - 1) + 1) / 2
           : kernel == 2 ? (double)(3 + p) - 3
           : kernel == 3 ? (double)(1 + p) - 1
                         : (double)p;
}

static void no_bias_is_seen(void **state)
{
    (void)state;
    const char *given = getenv("TG_DRAWS");
    double wanted = given != NULL ? atof(given) : 4e6;
    static uint16_t upper[AT_ONCE], symbols[AT_ONCE];
    static float values[AT_ONCE];
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        for (size_t c = 0; c < sizeof chances / sizeof *chances; c++) {
            double n = 0, up = 0, p = asked(kernel, (float)chances[c]);
            uint64_t key = tg_stream_of(17, c, (uint32_t)kernel, 1).key;
            for (; n < wanted; n += AT_ONCE) {
                tg_draws draws = tg_draw(upper, key, (uint64_t)n, AT_ONCE, 0, upper);
                up += (double)round_up(symbols, values, &draws, kernel, (float)chances[c]);
            }
            double spread = sqrt(n * p * (1 - p));
            if (given != NULL) {
                print_message("kernel %d, p %.9g: %.0f of %.0f, %+.2f standard deviations\n", kernel, p, up, n,
                              spread > 0 ? (up - n * p) / spread : up - n * p);
            }
            /* One more where a single one is to be expected at most. */
            assert_true(fabs(up - n * p) <= 5 * spread + (p > 0 && n * p < 1 ? 2 : 0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_bias_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
