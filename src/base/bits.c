/* See bits.h. */
#include "base/bits.h"

uint64_t tg_mask_count(const uint64_t *mask, uint64_t n)
{
    uint64_t count = 0;
    for (size_t w = 0; w < ((n + 63) / 64); w++) {
        count += tg_popcount(mask[w]);
    }
    return count;
}

bool tg_mask_is_empty(const uint64_t *mask, uint64_t n)
{
    uint64_t any = 0;
    for (size_t w = 0; w < ((n + 63) / 64); w++) {
        any |= mask[w];
    }
    return any == 0;
}

void tg_mask_fill(uint64_t *mask, uint64_t from, uint64_t to)
{
    while (from < to) {
        uint64_t bit = from % 64;
        uint64_t run = to - from < 64 - bit ? to - from : 64 - bit;
        uint64_t ones = run == 64 ? UINT64_MAX : (UINT64_C(1) << run) - 1;
        mask[from / 64] |= ones << bit;
        from += run;
    }
}

void tg_mask_extract(uint64_t *out, const uint64_t *source, uint64_t from, size_t n)
{
    unsigned shift = (unsigned)(from % 64);
    const uint64_t *at = source + from / 64;
    size_t last = n == 0 ? 0 : (size_t)((shift + n - 1) / 64); /* the last word of `at` that is inside the source */
    for (size_t w = 0; w < ((n + 63) / 64); w++) {
        uint64_t word = at[w] >> shift;
        if (shift > 0 && w < last) {
            word |= at[w + 1] << (64 - shift);
        }
        out[w] = word;
    }
    if (n % 64 != 0) {
        out[n / 64] &= (UINT64_C(1) << n % 64) - 1;
    }
}

void tg_mask_insert(uint64_t *out, uint64_t to, const uint64_t *source, size_t n)
{
    unsigned shift = (unsigned)(to % 64);
    uint64_t *at = out + to / 64;
    size_t last = n == 0 ? 0 : (size_t)((shift + n - 1) / 64); /* the last word of `at` that is inside the mask */
    for (size_t w = 0; w < ((n + 63) / 64); w++) {
        at[w] |= source[w] << shift;
        if (shift > 0 && w < last) {
            at[w + 1] |= source[w] >> (64 - shift);
        }
    }
}
