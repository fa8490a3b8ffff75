/* Quantizers for AVX2: values to symbols and back. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

/* ---- encoding ---------------------------------------------------------------------------------------------------------- */

/* Sixteen 32-bit integers as 16-bit symbols. */
TG_AVX2_INLINE void put_symbols(uint16_t *symbols, __m256i first, __m256i last)
{
    __m256i both = _mm256_packus_epi32(first, last);
    _mm256_storeu_si256((__m256i *)(void *)symbols, _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
}

TG_AVX2_INLINE __m256i load_bits(const float *values)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)values);
}

TG_AVX2 void tg_avx2_signs(uint16_t *symbols, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        put_symbols(symbols + i, _mm256_srli_epi32(load_bits(values + i), 31),
                    _mm256_srli_epi32(load_bits(values + i + 8), 31));
    }
    tg_scalar_signs(symbols + i, values + i, n - i);
}

/* 1 where the value is above the limit, else 0. */
TG_AVX2_INLINE __m256i are_above(const float *values, __m256 limit)
{
    __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(values), limit, _CMP_GT_OQ);
    return _mm256_srli_epi32(_mm256_castps_si256(above), 31);
}

TG_AVX2 void tg_avx2_mark_above(uint16_t *symbols, const float *values, float threshold, size_t n)
{
    const __m256 limit = _mm256_set1_ps(threshold);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        put_symbols(symbols + i, are_above(values + i, limit), are_above(values + i + 8, limit));
    }
    tg_scalar_mark_above(symbols + i, values + i, threshold, n - i);
}

/* Four vectors, to hide the latency of the subtractions. */
TG_AVX2 void tg_avx2_count_above(uint16_t *symbols, const float *values, const float *limits, uint32_t limit_n,
                                 size_t n)
{
    enum { VECTORS = 4 };
    size_t i = 0;
    for (; n - i >= 8 * VECTORS; i += 8 * VECTORS) {
        __m256 value[VECTORS];
        __m256i counts[VECTORS];
        for (size_t v = 0; v < VECTORS; v++) {
            value[v] = _mm256_loadu_ps(values + i + 8 * v);
            counts[v] = _mm256_setzero_si256();
        }
        for (uint32_t l = 0; l < limit_n; l++) {
            const __m256 limit = _mm256_set1_ps(limits[l]);
            for (size_t v = 0; v < VECTORS; v++) {
                __m256 above = _mm256_cmp_ps(value[v], limit, _CMP_GT_OQ);
                counts[v] = _mm256_sub_epi32(counts[v], _mm256_castps_si256(above));
            }
        }
        put_symbols(symbols + i, counts[0], counts[1]);
        put_symbols(symbols + i + 16, counts[2], counts[3]);
    }
    tg_scalar_count_above(symbols + i, values + i, limits, limit_n, n - i);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------------- */

TG_AVX2_INLINE __m256i load_symbols(const uint16_t *symbols)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)symbols));
}

TG_AVX2 void tg_avx2_powers(float *values, const uint16_t *symbols, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256i bits = _mm256_slli_epi32(load_symbols(symbols + i), 23);
        _mm256_storeu_si256((__m256i *)(void *)(values + i), bits);
    }
    tg_scalar_powers(values + i, symbols + i, n - i);
}

/* Up to 64 floats, in parts of eight. */
enum { PART = 8, PARTS = 8 };

/* The floats of eight symbols below PART * part_n, a power of two and a constant: that of every part by the lower three bits, and
 * one of these by each further bit, which is moved to the sign bit. */
TG_AVX2_INLINE __m256 pick(__m256i symbol, const __m256 *parts, int part_n)
{
    __m256 found[PARTS];
    for (int p = 0; p < part_n; p++) {
        found[p] = _mm256_permutevar8x32_ps(parts[p], symbol);
    }
    for (int left = part_n / 2, bit = 3; left > 0; left /= 2, bit++) {
        __m256 odd = _mm256_castsi256_ps(_mm256_slli_epi32(symbol, 31 - bit));
        for (int p = 0; p < left; p++) {
            found[p] = _mm256_blendv_ps(found[2 * p], found[2 * p + 1], odd);
        }
    }
    return found[0];
}

/* `adds` and `part_n` are constants. Four quarters side by side, as in avx512_symbols.c. */
TG_AVX2_INLINE size_t look_up_all(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n,
                                  bool adds, int part_n)
{
    float padded[PART * PARTS] = {0};
    __m256 parts[PARTS];
    for (uint32_t f = 0; f < float_n; f++) {
        padded[f] = floats[f];
    }
    for (int p = 0; p < part_n; p++) {
        parts[p] = _mm256_loadu_ps(padded + PART * p);
    }
    size_t quarter = n / 32 * 8;
    for (size_t i = 0; i < quarter; i += 8) {
        for (size_t at = i; at < 4 * quarter; at += quarter) {
            __m256 found = pick(load_symbols(symbols + at), parts, part_n);
            found = adds ? _mm256_add_ps(_mm256_loadu_ps(out + at), found) : found;
            _mm256_storeu_ps(out + at, found);
        }
    }
    return 4 * quarter;
}

TG_AVX2_INLINE size_t look_up_any(float *out, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n,
                                  bool adds)
{
    return float_n <= 8    ? look_up_all(out, symbols, floats, float_n, n, adds, 1)
           : float_n <= 16 ? look_up_all(out, symbols, floats, float_n, n, adds, 2)
           : float_n <= 32 ? look_up_all(out, symbols, floats, float_n, n, adds, 4)
           : float_n <= 64 ? look_up_all(out, symbols, floats, float_n, n, adds, 8)
                           : 0;
}

TG_AVX2 void tg_avx2_look_up(float *values, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n)
{
    size_t done = look_up_any(values, symbols, floats, float_n, n, false);
    tg_scalar_look_up(values + done, symbols + done, floats, float_n, n - done);
}

TG_AVX2 void tg_avx2_look_up_add(float *sums, const uint16_t *symbols, const float *floats, uint32_t float_n, size_t n)
{
    size_t done = look_up_any(sums, symbols, floats, float_n, n, true);
    tg_scalar_look_up_add(sums + done, symbols + done, floats, float_n, n - done);
}
#endif
