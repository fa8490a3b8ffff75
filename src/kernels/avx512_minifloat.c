/* Rounding to small floats for AVX-512, as minifloat_loops.h does it. A fused multiplication and addition rounds once, so its
 * sign is that of the exact difference: no binary64 is needed. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/minifloat.h"

#include <math.h>

typedef struct rounding {
    __m512 up, inverse,
        step;              /* `step` and values are scaled by `up`, a power of two, so that no difference becomes 0 */
    __m512 units, middles; /* inverse of the distance of subnormal values, and the middles after each */
    __m512i first, half, normal, last, zero;
    __m128i shift;
} rounding;

TG_AVX512_INLINE void round_some(uint16_t *symbols, const float *values, const rounding *r, __mmask16 here)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(here, values), r->up);
    __m512 quotient = _mm512_mul_ps(_mm512_abs_ps(value), r->inverse);
    __m512i number = _mm512_sub_epi32(_mm512_srl_epi32(_mm512_castps_si512(quotient), r->shift), r->first);
    __mmask16 is_small = _mm512_cmplt_epi32_mask(number, r->normal);
    number = _mm512_mask_cvttps_epi32(number, is_small, _mm512_mul_ps(quotient, r->units));
    number = _mm512_min_epi32(number, r->last);
    __m512 middle = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_sll_epi32(number, r->shift), r->half));
    middle = _mm512_mask_permutexvar_ps(middle, is_small, number, r->middles);
    /* The sign of the value: (middle & ~sign) | (value & sign). */
    __m512i of_value = _mm512_castps_si512(value);
    middle = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(middle), of_value, sign, 0xd8));
    __mmask16 is_above = _mm512_cmp_ps_mask(_mm512_fnmadd_ps(middle, r->step, value), _mm512_setzero_ps(), _CMP_GT_OQ);
    __m512i symbol = _mm512_add_epi32(_mm512_xor_si512(number, _mm512_srai_epi32(of_value, 31)), r->zero);
    symbol = _mm512_mask_sub_epi32(symbol, is_above, symbol, _mm512_set1_epi32(-1));
    _mm256_mask_storeu_epi16(symbols, here, _mm512_cvtepi32_epi16(symbol));
}

TG_AVX512 void tg_avx512_minifloats(uint16_t *symbols, const float *values, float step, tg_float_format f, size_t n)
{
    float middles[16], unit = ldexpf(1, 1 - (int)f.bias - (int)f.fraction_bits), up = step < 0x1p-64f ? 0x1p96f : 1;
    int shift = 23 - (int)f.fraction_bits, first = (127 - (int)f.bias) << f.fraction_bits;
    for (int m = 0; m < 16; m++) {
        middles[m] = ((float)m + 0.5f) * unit;
    }
    const rounding r = {.up = _mm512_set1_ps(up),
                        .inverse = _mm512_set1_ps(1 / (step * up)),
                        .step = _mm512_set1_ps(step * up),
                        .units = _mm512_set1_ps(1 / unit),
                        .middles = _mm512_loadu_ps(middles),
                        .first = _mm512_set1_epi32(first),
                        .half = _mm512_set1_epi32((first << shift) + (1 << (shift - 1))),
                        .normal = _mm512_set1_epi32(1 << f.fraction_bits),
                        .last = _mm512_set1_epi32((int)f.largest - 1),
                        .zero = _mm512_set1_epi32((int)f.largest),
                        .shift = _mm_cvtsi32_si128(shift)};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        round_some(symbols + i, values + i, &r, ALL);
    }
    round_some(symbols + i, values + i, &r, lanes_of(n - i));
}
#endif
