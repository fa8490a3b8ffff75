/* The range coder in plain C; see loops.h. Whether a state needs a word is unpredictable, so nothing branches on it. */
#ifndef TG_KERNELS_RANS_LOOPS_H
#define TG_KERNELS_RANS_LOOPS_H

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "kernels/rans.h"

TG_TARGET static void rans_push(uint32_t *states, uint32_t lane_n, uint8_t **words, const uint16_t *symbols,
                                size_t count, const tg_rans_plans *plans)
{
    uint8_t *at = *words;
    for (size_t i = count; i-- > 0;) {
        uint64_t plan = plans->plans[symbols[i]];
        uint32_t frequency = (uint32_t)(plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1;
        uint32_t start = (uint32_t)(plan >> TG_PLAN_START & TG_PLAN_MASK), log = (uint32_t)(plan >> TG_PLAN_LOG);
        uint32_t x = states[i & (lane_n - 1)];
        uint32_t emits = x >= (uint64_t)frequency << (31 - plans->bits) ? 1 : 0;
        tg_put16(at - 2, (uint16_t)x); /* there is space for a word per symbol */
        at -= 2 * emits;
        x >>= 16 * emits;
        uint32_t quotient = (uint32_t)((x * (plan & UINT32_MAX)) >> (31 + log));
        states[i & (lane_n - 1)] = (quotient << plans->bits) + (x - quotient * frequency) + start;
    }
    *words = at;
}

TG_TARGET static size_t rans_pull(uint16_t *symbols, uint32_t *states, uint32_t lane_n, const uint8_t **words,
                                  const uint8_t *end, size_t count, const tg_rans_slots *slots)
{
    const uint8_t *at = *words;
    size_t i = 0;
    for (; count - i >= lane_n && end - at >= 2 * (ptrdiff_t)lane_n; i += lane_n) {
        for (uint32_t l = 0; l < lane_n; l++) {
            uint32_t low = states[l] & ((1u << slots->bits) - 1), slot = slots->slots[low];
            uint32_t x = ((slot >> 8 & 4095) + 1) * (states[l] >> slots->bits) + (slot >> 20);
            uint32_t is_low = x < TG_RANS_START ? 1 : 0;
            symbols[i + l] = (uint16_t)((slot & 255) + (low >= slots->upper ? 256 : 0));
            states[l] = x << 16 * is_low | (tg_get16(at) & (0 - is_low));
            at += 2 * is_low;
        }
    }
    *words = at;
    return i;
}

#endif
