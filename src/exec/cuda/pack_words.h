/* Symbols in shared memory to words of packed symbols. */
#ifndef TG_EXEC_CUDA_PACK_WORDS_H
#define TG_EXEC_CUDA_PACK_WORDS_H

#include "exec/cuda/kernel.h"

/* The symbols of a chunk. */
typedef struct tg_gpu_digits {
    const uint8_t *symbols;
    uint32_t count, base, group_n, bits;
    uint32_t width; /* of a symbol in memory: 1 or 2 bytes */
} tg_gpu_digits;

/* The number that up to four symbols of less than 9 bits are. */
TG_DEVICE uint32_t tg_few_digits(const uint8_t *symbols, uint32_t n, uint32_t base)
{
    uint32_t number = 0;
    TG_UNROLL
    for (uint32_t i = 4; i-- > 0;) {
        number = i < n ? number * base + symbols[i] : number;
    }
    return number;
}

/* The number that the group is that begins with a symbol. */
TG_DEVICE uint64_t tg_number_of(const tg_gpu_digits &d, const uint8_t *at)
{
    if (d.width == 1) {
        uint32_t low = tg_few_digits(at, min(d.group_n, 4u), d.base);
        uint32_t unit = d.base * d.base;
        return d.group_n <= 4 ? low : low + (uint64_t)(unit * unit) * tg_few_digits(at + 4, d.group_n - 4, d.base);
    }
    const uint16_t *symbols = (const uint16_t *)(const void *)at;
    uint64_t number = 0;
    for (uint32_t i = d.group_n; i-- > 0;) {
        number = number * d.base + symbols[i];
    }
    return number;
}

/* Eight symbols of a bit, as a byte, from a word of bytes that are 0 or 1. */
TG_DEVICE uint64_t tg_gather_bits(uint64_t bytes)
{
    return bytes * 0x0102040810204080ull >> 56;
}

/* Eight bytes of five symbols of base 3 each. */
TG_DEVICE uint64_t tg_pack_ternary(const uint8_t *symbols)
{
    uint32_t shift = (uint32_t)((uintptr_t)symbols % 4) * 8, bytes[8], words[11];
    const uint32_t *aligned = (const uint32_t *)(const void *)(symbols - shift / 8);
    TG_UNROLL
    for (int i = 0; i < 11; i++) {
        words[i] = aligned[i];
    }
    TG_UNROLL
    for (int i = 0; i < 10; i++) {
        words[i] = __funnelshift_r(words[i], words[i + 1], shift);
    }
    TG_UNROLL
    for (int i = 0; i < 2; i++) { /* 1, 3, 9, 27 and 81 times the symbols of a group, wherever they are in words */
        const uint32_t *w = words + 5 * i;
        bytes[4 * i] = __dp4a(w[1], 0x00000051u, __dp4a(w[0], 0x1b090301u, 0u));
        bytes[4 * i + 1] = __dp4a(w[2], 0x0000511bu, __dp4a(w[1], 0x09030100u, 0u));
        bytes[4 * i + 2] = __dp4a(w[3], 0x00511b09u, __dp4a(w[2], 0x03010000u, 0u));
        bytes[4 * i + 3] = __dp4a(w[4], 0x511b0903u, __dp4a(w[3], 0x01000000u, 0u));
    }
    uint32_t low = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
    uint32_t high = bytes[4] | bytes[5] << 8 | bytes[6] << 16 | bytes[7] << 24;
    return low | (uint64_t)high << 32;
}

/* Four groups of two bytes from five symbols of base 9 each. */
TG_DEVICE uint64_t tg_pack_nines(const uint8_t *symbols)
{
    uint32_t shift = (uint32_t)((uintptr_t)symbols % 4) * 8, groups[4], words[6];
    const uint32_t *aligned = (const uint32_t *)(const void *)(symbols - shift / 8);
    TG_UNROLL
    for (int i = 0; i < 6; i++) {
        words[i] = aligned[i];
    }
    TG_UNROLL
    for (int i = 0; i < 5; i++) {
        words[i] = __funnelshift_r(words[i], words[i + 1], shift);
    }
    TG_UNROLL
    for (unsigned i = 0; i < 4; i++) { /* a group begins with byte i of word i */
        uint32_t four = __funnelshift_r(words[i], words[i + 1], 8 * i), last = words[i + 1] >> 8 * i & 0xffu;
        groups[i] = __dp2a_lo(9u << 16 | 1, four, __dp2a_hi(729u << 16 | 81, four, 6561 * last));
    }
    return (groups[0] | groups[1] << 16) | (uint64_t)(groups[2] | groups[3] << 16) << 32;
}

/* 64 bits from bit number `bit` on; bits are counted from the first symbol at `symbols`, with which a group begins. */
TG_DEVICE uint64_t tg_word_of(const tg_gpu_digits &d, const uint8_t *symbols, uint32_t bit)
{
    uint64_t word = 0;
    if (d.bits == 8 && d.group_n == 1) {
        return tg_load64(symbols + bit / 8);
    }
    if (d.bits == 8 && d.group_n == 5 && d.base == 3) {
        return tg_pack_ternary(symbols + bit / 8 * 5);
    }
    if (d.bits == 16 && d.group_n == 5 && d.base == 9) {
        return tg_pack_nines(symbols + bit / 16 * 5);
    }
    if (d.bits == 1) {
        TG_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t byte = (i + threadIdx.x) % 8; /* lanes take turns, so that they meet in few banks */
            word |= tg_gather_bits(tg_load64(symbols + bit + 8 * byte)) << 8 * byte;
        }
        return word;
    }
    uint32_t group = bit / d.bits, skipped = bit - group * d.bits, len = d.group_n * d.width;
    symbols += group * len;
    word = tg_number_of(d, symbols) >> skipped;
    for (uint32_t filled = d.bits - skipped; filled < 64; filled += d.bits) {
        symbols += len;
        word |= tg_number_of(d, symbols) << filled;
    }
    return word;
}

#endif
