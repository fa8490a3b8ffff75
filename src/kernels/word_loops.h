/* Words of floats split and joined (pack/lossless.c) in plain C; see loops.h. */
#ifndef TG_KERNELS_WORD_LOOPS_H
#define TG_KERNELS_WORD_LOOPS_H

#include "base/bytes.h"
#include "kernels/kernels.h"

TG_TARGET static void split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n)
{
    for (size_t i = 0; word_len == 2 && i < n; i++) {
        uint32_t word = tg_get16(words + 2 * i), rotated = word << 1 | word >> 15;
        uppers[i] = (uint16_t)(rotated >> 8 & 255);
        lowers[i] = (uint8_t)rotated;
    }
    for (size_t i = 0; word_len == 4 && i < n; i++) {
        uint32_t word = tg_get32(words + 4 * i), rotated = word << 1 | word >> 31;
        uppers[i] = (uint16_t)(rotated >> 24);
        tg_put16(lowers + 3 * i, (uint16_t)rotated);
        lowers[3 * i + 2] = (uint8_t)(rotated >> 16);
    }
}

TG_TARGET static void join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len,
                                 size_t n)
{
    for (size_t i = 0; word_len == 2 && i < n; i++) {
        uint32_t rotated = (uint32_t)uppers[i] << 8 | lowers[i];
        tg_put16(words + 2 * i, (uint16_t)(rotated >> 1 | (rotated & 1) << 15));
    }
    for (size_t i = 0; word_len == 4 && i < n; i++) {
        uint32_t rotated = (uint32_t)uppers[i] << 24 | (uint32_t)lowers[3 * i + 2] << 16 | tg_get16(lowers + 3 * i);
        tg_put32(words + 4 * i, rotated >> 1 | rotated << 31);
    }
}

#endif
