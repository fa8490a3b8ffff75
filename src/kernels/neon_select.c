/* Selection by magnitude for NEON. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/mask_bits.h"

/* Byte i of eight masked by bit i: sums of eight bytes then hold one bit per element. */
static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

/* Of sixteen elements, those whose key is `bound` or more, as one bit in the element's byte. */
static uint8x16_t marks(const float *values, uint32x4_t bound)
{
    const uint32x4_t rest = vdupq_n_u32(0x7fffffff);
    uint32x4_t above[4];
    for (int k = 0; k < 4; k++) {
        above[k] = vcgeq_u32(vandq_u32(vreinterpretq_u32_f32(vld1q_f32(values + 4 * k)), rest), bound);
    }
    uint16x8_t left = vcombine_u16(vmovn_u32(above[0]), vmovn_u32(above[1]));
    uint16x8_t right = vcombine_u16(vmovn_u32(above[2]), vmovn_u32(above[3]));
    return vandq_u8(vcombine_u8(vmovn_u16(left), vmovn_u16(right)), vld1q_u8(places));
}

/* Three pairwise additions bring the bits of eight elements into one byte. */
void tg_neon_mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    const uint32x4_t bound = vdupq_n_u32(least);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        uint8x16_t front = vpaddq_u8(marks(values + i, bound), marks(values + i + 16, bound));
        uint8x16_t back = vpaddq_u8(marks(values + i + 32, bound), marks(values + i + 48, bound));
        uint8x16_t both = vpaddq_u8(front, back);
        mask[i / 64] = vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(both, both)), 0);
    }
    if (i < n) {
        tg_kernels_scalar.select.mark_keys(mask + i / 64, values + i, least, n - i);
    }
}

/* Of four elements of a bin: all ones if it is marked, else all zeros. */
static uint16x4_t reach(const float *u, const float *g, float more, uint32x4_t bound)
{
    const uint32x4_t rest = vdupq_n_u32(0x7fffffff), infinity = vdupq_n_u32(0x7f800000);
    float32x4_t value = vld1q_f32(u);
    float32x4_t sum = vaddq_f32(value, vmulq_n_f32(vld1q_f32(g), more));
    uint32x4_t magnitude = vandq_u32(vreinterpretq_u32_f32(sum), rest);
    uint32x4_t beyond = vorrq_u32(vcgeq_u32(magnitude, bound), vcgtq_u32(magnitude, infinity));
    return vmovn_u32(vandq_u32(beyond, vtstq_u32(vreinterpretq_u32_f32(value), rest)));
}

void tg_neon_mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n)
{
    const uint32x4_t bound = vdupq_n_u32(least);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint16x8_t is_in = vcombine_u16(reach(u + i, g + i, more, bound), reach(u + i + 4, g + i + 4, more, bound));
        set_mask_bits(mask, at + i, vaddv_u8(vand_u8(vmovn_u16(is_in), vld1_u8(places))));
    }
    tg_kernels_scalar.select.mark_bin(mask, at + i, u + i, g + i, more, least, n - i);
}

/* Positions of the marks among four elements, and their number. */
static const uint32_t marked[16][4] = {{0}, {0},    {1},    {0, 1},    {2},    {0, 2},    {1, 2},    {0, 1, 2},
                                       {3}, {0, 3}, {1, 3}, {0, 1, 3}, {2, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
static const uint8_t marks_of[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

/* Branches on marks are hard to predict: of a word with few marks always four indices are stored, of others four for each four
 * elements, and those after the last mark are overwritten by the next word. */
size_t tg_neon_list_marks(uint32_t *list, const uint64_t *mask, size_t n)
{
    enum { FEW = 4 };
    size_t count = 0;
    for (size_t w = 0; w < (n + 63) / 64; w++) {
        uint64_t word = mask[w];
        size_t marks_n = vaddv_u8(vcnt_u8(vcreate_u8(word)));
        if (marks_n <= FEW) {
            for (size_t i = 0; i < FEW; i++) {
                uint32_t at = word != 0 ? (uint32_t)__builtin_ctzll(word) : 0;
                list[count + i] = (uint32_t)(w * 64) + at;
                word &= word - 1;
            }
            count += marks_n;
            continue;
        }
        uint32x4_t base = vdupq_n_u32((uint32_t)(w * 64));
        for (int part = 0; part < 16; part++, word >>= 4, base = vaddq_u32(base, vdupq_n_u32(4))) {
            vst1q_u32(list + count, vaddq_u32(base, vld1q_u32(marked[word & 15])));
            count += marks_of[word & 15];
        }
    }
    return count;
}
#endif
