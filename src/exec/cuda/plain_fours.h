/* Plain values of a tile, four at a time: a block takes a tile, a thread four times four of its elements. */
#ifndef TG_EXEC_CUDA_PLAIN_FOURS_H
#define TG_EXEC_CUDA_PLAIN_FOURS_H

#include "exec/cuda/plain_values.h"

enum { TG_FOURS_THREADS = 256, TG_FOUR = 4, TG_FOURS = TG_GPU_TILE / 4 / TG_FOURS_THREADS /* of a thread */ };

/* The first element of four number b of this thread, in the tile. */
TG_DEVICE uint32_t tg_four_at(uint32_t b)
{
    return TG_FOUR * (b * TG_FOURS_THREADS + threadIdx.x);
}

TG_DEVICE bool tg_has_nan(float4 v)
{
    return !(v.x == v.x && v.y == v.y && v.z == v.z && v.w == v.w);
}

/* WORDS words at any address, by those that have a byte of them. */
template <unsigned WORDS> TG_DEVICE void tg_load_words(uint32_t out[WORDS], const uint8_t *at)
{
    uint32_t shift = (uint32_t)((uintptr_t)at % 4) * 8, words[WORDS + 1];
    const uint32_t *aligned = (const uint32_t *)(const void *)(at - shift / 8);
    TG_UNROLL
    for (unsigned i = 0; i < WORDS; i++) {
        words[i] = aligned[i];
    }
    words[WORDS] = shift == 0 ? 0 : aligned[WORDS];
    TG_UNROLL
    for (unsigned i = 0; i < WORDS; i++) {
        out[i] = __funnelshift_r(words[i], words[i + 1], shift);
    }
}

/* Those of four values, at a multiple of their length. */
template <unsigned WORDS> TG_DEVICE void tg_load_aligned(uint32_t out[WORDS], const uint8_t *at)
{
    if (WORDS == 4) {
        uint4 four = __ldcs((const uint4 *)(const void *)at);
        out[0] = four.x;
        out[1] = four.y;
        out[WORDS - 2] = four.z;
        out[WORDS - 1] = four.w;
    } else {
        uint2 four = __ldcs((const uint2 *)(const void *)at);
        out[0] = four.x;
        out[1] = four.y;
    }
}

/* Anywhere. */
template <unsigned WORDS> TG_DEVICE void tg_load_plain(uint32_t out[WORDS], const uint8_t *at)
{
    if ((uintptr_t)at % (4 * WORDS) != 0) {
        tg_load_words<WORDS>(out, at);
    } else {
        tg_load_aligned<WORDS>(out, at);
    }
}

/* The parts of four words of lossless coding (pack_lossless.cu): lower bytes at any address, then the upper ones, at a multiple of four. */
template <unsigned WORDS>
TG_DEVICE void tg_load_parts(uint32_t out[WORDS], const uint8_t *lowers, const uint8_t *uppers)
{
    tg_load_words<WORDS - 1>(out, lowers);
    out[WORDS - 1] = __ldcs((const uint32_t *)(const void *)uppers);
}

/* The words. They are rotated left by one bit in the parts. */
template <unsigned WORDS> TG_DEVICE void tg_join_parts(uint32_t out[WORDS])
{
    const uint32_t upper = out[WORDS - 1];
    if (WORDS == 2) {
        const uint32_t low = __byte_perm(out[0], upper, 0x5140), high = __byte_perm(out[0], upper, 0x7362);
        out[0] = (low >> 1 & 0x7fff7fff) | (low << 15 & 0x80008000);
        out[1] = (high >> 1 & 0x7fff7fff) | (high << 15 & 0x80008000);
    } else { /* parts 0, 1 and 2 have 12 bytes, three of each word */
        const uint32_t first = out[0], second = out[1], third = out[WORDS - 2];
        const uint32_t r[4] = {
            (first & 0xffffff) | upper << 24, (__funnelshift_r(first, second, 24) & 0xffffff) | (upper >> 8) << 24,
            (__funnelshift_r(second, third, 16) & 0xffffff) | (upper >> 16) << 24, third >> 8 | (upper >> 24) << 24};
        TG_UNROLL
        for (unsigned i = 0; i < WORDS; i++) {
            out[i] = r[i % 4] >> 1 | r[i % 4] << 31;
        }
    }
}

/* Four values; a NaN in half precision may become another. */
template <unsigned WORDS> TG_DEVICE float4 tg_plain_four(const uint32_t words[WORDS], bool is_bf16)
{
    if (WORDS == 4) {
        return make_float4(__uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[WORDS - 2]),
                           __uint_as_float(words[WORDS - 1]));
    }
    return make_float4(tg_any_half(words[0] & 0xffffu, is_bf16), tg_any_half(words[0] >> 16, is_bf16),
                       tg_any_half(words[1] & 0xffffu, is_bf16), tg_any_half(words[1] >> 16, is_bf16));
}

#endif
