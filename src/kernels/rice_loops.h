/* Rice codes in plain C; see loops.h. */
#ifndef TG_KERNELS_RICE_LOOPS_H
#define TG_KERNELS_RICE_LOOPS_H

#include "base/bits.h"
#include "base/bytes.h"
#include "kernels/kernels.h"
#include "kernels/rice.h"

enum { RICE_MOST = 7 }; /* indices decoded at a time */

/* Decodes `most` indices from eight bytes, and keeps those that the bytes hold completely. `most` is a constant. */
TG_TARGET static inline __attribute__((always_inline)) bool rice_read_some(tg_rice_reader *r, unsigned k, size_t n,
                                                                           size_t most)
{
    const uint64_t low = (UINT64_C(1) << k) - 1;
    const uint64_t last = UINT64_C(1) << 63; /* ends a unary part that does not end before */
    while (r->left >= most && r->bit / 8 + 8 <= r->bit_n / 8) {
        /* Inverted, so that a unary part is zeros and a one. */
        uint64_t other = ~(tg_get64(r->bytes + r->bit / 8) >> r->bit % 8), next = r->next;
        unsigned held_n = 63 - (unsigned)(r->bit % 8), used = 0, used_by[RICE_MOST];
        for (size_t i = 0; i < most; i++) {
            unsigned quotient = (unsigned)__builtin_ctzll(other | last);
            other = other >> quotient >> 1;
            next += ((uint64_t)quotient << k | (~other & low)) + 1;
            other >>= k;
            r->list[i] = (uint32_t)(next - 1);
            used += quotient + 1 + k;
            used_by[i] = used;
        }
        size_t taken = most;
        while (taken > 0 && used_by[taken - 1] > held_n) {
            taken--;
        }
        if (taken == 0) { /* longer than eight bytes */
            return true;
        }
        r->next = taken == most ? next : (uint64_t)r->list[taken - 1] + 1;
        if (r->next > n) {
            return false;
        }
        r->list += taken;
        r->left -= taken;
        r->bit += used_by[taken - 1];
    }
    return true;
}

/* As many at a time as eight bytes usually hold: an index takes about k + 3 bits. */
TG_TARGET static bool rice_read(tg_rice_reader *r, unsigned k, size_t n)
{
    switch (57 / (k + 4)) {
    case 2: return rice_read_some(r, k, n, 2);
    case 3: return rice_read_some(r, k, n, 3);
    case 4: return rice_read_some(r, k, n, 4);
    case 5: return rice_read_some(r, k, n, 5);
    case 6: return rice_read_some(r, k, n, 6);
    default: return rice_read_some(r, k, n, RICE_MOST);
    }
}

TG_TARGET static size_t rice_write(tg_rice_writer *w, unsigned k, const uint32_t *list, size_t count)
{
    enum { LEN_MAX = 56 };
    const uint64_t low = (UINT64_C(1) << k) - 1;
    uint8_t *out = w->out;
    uint64_t held = w->held;
    unsigned held_n = w->held_n;
    uint32_t next = w->next;
    size_t i = 0;
    for (; i < count && w->end - out >= 8; i++) {
        uint32_t gap = list[i] - next, quotient = gap >> k;
        if (quotient >= LEN_MAX - k) {
            break;
        }
        held |= (((UINT64_C(1) << quotient) - 1) | (gap & low) << (quotient + 1)) << held_n;
        held_n += quotient + 1 + k;
        tg_put64(out, held);
        out += held_n / 8;
        held >>= held_n & ~7u;
        held_n &= 7;
        next = list[i] + 1;
    }
    *w = (tg_rice_writer){out, w->end, held, held_n, next};
    return i;
}

#endif
