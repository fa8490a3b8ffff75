/* The kernels for NEON, which every AArch64 CPU has, and their table. Each gives the bits of the scalar one of its name, provided that
 * the CPU is not set to flush subnormal numbers to zero. */
#include "kernels/scalar.h"

#if defined(__AARCH64EL__)
#include "kernels/mask_bits.h"
#define TG_TARGET
#include "kernels/bucket_loops.h"
#include "kernels/loops.h"
#include "kernels/minifloat_loops.h"
#include "kernels/prefix_loops.h"
#include "kernels/rans_loops.h"
#include "kernels/rice_loops.h"
#include "kernels/word_loops.h"

#include <arm_neon.h>

/* ---- halves -------------------------------------------------------------------------------------------------------------- */

/* The instruction makes infinities of values beyond the range; these are replaced by the largest value before. */
static uint16x4_t narrow(const float *values)
{
    const uint32x4_t rest = vdupq_n_u32(0x7fffffff), largest = vdupq_n_u32(0x477fe000);
    const uint32x4_t infinity = vdupq_n_u32(0x7f800000);
    uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(values));
    uint32x4_t magnitude = vandq_u32(bits, rest);
    uint32x4_t beyond = vandq_u32(vcgtq_u32(magnitude, largest), vcltq_u32(magnitude, infinity));
    uint32x4_t clipped = vbslq_u32(rest, largest, bits);
    float32x4_t value = vreinterpretq_f32_u32(vbslq_u32(beyond, clipped, bits));
    return vreinterpret_u16_f16(vcvt_f16_f32(value));
}

/* Eight halves at any address; vectors of bytes need no alignment. */
static void put_halves(void *halves, size_t i, uint16x8_t eight)
{
    vst1q_u8((uint8_t *)halves + 2 * i, vreinterpretq_u8_u16(eight));
}

static uint16x8_t get_halves(const void *halves, size_t i)
{
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)halves + 2 * i));
}

static bool fp16_narrow(void *halves, const float *values, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        put_halves(halves, i, vcombine_u16(narrow(values + i), narrow(values + i + 4)));
    }
    (void)tg_kernels_scalar.halves.fp16_narrow((uint8_t *)halves + 2 * i, values + i, n - i);
    return all_finite(values, n);
}

/* The instruction makes NaNs quiet; vectors with NaNs are left to the scalar kernel, which keeps them. */
static void fp16_widen(float *out, const void *halves, size_t n)
{
    const uint16x8_t rest = vdupq_n_u16(0x7fff);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint16x8_t bits = get_halves(halves, i);
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits))));
        vst1q_f32(out + i + 4, vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits))));
        if (vmaxvq_u16(vandq_u16(bits, rest)) > 0x7c00) {
            tg_kernels_scalar.halves.fp16_widen(out + i, (const uint8_t *)halves + 2 * i, 8);
        }
    }
    tg_kernels_scalar.halves.fp16_widen(out + i, (const uint8_t *)halves + 2 * i, n - i);
}

static void fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint16x8_t bits = get_halves(halves, i);
        float32x4_t low = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits)));
        float32x4_t high = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits)));
        vst1q_f32(sums + i, vaddq_f32(vld1q_f32(sums + i), vmulq_n_f32(low, weight)));
        vst1q_f32(sums + i + 4, vaddq_f32(vld1q_f32(sums + i + 4), vmulq_n_f32(high, weight)));
    }
    tg_kernels_scalar.halves.fp16_add(sums + i, (const uint8_t *)halves + 2 * i, weight, n - i);
}

/* ---- selection ----------------------------------------------------------------------------------------------------------- */

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
static void mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
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

static void mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n)
{
    const uint32x4_t bound = vdupq_n_u32(least);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint16x8_t is_in = vcombine_u16(reach(u + i, g + i, more, bound), reach(u + i + 4, g + i + 4, more, bound));
        set_mask_bits(mask, at + i, vaddv_u8(vand_u8(vmovn_u16(is_in), vld1_u8(places))));
    }
    tg_kernels_scalar.select.mark_bin(mask, at + i, u + i, g + i, more, least, n - i);
}

const tg_kernels tg_kernels_neon = {
    .passes = {.all_finite = all_finite,
               .accumulate = tg_scalar_accumulate,
               .subtract = tg_scalar_subtract,
               .copy = tg_scalar_copy,
               .stream_bytes = tg_scalar_stream_bytes,
               .add = add},
    .halves = {.all_finite = halves_all_finite,
               .fp16_narrow = fp16_narrow,
               .fp16_widen = fp16_widen,
               .fp16_add = fp16_add,
               .bf16_narrow = bf16_narrow,
               .bf16_widen = bf16_widen,
               .bf16_add = bf16_add},
    .select = {.largest_key = largest_key,
               .mark_keys = mark_keys,
               .mark_bin = mark_bin,
               .list_marks = tg_scalar_list_marks},
    .symbols = {.draw = tg_scalar_draw,
                .ternary = ternary,
                .levels = levels,
                .natural = natural,
                .signs = signs,
                .mark_above = mark_above,
                .count_above = count_above,
                .minifloats = minifloats,
                .round_between = round_between,
                .powers = powers,
                .look_up = look_up,
                .look_up_add = look_up_add},
    .statistics = {.moments = moments,
                   .squares = squares,
                   .sums_around = sums_around,
                   .ends = tg_scalar_ends,
                   .nth = tg_scalar_nth,
                   .split = tg_scalar_split,
                   .ways_up = tg_scalar_ways_up},
    .coders = {.bits_write = tg_scalar_bits_write,
               .bits_read = tg_scalar_bits_read,
               .numbers_below = tg_scalar_numbers_below,
               .count = tg_scalar_count,
               .split_words = split_words,
               .join_words = join_words,
               .rans_push = rans_push, /* NEON has no gather for the tables of these coders */
               .rans_pull = rans_pull,
               .prefix_write = prefix_write,
               .prefix_read = prefix_read,
               .rice_read = rice_read},
};
#endif
