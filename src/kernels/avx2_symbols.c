/* Quantizers for AVX2: values to symbols and back. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

/* ---- encoding ---------------------------------------------------------------------------------------------------------- */

/* Moves the quarters of both vectors, which pack instructions interleave, to their places. It is its own inverse. */
TG_AVX2_INLINE __m256i in_order(__m256i packed)
{
    return _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
}

TG_AVX2_INLINE void put(uint16_t *symbols, __m256i packed)
{
    _mm256_storeu_si256((__m256i *)(void *)symbols, in_order(packed));
}

/* Sixteen 32-bit integers as 16-bit symbols. */
TG_AVX2_INLINE void put_symbols(uint16_t *symbols, __m256i first, __m256i last)
{
    put(symbols, _mm256_packus_epi32(first, last));
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

/* ---- tables in registers ---------------------------------------------------------------------------------------------- */

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

/* ---- random rounding ---------------------------------------------------------------------------------------------------- */

/* Where r x < y, judging by the draw, and where that does not decide (draws.h). */
typedef struct judged {
    __m256 below, unsure;
} judged;

TG_AVX2_INLINE judged judge(const uint16_t *upper, __m256 x, __m256 y)
{
    const __m256 unit = _mm256_set1_ps(0x1p-16f);
    __m256i draws = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)upper));
    __m256 low = _mm256_mul_ps(_mm256_cvtepi32_ps(draws), unit), high = _mm256_add_ps(low, unit);
    __m256 certain = _mm256_cmp_ps(_mm256_mul_ps(high, x), y, _CMP_LT_OQ);
    __m256 possible = _mm256_cmp_ps(_mm256_mul_ps(low, x), y, _CMP_LT_OQ);
    return (judged){certain, _mm256_xor_ps(certain, possible)};
}

TG_AVX2_INLINE bool are_sure(const judged both[2])
{
    __m256i unsure = _mm256_castps_si256(_mm256_or_ps(both[0].unsure, both[1].unsure));
    return _mm256_testz_si256(unsure, unsure) != 0;
}

/* All bits of a 16-bit lane where r x < y, interleaved. */
TG_AVX2_INLINE __m256i pack_below(const judged both[2])
{
    return _mm256_packs_epi32(_mm256_castps_si256(both[0].below), _mm256_castps_si256(both[1].below));
}

TG_AVX2_INLINE __m256 magnitude(__m256 values)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), values);
}

/* Kernels round sixteen values by a function that returns whether all are decided; the scalar kernel does the others, once in four
 * thousand times. */
#define UNLIKELY(condition) __builtin_expect((condition), 0)

TG_AVX2_INLINE bool ternary(uint16_t *symbols, const float *values, const uint16_t *upper, __m256 largest)
{
    const __m256 value[2] = {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
    const judged sent[2] = {judge(upper, largest, magnitude(value[0])), judge(upper + 8, largest, magnitude(value[1]))};
    __m256i bits = _mm256_packs_epi32(_mm256_castps_si256(value[0]), _mm256_castps_si256(value[1])); /* keeps signs */
    __m256i one = _mm256_set1_epi16(1), step = _mm256_or_si256(_mm256_srai_epi16(bits, 15), one);
    put(symbols, _mm256_add_epi16(one, _mm256_and_si256(pack_below(sent), step))); /* if it is sent it is not 0 */
    return are_sure(sent);
}

TG_AVX2 void tg_avx2_ternary(uint16_t *symbols, const float *values, const tg_draws *draws, float largest, size_t n)
{
    const __m256 all = _mm256_set1_ps(largest);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!ternary(symbols + i, values + i, draws->upper + i, all))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_ternary(symbols + i, values + i, &here, largest, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_ternary(symbols + i, values + i, &rest, largest, n - i);
}

TG_AVX2_INLINE bool two_sided(uint16_t *symbols, const float *values, const uint16_t *upper, __m256 level)
{
    const __m256 half = _mm256_set1_ps(0.5f), middle = _mm256_mul_ps(level, half);
    const __m256 above[2] = {_mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(values), half), middle),
                             _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(values + 8), half), middle)};
    const judged up[2] = {judge(upper, level, above[0]), judge(upper + 8, level, above[1])};
    put(symbols, _mm256_srli_epi16(pack_below(up), 15));
    return are_sure(up);
}

