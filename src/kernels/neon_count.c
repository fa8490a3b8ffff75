/* Symbol counts for NEON. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/scalar.h"

enum { FEW = 16, LANES = 16, VECTORS_MAX = 255 }; /* a lane counts in 8 bits */

/* Compares with each symbol below `most`, which is a constant and not below base - 1; the last symbol's count is the rest. `n` is a
 * multiple of LANES. */
TG_NEON_INLINE void count_each(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base, uint32_t most)
{
    uint8x16_t lanes[FEW];
    for (uint32_t s = 0; s < most; s++) {
        lanes[s] = vdupq_n_u8(0);
    }
    for (size_t i = 0; i < n; i += LANES) {
        uint8x16_t low = vreinterpretq_u8_u16(vld1q_u16(symbols + i));
        uint8x16_t some = vuzp1q_u8(low, vreinterpretq_u8_u16(vld1q_u16(symbols + i + 8)));
        for (uint32_t s = 0; s < most; s++) {
            lanes[s] = vsubq_u8(lanes[s], vceqq_u8(some, vdupq_n_u8((uint8_t)s)));
        }
    }
    uint32_t left = (uint32_t)n;
    for (uint32_t s = 0; s + 1 < base; s++) {
        uint32_t count = vaddlvq_u8(lanes[s]);
        counts[s] += count;
        left -= count;
    }
    counts[base - 1] += left;
}

void tg_neon_count(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base)
{
    if (base > FEW) {
        tg_scalar_count(counts, symbols, n, base);
        return;
    }
    size_t whole = n - n % LANES;
    for (size_t done = 0, m = 0; done < whole; done += m) {
        m = whole - done < (size_t)VECTORS_MAX * LANES ? whole - done : (size_t)VECTORS_MAX * LANES;
        if (base <= 3) {
            count_each(counts, symbols + done, m, base, 2);
        } else if (base <= 5) {
            count_each(counts, symbols + done, m, base, 4);
        } else if (base <= 11) {
            count_each(counts, symbols + done, m, base, 10);
        } else {
            count_each(counts, symbols + done, m, base, FEW - 1);
        }
    }
    for (size_t i = whole; i < n; i++) {
        counts[symbols[i]]++;
    }
}
#endif
