/* Symbol counts for AVX-512. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/scalar.h"

enum { FEW = 16, LANES = 32, VECTORS_MAX = 65535 }; /* a lane counts in 16 bits */

/* Compares with each symbol below `most`, for which there are registers; `most` is a constant and not below `base`. */
TG_AVX512_INLINE void count_each(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base, uint32_t most)
{
    __m512i lanes[FEW];
    for (uint32_t s = 0; s < most; s++) {
        lanes[s] = _mm512_setzero_si512();
    }
    for (size_t i = 0; i < n / LANES; i++) {
        __m512i some = _mm512_loadu_si512(symbols + LANES * i);
        for (uint32_t s = 0; s < most; s++) {
            __mmask32 same = _mm512_cmpeq_epi16_mask(some, _mm512_set1_epi16((short)s));
            lanes[s] = _mm512_mask_sub_epi16(lanes[s], same, lanes[s], _mm512_set1_epi16(-1));
        }
    }
    for (size_t i = n - n % LANES; i < n; i++) {
        counts[symbols[i]]++;
    }
    for (uint32_t s = 0; s < base; s++) {
        __m512i low = _mm512_and_si512(lanes[s], _mm512_set1_epi32(0xffff));
        counts[s] += (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(low, _mm512_srli_epi32(lanes[s], 16)));
    }
}

TG_AVX512 void tg_avx512_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base)
{
    if (base > FEW) {
        tg_scalar_count(counts, symbols, n, base);
        return;
    }
    for (size_t done = 0, m = 0; done < n; done += m) {
        m = n - done < (size_t)VECTORS_MAX * LANES ? n - done : (size_t)VECTORS_MAX * LANES;
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
}
#endif
