/* Words of floats split into symbols and lower bytes for NEON (pack/lossless.c). */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)

static size_t split_halves(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        uint8x16x2_t bytes = vld2q_u8(words + 2 * i); /* the lower and the upper bytes */
        uint8x16_t lower = vsriq_n_u8(vaddq_u8(bytes.val[0], bytes.val[0]), bytes.val[1], 7);
        uint8x16_t upper = vsriq_n_u8(vaddq_u8(bytes.val[1], bytes.val[1]), bytes.val[0], 7);
        vst1q_u8(lowers + i, lower);
        vst1q_u16(uppers + i, vmovl_u8(vget_low_u8(upper)));
        vst1q_u16(uppers + i + 8, vmovl_high_u8(upper));
    }
    return i;
}

static size_t split_singles(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        uint8x16x4_t bytes = vld4q_u8(words + 4 * i);
        uint8x16x3_t lower;
        lower.val[0] = vsriq_n_u8(vaddq_u8(bytes.val[0], bytes.val[0]), bytes.val[3], 7);
        lower.val[1] = vsriq_n_u8(vaddq_u8(bytes.val[1], bytes.val[1]), bytes.val[0], 7);
        lower.val[2] = vsriq_n_u8(vaddq_u8(bytes.val[2], bytes.val[2]), bytes.val[1], 7);
        uint8x16_t upper = vsriq_n_u8(vaddq_u8(bytes.val[3], bytes.val[3]), bytes.val[2], 7);
        vst3q_u8(lowers + 3 * i, lower);
        vst1q_u16(uppers + i, vmovl_u8(vget_low_u8(upper)));
        vst1q_u16(uppers + i + 8, vmovl_high_u8(upper));
    }
    return i;
}

void tg_neon_split_words(uint16_t *uppers, uint8_t *lowers, const uint8_t *words, uint32_t word_len, size_t n)
{
    size_t i = (word_len == 2 ? split_halves : split_singles)(uppers, lowers, words, n);
    tg_kernels_scalar.coders.split_words(uppers + i, lowers + (word_len - 1) * i, words + word_len * i, word_len,
                                         n - i);
}

TG_NEON_INLINE uint8x16_t load_uppers(const uint16_t *uppers)
{
    return vuzp1q_u8(vreinterpretq_u8_u16(vld1q_u16(uppers)), vreinterpretq_u8_u16(vld1q_u16(uppers + 8)));
}

static size_t join_halves(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        uint8x16_t upper = load_uppers(uppers + i), lower = vld1q_u8(lowers + i);
        const uint8x16x2_t bytes = {
            {vsliq_n_u8(vshrq_n_u8(lower, 1), upper, 7), vsliq_n_u8(vshrq_n_u8(upper, 1), lower, 7)}};
        vst2q_u8(words + 2 * i, bytes);
    }
    return i;
}

static size_t join_singles(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        uint8x16_t upper = load_uppers(uppers + i);
        uint8x16x3_t lower = vld3q_u8(lowers + 3 * i);
        uint8x16x4_t bytes;
        bytes.val[0] = vsliq_n_u8(vshrq_n_u8(lower.val[0], 1), lower.val[1], 7);
        bytes.val[1] = vsliq_n_u8(vshrq_n_u8(lower.val[1], 1), lower.val[2], 7);
        bytes.val[2] = vsliq_n_u8(vshrq_n_u8(lower.val[2], 1), upper, 7);
        bytes.val[3] = vsliq_n_u8(vshrq_n_u8(upper, 1), lower.val[0], 7);
        vst4q_u8(words + 4 * i, bytes);
    }
    return i;
}

void tg_neon_join_words(uint8_t *words, const uint16_t *uppers, const uint8_t *lowers, uint32_t word_len, size_t n)
{
    size_t i = (word_len == 2 ? join_halves : join_singles)(words, uppers, lowers, n);
    tg_kernels_scalar.coders.join_words(words + word_len * i, uppers + i, lowers + (word_len - 1) * i, word_len, n - i);
}
#endif
