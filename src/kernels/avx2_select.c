/* Selection by magnitude for AVX2. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/mask_bits.h"

TG_AVX2_INLINE __m256i load_keys(const float *values)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)values);
    return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
}

TG_AVX2 uint32_t tg_avx2_largest_key(const float *values, size_t n)
{
    __m256i largest[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    uint32_t keys[8];
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        largest[0] = _mm256_max_epi32(largest[0], load_keys(values + i));
        largest[1] = _mm256_max_epi32(largest[1], load_keys(values + i + 8));
    }
    _mm256_storeu_si256((__m256i *)(void *)keys, _mm256_max_epi32(largest[0], largest[1]));
    uint32_t key = tg_kernels_scalar.select.largest_key(values + i, n - i);
    for (int k = 0; k < 8; k++) {
        key = keys[k] > key ? keys[k] : key;
    }
    return key;
}

TG_AVX2 void tg_avx2_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff), below = _mm256_set1_epi32((int)least - 1);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 64; k += 8) {
            __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(values + i + k));
            __m256i above = _mm256_cmpgt_epi32(_mm256_and_si256(bits, rest), below);
            word |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(above)) << k;
        }
        mask[i / 64] = word;
    }
    if (i < n) {
        tg_kernels_scalar.select.mark_keys(mask + i / 64, values + i, least, n - i);
    }
}

/* The elements of a bin among eight, as a mask. */
TG_AVX2_INLINE uint32_t bin_marks(const float *u, const float *g, __m256 factor, __m256i below)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff);
    __m256 value = _mm256_loadu_ps(u);
    __m256 sum = _mm256_add_ps(value, _mm256_mul_ps(factor, _mm256_loadu_ps(g)));
    __m256i reached = _mm256_cmpgt_epi32(_mm256_and_si256(_mm256_castps_si256(sum), rest), below);
    __m256i key = _mm256_and_si256(_mm256_castps_si256(value), rest);
    __m256i is_in = _mm256_and_si256(reached, _mm256_cmpgt_epi32(key, _mm256_setzero_si256()));
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_in));
}

TG_AVX2 void tg_avx2_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least,
                              size_t n)
{
    const uint32_t nan = 0x7f800001; /* the least key of a NaN; all NaNs are marked */
    const __m256i below = _mm256_set1_epi32((int)(least < nan ? least : nan) - 1);
    const __m256 factor = _mm256_set1_ps(more);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        uint32_t marks = 0;
        for (unsigned k = 0; k < 32; k += 8) {
            marks |= bin_marks(u + i + k, g + i + k, factor, below) << k;
        }
        set_mask_bits(mask, at + i, marks);
    }
    for (; n - i >= 8; i += 8) {
        set_mask_bits(mask, at + i, bin_marks(u + i, g + i, factor, below));
    }
    tg_kernels_scalar.select.mark_bin(mask, at + i, u + i, g + i, more, least, n - i);
}

/* Branches on marks are hard to predict: of a word with few marks always four indices are stored, of others all eight of a vector,
 * and those after the last mark are overwritten by the next word. */
TG_AVX2 size_t tg_avx2_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n)
{
    enum { FEW = 4 };
    size_t count = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        uint64_t word = mask[w];
        size_t marks_n = (size_t)_mm_popcnt_u64(word);
        if (marks_n <= FEW) {
            for (size_t i = 0; i < FEW; i++) {
                list[count + i] = first + (uint32_t)(w * 64 + _tzcnt_u64(word));
                word = _blsr_u64(word);
            }
            count += marks_n;
            continue;
        }
        for (unsigned part = 0; part < 64; part += 8) {
            uint32_t marks = (uint32_t)(word >> part) & 255;
            __m256i from = _mm256_set1_epi32((int)(first + w * 64 + part));
            __m256i indices = _mm256_add_epi32(from, lanes_in(&tg_avx2_marked[marks]));
            _mm256_storeu_si256((__m256i *)(void *)(list + count), indices);
            count += (size_t)_mm_popcnt_u32(marks);
        }
    }
    return count;
}
#endif
