/* Masks: one bit per element, element i in bit i mod 64 of word i / 64; unused bits of the last word are 0. */
#ifndef TG_BASE_BITS_H
#define TG_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t tg_words(uint64_t bits)
{
    return (size_t)((bits + 63) / 64);
}

/* The index of the lowest set bit of a word that is not 0. */
static inline unsigned tg_lowest(uint64_t word)
{
    return (unsigned)__builtin_ctzll(word);
}

/* Without the popcnt instruction, which x86-64 CPUs need not have. */
static inline unsigned tg_popcount(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(word * UINT64_C(0x0101010101010101) >> 56);
}

uint64_t tg_mask_count(const uint64_t *mask, uint64_t n);
bool tg_mask_is_empty(const uint64_t *mask, uint64_t n);

/* Sets elements [from, to). */
void tg_mask_fill(uint64_t *mask, uint64_t from, uint64_t to);

/* Copies elements [from, from + n) of `source` to the start of `out`. */
void tg_mask_extract(uint64_t *out, const uint64_t *source, uint64_t from, size_t n);

/* Sets elements to + i of `out` where element i of `source` is set, i below n. Clears none. */
void tg_mask_insert(uint64_t *out, uint64_t to, const uint64_t *source, size_t n);

#endif