TG_AVX2 void tg_avx2_two_sided(uint16_t *symbols, const float *values, const tg_draws *draws, float level, size_t n)
{
    const __m256 all = _mm256_set1_ps(level);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!two_sided(symbols + i, values + i, draws->upper + i, all))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_two_sided(symbols + i, values + i, &here, level, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_two_sided(symbols + i, values + i, &rest, level, n - i);
}

/* `shift` is 1 nearly always, and then NULL. */
TG_AVX2_INLINE bool levels(uint16_t *symbols, const float *values, const uint16_t *upper, const __m256 *shift,
                           __m256 factor, uint32_t most)
{
    const __m256 highest = _mm256_set1_ps((float)(int32_t)most), one = _mm256_set1_ps(1.0f);
    judged up[2];
    __m256i symbol[2];
    for (size_t h = 0; h < 2; h++) {
        __m256 value = _mm256_loadu_ps(values + 8 * h), at = magnitude(value);
        at = _mm256_mul_ps(shift != NULL ? _mm256_mul_ps(at, *shift) : at, factor);
        at = _mm256_min_ps(at, highest);
        __m256i level = _mm256_cvttps_epi32(at);
        up[h] = judge(upper + 8 * h, one, _mm256_sub_ps(at, _mm256_cvtepi32_ps(level)));
        level = _mm256_sub_epi32(level, _mm256_castps_si256(up[h].below));
        /* With the value's sign; -0 has level 0. */
        __m256i sign = _mm256_srai_epi32(_mm256_castps_si256(value), 31);
        level = _mm256_sub_epi32(_mm256_xor_si256(level, sign), sign);
        symbol[h] = _mm256_add_epi32(_mm256_set1_epi32((int)most), level);
    }
    put_symbols(symbols, symbol[0], symbol[1]);
    return are_sure(up);
}

TG_AVX2 void tg_avx2_levels(uint16_t *symbols, const float *values, const tg_draws *draws, float shift, float factor,
                            uint32_t most, size_t n)
{
    const __m256 moved = _mm256_set1_ps(shift), times = _mm256_set1_ps(factor);
    bool is_moved = shift != 1.0f;
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        bool done = is_moved ? levels(symbols + i, values + i, draws->upper + i, &moved, times, most)
                             : levels(symbols + i, values + i, draws->upper + i, NULL, times, most);
        if (UNLIKELY(!done)) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_levels(symbols + i, values + i, &here, shift, factor, most, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_levels(symbols + i, values + i, &rest, shift, factor, most, n - i);
}

/* In 16-bit lanes: the upper 16 bits of the fraction are compared with the draw, which decides unless both are equal. */
TG_AVX2_INLINE bool natural(uint16_t *symbols, const float *values, const uint16_t *upper)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    const __m256i bits[2] = {load_bits(values), load_bits(values + 8)};
    __m256i draw = in_order(_mm256_loadu_si256((const __m256i *)(const void *)upper));
    __m256i most = _mm256_packus_epi32(_mm256_and_si256(_mm256_srli_epi32(bits[0], 7), low),
                                       _mm256_and_si256(_mm256_srli_epi32(bits[1], 7), low));
    __m256i symbol = _mm256_packus_epi32(_mm256_srli_epi32(bits[0], 23), _mm256_srli_epi32(bits[1], 23));
    __m256i exponent = _mm256_and_si256(symbol, _mm256_set1_epi16(255));
    __m256i may = _mm256_cmpgt_epi16(_mm256_set1_epi16(254), exponent);
    __m256i stays = _mm256_cmpeq_epi16(_mm256_max_epu16(draw, most), draw);
    __m256i unsure = _mm256_cmpeq_epi16(draw, most);
    put(symbols, _mm256_sub_epi16(symbol, _mm256_andnot_si256(stays, may)));
    return _mm256_testz_si256(unsure, unsure) != 0;
}

