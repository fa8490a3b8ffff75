/* Encodes a permutation as a Lehmer code: each element is written as its rank among the elements that remain, a digit in a base
 * that decreases by one each time. Digits are packed in groups, each in the fewest bits that hold it: less than 2% above the
 * bound.
 *
 * The remaining elements are counted in a Fenwick tree, so that n elements take O(n log n) time. */
#include "exec/ordering.h"

#include <string.h>

/* ---- remaining elements ---------------------------------------------------------------------------------------------- */

static void fill(uint32_t *tree, size_t n)
{
    for (size_t i = 1; i <= n; i++) {
        tree[i] = (uint32_t)(i & (~i + 1)); /* tree[i] counts this many elements */
    }
}

static void remove_element(uint32_t *tree, size_t n, size_t element)
{
    for (size_t i = element + 1; i <= n; i += i & (~i + 1)) {
        tree[i]--;
    }
}

/* The number of remaining elements below `element`. */
static uint32_t rank_of(const uint32_t *tree, size_t element)
{
    uint32_t sum = 0;
    for (size_t i = element; i > 0; i -= i & (~i + 1)) {
        sum += tree[i];
    }
    return sum;
}

/* The remaining element of this rank. */
static size_t find(const uint32_t *tree, size_t n, uint32_t rank)
{
    size_t at = 0, step = 1;
    while (step * 2 <= n) {
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        if (at + step <= n && tree[at + step] <= rank) {
            at += step;
            rank -= tree[at];
        }
    }
    return at;
}

/* ---- groups ---------------------------------------------------------------------------------------------------------- */

typedef struct group {
    size_t n;      /* digits */
    uint32_t bits; /* that hold all of them */
} group;

/* The group of digits whose first base is `left`; each following base is one less. */
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

size_t tg_ordering_groups(tg_ordering_group *out, size_t n)
{
    uint64_t bit = 0;
    size_t group_n = 0;
    for (size_t at = 0; at < n; group_n++) {
        group g = group_of(n - at);
        if (out != NULL) {
            out[group_n] =
                (tg_ordering_group){.bit_at = bit, .first = (uint32_t)at, .n = (uint32_t)g.n, .bits = g.bits};
        }
        bit += g.bits;
        at += g.n;
    }
    return group_n;
}

void tg_ordering_write(uint8_t *out, const uint32_t *order, size_t n, uint32_t *tree)
{
    uint64_t bit = 0;
    memset(out, 0, tg_ordering_len(n));
    fill(tree, n);
    for (size_t at = 0; at < n;) {
        group g = group_of(n - at);
        uint64_t number = 0, unit = 1;
        for (size_t i = 0; i < g.n; i++) {
            number += unit * rank_of(tree, order[at + i]);
            unit *= n - at - i;
            remove_element(tree, n, order[at + i]);
        }
        for (uint32_t b = 0; b < g.bits; b++, bit++) {
            out[bit / 8] |= (uint8_t)((number >> b & 1) << bit % 8);
        }
        at += g.n;
    }
}

bool tg_ordering_read(uint32_t *order, const uint8_t *bytes, size_t n, uint32_t *tree)
{
    uint64_t bit = 0;
    fill(tree, n);
    for (size_t at = 0; at < n;) {
        group g = group_of(n - at);
        uint64_t number = 0;
        for (uint32_t b = 0; b < g.bits; b++, bit++) {
            number |= (uint64_t)(bytes[bit / 8] >> bit % 8 & 1) << b;
        }
        for (size_t i = 0; i < g.n; i++) {
            uint64_t left = n - at - i;
            size_t element = find(tree, n, (uint32_t)(number % left));
            number /= left;
            order[at + i] = (uint32_t)element;
            remove_element(tree, n, element);
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
