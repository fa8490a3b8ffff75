/* Place by place: which of the things that are left is next, a number below how many these are. Such numbers are packed
 * several to a group, as digits of changing base, in the fewest bits that hold any such group: less than 2% above the bound.
 *
 * Which are left is kept in a tree of sums (Fenwick's), so that n things take n log n steps. */
#include "exchange/ordering.h"

#include <string.h>

/* ---- what is left ---------------------------------------------------------------------------------------------------- */

static void fill(uint32_t *tree, size_t n)
{
    for (size_t i = 1; i <= n; i++) {
        tree[i] = (uint32_t)(i & (~i + 1)); /* how many each sum is of */
    }
}

static void take(uint32_t *tree, size_t n, size_t thing)
{
    for (size_t i = thing + 1; i <= n; i += i & (~i + 1)) {
        tree[i]--;
    }
}

/* How many that are left stand before a thing. */
static uint32_t before(const uint32_t *tree, size_t thing)
{
    uint32_t sum = 0;
    for (size_t i = thing; i > 0; i -= i & (~i + 1)) {
        sum += tree[i];
    }
    return sum;
}

/* The thing before which so many that are left stand. */
static size_t find(const uint32_t *tree, size_t n, uint32_t number)
{
    size_t at = 0, step = 1;
    while (step * 2 <= n) {
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        if (at + step <= n && tree[at + step] <= number) {
            at += step;
            number -= tree[at];
        }
    }
    return at;
}

/* ---- groups ---------------------------------------------------------------------------------------------------------- */

typedef struct group {
    size_t n;      /* digits */
    uint32_t bits; /* that hold all of it */
} group;

/* The group of digits that begins with a base of `left`, each base one less than the one before. */
static group group_of(size_t left)
{
    group g = {0};
    uint64_t product = 1;
    for (; g.n < left && product <= (UINT64_C(1) << 56) / (left - g.n); g.n++) {
        product *= left - g.n;
    }
    while (UINT64_C(1) << g.bits < product) {
        g.bits++;
    }
    return g;
}

size_t tg_ordering_len(size_t n)
{
    uint64_t bits = 0;
    for (size_t left = n; left > 0;) {
        group g = group_of(left);
        bits += g.bits;
        left -= g.n;
    }
    return (size_t)((bits + 7) / 8);
}

void tg_ordering_write(uint8_t *out, const uint32_t *order, size_t n, uint32_t *room)
{
    uint64_t bit = 0;
    memset(out, 0, tg_ordering_len(n));
    fill(room, n);
    for (size_t at = 0; at < n;) {
        group g = group_of(n - at);
        uint64_t number = 0, unit = 1;
        for (size_t i = 0; i < g.n; i++) {
            number += unit * before(room, order[at + i]);
            unit *= n - at - i;
            take(room, n, order[at + i]);
        }
        for (uint32_t b = 0; b < g.bits; b++, bit++) {
            out[bit / 8] |= (uint8_t)((number >> b & 1) << bit % 8);
        }
        at += g.n;
    }
}

bool tg_ordering_read(uint32_t *order, const uint8_t *bytes, size_t n, uint32_t *room)
{
    uint64_t bit = 0;
    fill(room, n);
    for (size_t at = 0; at < n;) {
        group g = group_of(n - at);
        uint64_t number = 0;
        for (uint32_t b = 0; b < g.bits; b++, bit++) {
            number |= (uint64_t)(bytes[bit / 8] >> bit % 8 & 1) << b;
        }
        for (size_t i = 0; i < g.n; i++) {
            uint64_t left = n - at - i;
            size_t thing = find(room, n, (uint32_t)(number % left));
            number /= left;
            order[at + i] = (uint32_t)thing;
            take(room, n, thing);
        }
        if (number != 0) {
            return false;
        }
        at += g.n;
    }
    for (; bit % 8 != 0; bit++) {
        if (bytes[bit / 8] >> bit % 8 & 1) {
            return false;
        }
    }
    return true;
}
