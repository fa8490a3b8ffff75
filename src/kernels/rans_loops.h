/* The range coder in plain C; see loops.h. Whether a state needs a word is unpredictable, so nothing branches on it. */
#ifndef TG_KERNELS_RANS_LOOPS_H
#define TG_KERNELS_RANS_LOOPS_H

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "kernels/rans.h"

TG_TARGET static void rans_push_one(tg_rans_writer *w, uint32_t lane_n, const tg_rans_plans *plans)
{
    uint8_t *at = w->at;
    for (size_t i = w->count; i-- > 0;) {
        uint64_t plan = plans->plans[w->symbols[i]];
        uint32_t frequency = (uint32_t)(plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1;
        uint32_t start = (uint32_t)(plan >> TG_PLAN_START & TG_PLAN_MASK), log = (uint32_t)(plan >> TG_PLAN_LOG);
        uint32_t x = w->states[i & (lane_n - 1)];
        uint32_t emits = x >> 17 >= frequency ? 1 : 0;
        tg_put16(at - 2, (uint16_t)x); /* there is space for a word per symbol */
        at -= 2 * emits;
        x >>= 16 * emits;
        uint32_t quotient = (uint32_t)((x * (plan & UINT32_MAX)) >> (31 + log));
        w->states[i & (lane_n - 1)] = (quotient << plans->bits) + (x - quotient * frequency) + start;
    }
    w->at = at;
    w->count = 0;
}

TG_TARGET static void rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans)
{
    for (size_t i = 0; i < writer_n; i++) {
        rans_push_one(&w[i], lane_n, plans);
    }
}

TG_TARGET static void rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                                const tg_rans_slots *slots)
{
    const uint32_t first = tg_rans_start(slots->bits);
    for (; r[0].left >= lane_n && r[reader_n - 1].left >= lane_n && end - r[0].at >= 2 * (ptrdiff_t)lane_n &&
           end - r[reader_n - 1].at >= 2 * (ptrdiff_t)lane_n;) {
        for (size_t i = 0; i < reader_n; i++) {
            const uint8_t *at = r[i].at;
            for (uint32_t l = 0; l < lane_n; l++) {
                uint32_t state = r[i].states[l], low = state & ((1u << slots->bits) - 1), slot = slots->slots[low];
                uint32_t x = ((slot >> 8 & 4095) + 1) * (state >> slots->bits) + (slot >> 20);
                uint32_t is_low = x < first ? 1 : 0;
                r[i].symbols[l] = (uint16_t)((slot & 255) + (low >= slots->upper ? 256 : 0));
                r[i].states[l] = x << 16 * is_low | (tg_get16(at) & (0 - is_low));
                at += 2 * is_low;
            }
            r[i].at = at;
            r[i].symbols += lane_n;
            r[i].left -= lane_n;
        }
    }
}

#endif
