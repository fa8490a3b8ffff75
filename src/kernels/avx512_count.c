/* A kernel for AVX-512 that counts symbols of which there are few; see avx512.h. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TG_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,popcnt")))
#define INLINED static inline __attribute__((always_inline)) TG_TARGET

enum { LANES = 32, VECTORS_MAX = 65535 }; /* a lane counts in 16 bits */

/* By comparing with each symbol in turn, up to `most` of them, as many as there are registers for. */
INLINED void count_each(uint32_t *counts, const uint16_t *symbols, size_t vectors, uint32_t base, uint32_t most)
{
    __m512i lanes[TG_COUNT_FEW];
    for (uint32_t s = 0; s < most; s++) {
        lanes[s] = _mm512_setzero_si512();
    }
    for (size_t i = 0; i < vectors; i++) {
        __m512i some = _mm512_loadu_si512(symbols + LANES * i);
        for (uint32_t s = 0; s < most; s++) {
            __mmask32 same = _mm512_cmpeq_epi16_mask(some, _mm512_set1_epi16((short)s));
            lanes[s] = _mm512_mask_sub_epi16(lanes[s], same, lanes[s], _mm512_set1_epi16(-1));
        }
    }
    for (uint32_t s = 0; s < base; s++) {
        __m512i low = _mm512_and_si512(lanes[s], _mm512_set1_epi32(0xffff));
        counts[s] += (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(low, _mm512_srli_epi32(lanes[s], 16)));
    }
}

TG_TARGET size_t tg_avx512_count_few(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base)
{
    size_t done = 0;
    while (n - done >= LANES) {
        size_t vectors = (n - done) / LANES < VECTORS_MAX ? (n - done) / LANES : VECTORS_MAX;
        if (base <= 3) {
            count_each(counts, symbols + done, vectors, base, 3);
        } else if (base <= 5) {
            count_each(counts, symbols + done, vectors, base, 5);
        } else if (base <= 11) {
            count_each(counts, symbols + done, vectors, base, 11);
        } else {
            count_each(counts, symbols + done, vectors, base, TG_COUNT_FEW);
        }
        done += vectors * LANES;
    }
    return done;
}
#endif
