/* Rounding to small floats for AVX2, as minifloat_loops.h does it. A value is compared with the product of the middle and the step,
 * rounded to binary32. That decides as the exact product does, because rounding keeps order, unless both are equal; the scalar
 * kernel does such values. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/minifloat.h"

#include <math.h>

typedef struct rounding {
    __m256 up,
        inverse; /* values are scaled by `up`, a power of two, before they are multiplied by the step's inverse */
    __m256 step, unit, units; /* distance of subnormal values, and its inverse */
    __m256i first, half, normal, last, zero;
    __m128i shift;
} rounding;

/* The symbols of eight values. Sets bits of `unsure` where the scalar kernel has to decide. */
TG_AVX2_INLINE __m256i symbols_of(const float *values, const rounding *r, __m256 *unsure)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 value = _mm256_loadu_ps(values), magnitude = _mm256_andnot_ps(sign, value);
    __m256 quotient = _mm256_mul_ps(_mm256_mul_ps(magnitude, r->up), r->inverse);
    __m256i number = _mm256_sub_epi32(_mm256_srl_epi32(_mm256_castps_si256(quotient), r->shift), r->first);
    __m256i is_small = _mm256_cmpgt_epi32(r->normal, number);
    number = _mm256_blendv_epi8(number, _mm256_cvttps_epi32(_mm256_mul_ps(quotient, r->units)), is_small);
    number = _mm256_min_epi32(number, r->last);
    __m256 middle = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_sll_epi32(number, r->shift), r->half));
    __m256 after = _mm256_add_ps(_mm256_cvtepi32_ps(number), _mm256_set1_ps(0.5f));
    middle = _mm256_blendv_ps(middle, _mm256_mul_ps(after, r->unit), _mm256_castsi256_ps(is_small));
    __m256 limit = _mm256_mul_ps(_mm256_or_ps(middle, _mm256_and_ps(value, sign)), r->step);
    *unsure = _mm256_or_ps(*unsure, _mm256_cmp_ps(value, limit, _CMP_EQ_OQ));
    __m256i is_above = _mm256_castps_si256(_mm256_cmp_ps(value, limit, _CMP_GT_OQ));
    /* Below 0, the next magnitude has the lower symbol: number becomes -1 - number. */
    __m256i lower = _mm256_xor_si256(number, _mm256_srai_epi32(_mm256_castps_si256(value), 31));
    return _mm256_sub_epi32(_mm256_add_epi32(lower, r->zero), is_above);
}

TG_AVX2 void tg_avx2_minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n)
{
    float unit = ldexpf(1, 1 - (int)f.bias - (int)f.fraction_bits), up = step < 0x1p-64f ? 0x1p96f : 1;
    int shift = 23 - (int)f.fraction_bits, first = (127 - (int)f.bias) << f.fraction_bits;
    const rounding r = {.up = _mm256_set1_ps(up),
                        .inverse = _mm256_set1_ps(1 / (step * up)),
                        .step = _mm256_set1_ps(step),
                        .unit = _mm256_set1_ps(unit),
                        .units = _mm256_set1_ps(1 / unit),
                        .first = _mm256_set1_epi32(first),
                        .half = _mm256_set1_epi32((first << shift) + (1 << (shift - 1))),
                        .normal = _mm256_set1_epi32(1 << f.fraction_bits),
                        .last = _mm256_set1_epi32((int)f.largest - 1),
                        .zero = _mm256_set1_epi32((int)f.largest),
                        .shift = _mm_cvtsi32_si128(shift)};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256 unsure = _mm256_setzero_ps();
        __m256i first_half = symbols_of(values + i, &r, &unsure), last_half = symbols_of(values + i + 8, &r, &unsure);
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(first_half, last_half), _MM_SHUFFLE(3, 1, 2, 0));
        _mm256_storeu_si256((__m256i *)(void *)(symbols + i), packed);
        if (_mm256_movemask_ps(unsure) != 0) {
            tg_kernels_scalar.symbols.minifloats(symbols + i, values + i, step, f, 16);
        }
    }
    tg_kernels_scalar.symbols.minifloats(symbols + i, values + i, step, f, n - i);
}
#endif
