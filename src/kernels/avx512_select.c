/* Selection by magnitude for AVX-512. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/mask_bits.h"

TG_AVX512 uint32_t tg_avx512_largest_key(const float *values, size_t n)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff);
    __m512i largest[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        largest[0] = _mm512_max_epi32(largest[0], _mm512_and_si512(_mm512_loadu_si512(values + i), rest));
        largest[1] = _mm512_max_epi32(largest[1], _mm512_and_si512(_mm512_loadu_si512(values + i + 16), rest));
    }
    for (; i < n; i += 16) {
        __m512i bits = _mm512_maskz_loadu_epi32(lanes_of(n - i), values + i);
        largest[0] = _mm512_max_epi32(largest[0], _mm512_and_si512(bits, rest));
    }
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(largest[0], largest[1]));
}

TG_AVX512 void tg_avx512_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff), bound = _mm512_set1_epi32((int)least);
    for (size_t i = 0; i < n / 64 * 64; i += 64) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 64; k += 16) {
            __m512i key = _mm512_and_si512(_mm512_loadu_si512(values + i + k), rest);
            word |= (uint64_t)_mm512_cmpge_epu32_mask(key, bound) << k;
        }
        mask[i / 64] = word;
    }
    for (size_t i = n / 64 * 64; i < n; i += 16) {
        __m512i key = _mm512_and_si512(_mm512_maskz_loadu_epi32(lanes_of(n - i), values + i), rest);
        uint64_t marks = _mm512_mask_cmpge_epu32_mask(lanes_of(n - i), key, bound);
        mask[i / 64] = (i % 64 == 0 ? 0 : mask[i / 64]) | marks << i % 64;
    }
}

/* The marks of sixteen elements, of those that are `here`. */
TG_AVX512_INLINE __mmask16 marks_of(const float *u, const float *g, __m512 factor, __m512i bound, __mmask16 here)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff);
    __m512 value = _mm512_maskz_loadu_ps(here, u);
    __m512 sum = _mm512_add_ps(value, _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(here, g)));
    __mmask16 reached = _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_castps_si512(sum), rest), bound);
    return _mm512_mask_test_epi32_mask(reached, _mm512_castps_si512(value), rest);
}

TG_AVX512 void tg_avx512_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least,
                                  size_t n)
{
    const uint32_t nan = 0x7f800001; /* the least key of a NaN; all NaNs are marked */
    const __m512i bound = _mm512_set1_epi32((int)(least < nan ? least : nan));
    const __m512 factor = _mm512_set1_ps(more);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        __mmask32 first = _mm512_kunpackw(marks_of(u + i + 16, g + i + 16, factor, bound, ALL),
                                          marks_of(u + i, g + i, factor, bound, ALL));
        __mmask32 last = _mm512_kunpackw(marks_of(u + i + 48, g + i + 48, factor, bound, ALL),
                                         marks_of(u + i + 32, g + i + 32, factor, bound, ALL));
        set_mask_bits(mask, at + i, _mm512_kunpackd(last, first));
    }
    for (; i < n; i += 16) {
        set_mask_bits(mask, at + i, marks_of(u + i, g + i, factor, bound, lanes_of(n - i)));
    }
}

/* Branches on marks are hard to predict: of a word with few marks always four indices are stored, of others all sixteen of a
 * vector, and those after the last mark are overwritten by the next word. */
TG_AVX512 size_t tg_avx512_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n)
{
    enum { FEW = 4 };
    const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t count = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        uint64_t word = mask[w];
        size_t marks_n = (size_t)_mm_popcnt_u64(word);
        if (marks_n <= FEW) {
            for (int i = 0; i < FEW; i++) {
                list[count + (size_t)i] = first + (uint32_t)(w * 64 + _tzcnt_u64(word));
                word = _blsr_u64(word);
            }
            count += marks_n;
            continue;
        }
        for (unsigned part = 0; part < 64; part += 16) {
            __mmask16 marks = (__mmask16)(word >> part);
            __m512i indices = _mm512_add_epi32(_mm512_set1_epi32((int)(first + w * 64 + part)), places);
            _mm512_storeu_si512(list + count, _mm512_maskz_compress_epi32(marks, indices));
            count += (size_t)_mm_popcnt_u32(marks);
        }
    }
    return count;
}

/* Compressed in a register: compressing stores are slow on some CPUs. Whole vectors are stored while more marks follow, which
 * overwrite what is too much. */
TG_AVX512 size_t tg_avx512_compress(float *out, const float *values, const uint64_t *mask, size_t n)
{
    size_t count = 0, total = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        total += (size_t)_mm_popcnt_u64(mask[w]);
    }
    for (size_t w = 0; count < total; w++) {
        for (size_t part = 0; part < 64 && mask[w] >> part != 0; part += 16) {
            __mmask16 marks = (__mmask16)(mask[w] >> part);
            __m512 some = _mm512_maskz_compress_ps(marks, _mm512_maskz_loadu_ps(marks, values + w * 64 + part));
            size_t marks_n = (size_t)_mm_popcnt_u32(marks);
            if (total - count >= 16) {
                _mm512_storeu_ps(out + count, some);
            } else {
                _mm512_mask_storeu_ps(out + count, lanes_of(marks_n), some);
            }
            count += marks_n;
        }
    }
    return count;
}

/* Adds to, or sets, the marked ones of sixteen elements. */
TG_AVX512_INLINE void expand(float *out, const float *values, __mmask16 marks, size_t marks_n, __m512 weight, bool adds)
{
    __m512 some = _mm512_maskz_expand_ps(marks, _mm512_maskz_loadu_ps(lanes_of(marks_n), values));
    if (adds) {
        some = _mm512_add_ps(_mm512_maskz_loadu_ps(marks, out), _mm512_mul_ps(weight, some));
    }
    _mm512_mask_storeu_ps(out, marks, some);
}

/* `adds` is a constant where this is inlined. */
TG_AVX512_INLINE void expand_all(float *out, const uint64_t *mask, const float *values, float weight, size_t n,
                                 bool adds)
{
    const __m512 factor = _mm512_set1_ps(weight);
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        for (size_t part = 0; part < 64 && mask[w] >> part != 0; part += 16) {
            __mmask16 marks = (__mmask16)(mask[w] >> part);
            size_t marks_n = (size_t)_mm_popcnt_u32(marks);
            expand(out + w * 64 + part, values, marks, marks_n, factor, adds);
            values += marks_n;
        }
    }
}

TG_AVX512 void tg_avx512_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    expand_all(out, mask, values, weight, n, true);
}

TG_AVX512 void tg_avx512_expand_set(float *out, const uint64_t *mask, const float *values, size_t n)
{
    expand_all(out, mask, values, 1.0f, n, false);
}
#endif