TG_AVX2 void tg_avx2_natural(uint16_t *symbols, const float *values, const tg_draws *draws, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!natural(symbols + i, values + i, draws->upper + i))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_natural(symbols + i, values + i, &here, 16);
        }
    }
    tg_draws rest = tg_draws_from(draws, i);
    tg_scalar_natural(symbols + i, values + i, &rest, n - i);
}

/* Bounds and the distances to the next ones, up to 32 in parts of eight. */
typedef struct intervals {
    __m256 low[4], width[4];
} intervals;

/* `part_n` is a constant. */
TG_AVX2_INLINE bool round_between(uint16_t *symbols, const float *values, const uint16_t *upper, const float *bounds,
                                  uint32_t bound_n, const intervals *at, int part_n, __m256 scale)
{
    const __m256 value[2] = {_mm256_mul_ps(_mm256_loadu_ps(values), scale),
                             _mm256_mul_ps(_mm256_loadu_ps(values + 8), scale)};
    __m256i below[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (uint32_t b = 1; b + 1 < bound_n; b++) {
        const __m256 bound = _mm256_set1_ps(bounds[b]);
        for (int h = 0; h < 2; h++) {
            __m256 reached = _mm256_cmp_ps(bound, value[h], _CMP_LE_OQ);
            below[h] = _mm256_sub_epi32(below[h], _mm256_castps_si256(reached));
        }
    }
    judged up[2];
    for (int h = 0; h < 2; h++) {
        __m256 distance = _mm256_sub_ps(value[h], pick(below[h], at->low, part_n));
        up[h] = judge(upper + 8 * h, pick(below[h], at->width, part_n), distance);
        below[h] = _mm256_sub_epi32(below[h], _mm256_castps_si256(up[h].below));
    }
    put_symbols(symbols, below[0], below[1]);
    return are_sure(up);
}

/* Returns how many values are done. */
TG_AVX2_INLINE size_t round_all_between(uint16_t *symbols, const float *values, const tg_draws *draws,
                                        const float *bounds, uint32_t bound_n, float scale, size_t n, int part_n)
{
    float lows[32] = {0}, widths[32] = {0};
    for (uint32_t b = 0; b + 1 < bound_n; b++) {
        lows[b] = bounds[b];
        widths[b] = bounds[b + 1] - bounds[b];
    }
    intervals at;
    for (int p = 0; p < part_n; p++) {
        at.low[p] = _mm256_loadu_ps(lows + 8 * p);
        at.width[p] = _mm256_loadu_ps(widths + 8 * p);
    }
    const __m256 factor = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        if (UNLIKELY(!round_between(symbols + i, values + i, draws->upper + i, bounds, bound_n, &at, part_n, factor))) {
            tg_draws here = tg_draws_from(draws, i);
            tg_scalar_round_between(symbols + i, values + i, &here, bounds, bound_n, scale, 16);
        }
    }
    return i;
}

TG_AVX2 void tg_avx2_round_between(uint16_t *symbols, const float *values, const tg_draws *draws, const float *bounds,
                                   uint32_t bound_n, float scale, size_t n)
{
    size_t done = bound_n <= 9    ? round_all_between(symbols, values, draws, bounds, bound_n, scale, n, 1)
                  : bound_n <= 17 ? round_all_between(symbols, values, draws, bounds, bound_n, scale, n, 2)
                  : bound_n <= 33 ? round_all_between(symbols, values, draws, bounds, bound_n, scale, n, 4)
                                  : 0;
    tg_draws rest = tg_draws_from(draws, done);
    tg_scalar_round_between(symbols + done, values + done, &rest, bounds, bound_n, scale, n - done);
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
