/* Symbol counts for AVX2. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

enum { FEW = 16, LANES = 32, VECTORS_MAX = 255 }; /* a lane counts in 8 bits */

/* Compares with each symbol below `most`, for which there are registers; `most` is a constant and not below `base`. At most
 * VECTORS_MAX vectors. */
TG_AVX2_INLINE void count_each(uint32_t *counts, const uint16_t *symbols, size_t vector_n, uint32_t base, uint32_t most)
{
    __m256i lanes[FEW];
    for (uint32_t s = 0; s < most; s++) {
        lanes[s] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < vector_n; i++) {
        const __m256i *here = (const __m256i *)(const void *)(symbols + LANES * i);
        __m256i some = _mm256_packus_epi16(_mm256_loadu_si256(here), _mm256_loadu_si256(here + 1));
        for (uint32_t s = 0; s < most; s++) {
            lanes[s] = _mm256_sub_epi8(lanes[s], _mm256_cmpeq_epi8(some, _mm256_set1_epi8((char)s)));
        }
    }
    for (uint32_t s = 0; s < base; s++) {
        uint64_t sums[4];
        _mm256_storeu_si256((__m256i *)(void *)sums, _mm256_sad_epu8(lanes[s], _mm256_setzero_si256()));
        counts[s] += (uint32_t)(sums[0] + sums[1] + sums[2] + sums[3]);
    }
}

TG_AVX2 void tg_avx2_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base)
{
    if (base > FEW) {
        tg_scalar_count(counts, symbols, n, base);
        return;
    }
    size_t done = 0;
    for (size_t m = 0; n - done >= LANES; done += LANES * m) {
        m = (n - done) / LANES < VECTORS_MAX ? (n - done) / LANES : VECTORS_MAX;
        if (base <= 3) {
            count_each(counts, symbols + done, m, base, 3);
        } else if (base <= 5) {
            count_each(counts, symbols + done, m, base, 5);
        } else if (base <= 11) {
            count_each(counts, symbols + done, m, base, 11);
        } else {
            count_each(counts, symbols + done, m, base, FEW);
        }
    }
    for (; done < n; done++) {
        counts[symbols[done]]++;
    }
}
#endif
