/* Selection by magnitude for NEON. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/mask_bits.h"

#include <arm_acle.h>

uint32_t tg_neon_largest_key(const float *values, size_t n)
{
    const uint32x4_t rest = vdupq_n_u32(0x7fffffff);
    uint32x4_t largest[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        for (size_t k = 0; k < 4; k++) {
            uint32x4_t key = vandq_u32(vreinterpretq_u32_f32(vld1q_f32(values + i + 4 * k)), rest);
            largest[k % 2] = vmaxq_u32(largest[k % 2], key);
        }
    }
    uint32_t some = vmaxvq_u32(vmaxq_u32(largest[0], largest[1]));
    uint32_t others = tg_kernels_scalar.select.largest_key(values + i, n - i);
    return some > others ? some : others;
}

/* Sixteen lanes of all ones or zeros, to one bit in a byte each: byte i of eight has bit i. */
TG_NEON_INLINE uint8x16_t bits_of(const uint32x4_t marks[4])
{
    static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t left = vuzp1q_u16(vreinterpretq_u16_u32(marks[0]), vreinterpretq_u16_u32(marks[1]));
    uint16x8_t right = vuzp1q_u16(vreinterpretq_u16_u32(marks[2]), vreinterpretq_u16_u32(marks[3]));
    uint8x16_t all = vuzp1q_u8(vreinterpretq_u8_u16(left), vreinterpretq_u8_u16(right));
    return vandq_u8(all, vld1q_u8(places));
}

/* Three pairwise additions, of which one has been done, bring the bits of eight elements into one byte. */
TG_NEON_INLINE uint64_t word_of(uint8x16_t front, uint8x16_t back)
{
    uint8x16_t both = vpaddq_u8(front, back);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(both, both)), 0);
}

/* Of sixteen elements, those whose key is `bound` or more. */
TG_NEON_INLINE uint8x16_t marks(const float *values, uint32x4_t bound)
{
    uint32x4_t above[4];
    for (int k = 0; k < 4; k++) {
        above[k] = vcgeq_u32(vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(values + 4 * k))), bound);
    }
    return bits_of(above);
}

void tg_neon_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    const uint32x4_t bound = vdupq_n_u32(least);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        uint8x16_t front = vpaddq_u8(marks(values + i, bound), marks(values + i + 16, bound));
        uint8x16_t back = vpaddq_u8(marks(values + i + 32, bound), marks(values + i + 48, bound));
        mask[i / 64] = word_of(front, back);
    }
    if (i < n) {
        tg_kernels_scalar.select.mark_keys(mask + i / 64, values + i, least, n - i);
    }
}

/* Of sixteen elements of a bin, those that are marked, as one bit in the element's byte. */
TG_NEON_INLINE uint8x16_t reach(const float *u, const float *g, float more, uint32x4_t bound)
{
    uint32x4_t is_in[4];
    for (int k = 0; k < 4; k++) {
        float32x4_t value = vld1q_f32(u + 4 * k), sum = vaddq_f32(value, vmulq_n_f32(vld1q_f32(g + 4 * k), more));
        uint32x4_t reached = vcgeq_u32(vreinterpretq_u32_f32(vabsq_f32(sum)), bound);
        is_in[k] = vbicq_u32(reached, vceqzq_f32(value));
    }
    return bits_of(is_in);
}

void tg_neon_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n)
{
    const uint32_t nan = 0x7f800001; /* the least key of a NaN; all NaNs are marked */
    const uint32x4_t bound = vdupq_n_u32(least < nan ? least : nan);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        uint8x16_t front = vpaddq_u8(reach(u + i, g + i, more, bound), reach(u + i + 16, g + i + 16, more, bound));
        uint8x16_t back =
            vpaddq_u8(reach(u + i + 32, g + i + 32, more, bound), reach(u + i + 48, g + i + 48, more, bound));
        set_mask_bits(mask, at + i, word_of(front, back));
    }
    for (; n - i >= 16; i += 16) {
        uint8x16_t bits = reach(u + i, g + i, more, bound), pairs = vpaddq_u8(bits, bits);
        set_mask_bits(mask, at + i, word_of(pairs, pairs) & 0xffff);
    }
    tg_kernels_scalar.select.mark_bin(mask, at + i, u + i, g + i, more, least, n - i);
}

/* The number of the lowest set bit; 64 if there is none. */
TG_NEON_INLINE uint32_t lowest(uint64_t word)
{
    return (uint32_t)__clzll(__rbitll(word));
}

/* Positions of the marks among four elements, and their number. */
static const uint32_t marked[16][4] = {{0}, {0},    {1},    {0, 1},    {2},    {0, 2},    {1, 2},    {0, 1, 2},
                                       {3}, {0, 3}, {1, 3}, {0, 1, 3}, {2, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
static const uint8_t marks_of[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

/* The marks of one word, which begins at element `base`; returns the end of the list. Stores four indices for each four elements;
 * those after the last mark are overwritten later. */
static uint32_t *list_many(uint32_t *list, uint64_t word, uint32_t base)
{
    uint32x4_t from = vdupq_n_u32(base);
    for (int part = 0; part < 16; part++, word >>= 4, from = vaddq_u32(from, vdupq_n_u32(4))) {
        vst1q_u32(list, vaddq_u32(from, vld1q_u32(marked[word & 15])));
        list += marks_of[word & 15];
    }
    return list;
}

/* Branches on marks are hard to predict: of each word two indices are stored, whether there are such or not, and it branches only
 * where there are more. */
size_t tg_neon_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n)
{
    enum { MANY = 12 }; /* more marks than that are faster listed by fours */
    uint32_t *to = list;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        uint32_t base = first + (uint32_t)(64 * w);
        uint64_t word = mask[w], second = word & (word - 1), rest = second & (second - 1);
        if (rest != 0 && vaddv_u8(vcnt_u8(vcreate_u8(word))) > MANY) {
            to = list_many(to, word, base);
            continue;
        }
        to[0] = base + lowest(word);
        to[1] = base + lowest(second);
        to += (word != 0 ? 1 : 0) + (second != 0 ? 1 : 0);
        for (; rest != 0; rest &= rest - 1) {
            *to++ = base + lowest(rest);
        }
    }
    return (size_t)(to - list);
}
#endif
