/* Symbols at their plain width for NEON: writing. pack/bits.c defines groups, docs/format.md the bytes. Eight groups fill whole
 * bytes. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/digits.h"
#include "kernels/scalar.h"

#include <string.h>

enum {
    GROUPS = 8,
    BEYOND = 8
}; /* bytes after a written number that may be overwritten, if they are to be written later */

/* ---- groups of several symbols ------------------------------------------------------------------------------------------- */

/* Factors of the digits at even and odd places of two groups, 0 for those of the next groups. */
typedef struct weights {
    uint16x8_t even, odd;
} weights;

TG_NEON_INLINE weights weights_of(uint32_t base, uint32_t k)
{
    uint16_t even[8], odd[8];
    for (uint32_t i = 0; i < 8; i++) {
        even[i] = (uint16_t)(2 * (i % 4) < k ? 1 : 0);
        odd[i] = (uint16_t)(2 * (i % 4) + 1 < k ? base : 0);
    }
    return (weights){vld1q_u16(even), vld1q_u16(odd)};
}

/* Two groups as four numbers of two digits each. */
TG_NEON_INLINE uint16x8_t load_twos(const uint16_t *symbols, size_t k, const weights *w)
{
    uint16x8x2_t digits = vuzpq_u16(vld1q_u16(symbols), vld1q_u16(symbols + k));
    return vmlaq_u16(vmulq_u16(digits.val[0], w->even), digits.val[1], w->odd);
}

/* Four groups as numbers: digits below 128 are combined by twos, fours and eights. */
TG_NEON_INLINE uint64x2x2_t load_numbers(const uint16_t *symbols, size_t k, const weights *w, uint16_t square,
                                         uint32_t fourth)
{
    uint16x8x2_t twos = vuzpq_u16(load_twos(symbols, k, w), load_twos(symbols + 2 * k, k, w));
    const uint16x8_t squares = vdupq_n_u16(square);
    uint32x4_t first = vmull_u16(vget_low_u16(twos.val[1]), vget_low_u16(squares));
    uint32x4_t second = vmull_high_u16(twos.val[1], squares);
    first = vaddw_u16(first, vget_low_u16(twos.val[0]));
    second = vaddw_high_u16(second, twos.val[0]);
    uint32x4x2_t fours = vuzpq_u32(first, second);
    const uint32x4_t fourths = vdupq_n_u32(fourth);
    uint64x2_t lower = vmull_u32(vget_low_u32(fours.val[1]), vget_low_u32(fourths));
    uint64x2_t upper = vmull_high_u32(fours.val[1], fourths);
    return (uint64x2x2_t){{vaddw_u32(lower, vget_low_u32(fours.val[0])), vaddw_high_u32(upper, fours.val[0])}};
}

/* Numbers written one after the other: those bits of the last byte that are not full are kept. */
typedef struct writer {
    uint8_t *out;
    uint64_t held;
    uint32_t held_n;
} writer;

TG_NEON_INLINE void put(writer *w, uint64_t number, uint32_t bits)
{
    w->held |= number << w->held_n; /* at most 48 + 7 bits */
    memcpy(w->out, &w->held, sizeof w->held);
    w->held_n += bits;
    w->out += w->held_n / 8;
    w->held >>= w->held_n & ~7u;
    w->held_n &= 7;
}

/* `k` and `bits` are d's, as constants. */
TG_NEON_INLINE size_t write_groups_of(uint8_t *out, size_t len, const uint16_t *symbols, size_t count, tg_digits d,
                                      uint32_t k, uint32_t bits)
{
    const weights w = weights_of(d.base, k);
    const uint16_t square = (uint16_t)(d.base * d.base);
    const uint32_t fourth = d.base * d.base * d.base * d.base;
    size_t done = 0;
    for (; count - done >= (GROUPS - 1) * k + 8 && len >= bits + BEYOND; done += GROUPS * k, out += bits, len -= bits) {
        uint64x2x2_t first = load_numbers(symbols + done, k, &w, square, fourth);
        uint64x2x2_t second = load_numbers(symbols + done + 4 * k, k, &w, square, fourth);
        const uint64x2_t numbers[4] = {first.val[0], first.val[1], second.val[0], second.val[1]};
        writer to = {out, 0, 0};
        for (int i = 0; i < 4; i++) {
            put(&to, vgetq_lane_u64(numbers[i], 0), bits);
            put(&to, vgetq_lane_u64(numbers[i], 1), bits);
        }
    }
    return done;
}

static size_t write_groups(uint8_t *out, size_t len, const uint16_t *symbols, size_t count, tg_digits d)
{
    return d.symbols == 8 && d.bits == 41 ? write_groups_of(out, len, symbols, count, d, 8, 41)
                                          : write_groups_of(out, len, symbols, count, d, d.symbols, d.bits);
}

/* Three digits of base 5 in seven bits. Eight numbers are put together by twos, fours and eights. */
static size_t write_base_5(uint8_t *out, size_t len, const uint16_t *symbols, size_t count)
{
    const uint16x8_t base = vdupq_n_u16(5);
    const uint32x4_t two = vdupq_n_u32((1u << 14) - 1);
    const uint64x2_t four = vdupq_n_u64((1u << 28) - 1);
    size_t done = 0;
    for (; count - done >= 24 && len >= 7 + BEYOND; done += 24, out += 7, len -= 7) {
        uint16x8x3_t digits = vld3q_u16(symbols + done);
        uint16x8_t numbers = vmlaq_u16(digits.val[0], vmlaq_u16(digits.val[1], digits.val[2], base), base);
        uint32x4_t twos = vreinterpretq_u32_u16(numbers);
        twos = vandq_u32(vsraq_n_u32(twos, twos, 9), two);
        uint64x2_t fours = vreinterpretq_u64_u32(twos);
        fours = vandq_u64(vsraq_n_u64(fours, fours, 18), four);
        uint64_t eight = vgetq_lane_u64(fours, 0) | vgetq_lane_u64(fours, 1) << 28;
        memcpy(out, &eight, sizeof eight);
    }
    return done;
}

/* ---- five digits of base 3 in a byte, or of base 9 in two ---------------------------------------------------------------- */

/* Where digit number `digit` of sixteen groups of five is among 80 bytes: in the first 64, and in the last 16. */
typedef struct strides {
    uint8x16_t front[5], back[5];
} strides;

TG_NEON_INLINE strides strides_of(void)
{
    strides s;
    for (uint32_t digit = 0; digit < 5; digit++) {
        uint8_t at[16];
        for (uint32_t i = 0; i < 16; i++) {
            at[i] = (uint8_t)(5 * i + digit);
        }
        s.front[digit] = vld1q_u8(at);
        s.back[digit] = vsubq_u8(s.front[digit], vdupq_n_u8(64));
    }
    return s;
}

/* The digits of sixteen groups as bytes, one vector for each place. */
typedef struct fives {
    uint8x16_t digit[5];
} fives;

TG_NEON_INLINE uint8x16_t load_bytes(const uint16_t *symbols)
{
    uint8x16_t low = vreinterpretq_u8_u16(vld1q_u16(symbols)), high = vreinterpretq_u8_u16(vld1q_u16(symbols + 8));
    return vuzp1q_u8(low, high);
}

TG_NEON_INLINE fives load_fives(const uint16_t *symbols, const strides *s)
{
    const uint8x16x4_t front = {
        {load_bytes(symbols), load_bytes(symbols + 16), load_bytes(symbols + 32), load_bytes(symbols + 48)}};
    const uint8x16_t back = load_bytes(symbols + 64);
    fives f;
    for (int i = 0; i < 5; i++) {
        f.digit[i] = vqtbx1q_u8(vqtbl4q_u8(front, s->front[i]), back, s->back[i]);
    }
    return f;
}

static size_t write_base_3(uint8_t *out, const uint16_t *symbols, size_t count)
{
    const strides s = strides_of();
    const uint8x16_t base = vdupq_n_u8(3);
    size_t done = 0;
    for (; count - done >= 80; done += 80, out += 16) {
        const fives f = load_fives(symbols + done, &s);
        uint8x16_t numbers = f.digit[4];
        for (int i = 4; i-- > 0;) {
            numbers = vmlaq_u8(f.digit[i], numbers, base);
        }
        vst1q_u8(out, numbers);
    }
    return done;
}

static size_t write_base_9(uint8_t *out, const uint16_t *symbols, size_t count)
{
    const strides s = strides_of();
    const uint8x16_t base = vdupq_n_u8(9), square = vdupq_n_u8(81);
    const uint16x8_t fourth = vdupq_n_u16(6561);
    size_t done = 0;
    for (; count - done >= 80; done += 80, out += 32) {
        const fives f = load_fives(symbols + done, &s);
        uint8x16_t lower = vmlaq_u8(f.digit[0], f.digit[1], base), upper = vmlaq_u8(f.digit[2], f.digit[3], base);
        uint16x8_t first = vmlaq_u16(vmovl_u8(vget_low_u8(lower)), vmovl_u8(vget_low_u8(f.digit[4])), fourth);
        uint16x8_t second = vmlaq_u16(vmovl_high_u8(lower), vmovl_high_u8(f.digit[4]), fourth);
        first = vmlal_u8(first, vget_low_u8(upper), vget_low_u8(square));
        second = vmlal_high_u8(second, upper, square);
        vst1q_u8(out, vreinterpretq_u8_u16(first));
        vst1q_u8(out + 16, vreinterpretq_u8_u16(second));
    }
    return done;
}

/* ---- groups of one symbol ------------------------------------------------------------------------------------------------ */

TG_NEON_INLINE uint8x16_t load_signs(const uint16_t *symbols)
{
    static const int8_t bits[16] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
    return vshlq_u8(load_bytes(symbols), vld1q_s8(bits));
}

/* Three pairwise additions bring the bits of eight symbols into one byte. */
static size_t write_signs(uint8_t *out, const uint16_t *symbols, size_t count)
{
    size_t done = 0;
    for (; count - done >= 64; done += 64, out += 8) {
        const uint16_t *here = symbols + done;
        uint8x16_t front = vpaddq_u8(load_signs(here), load_signs(here + 16));
        uint8x16_t back = vpaddq_u8(load_signs(here + 32), load_signs(here + 48));
        uint8x16_t both = vpaddq_u8(front, back);
        vst1_u8(out, vget_low_u8(vpaddq_u8(both, both)));
    }
    return done;
}

/* Symbols of up to eight bits are put together by twos, fours and eights. */
static size_t write_bits(uint8_t *out, size_t len, const uint16_t *symbols, size_t count, uint32_t bits)
{
    uint16_t by_twos[8];
    for (int i = 0; i < 8; i++) {
        by_twos[i] = (uint16_t)(i % 2 == 0 ? 1 : 1 << bits);
    }
    const uint16x8_t factors = vld1q_u16(by_twos);
    const int32x4_t by_fours = vdupq_n_s32(2 * (int32_t)bits - 16);
    const int64x2_t by_eights = vdupq_n_s64(4 * (int64_t)bits - 32);
    const uint32x4_t lower_half = vdupq_n_u32(0xffff);
    const uint64x2_t lower = vdupq_n_u64(UINT32_MAX);
    size_t done = 0;
    for (; count - done >= 16 && len >= 2 * (size_t)bits + BEYOND; done += 16, out += 2 * bits, len -= 2 * bits) {
        uint16x8_t front = vmulq_u16(vld1q_u16(symbols + done), factors);
        uint16x8_t back = vmulq_u16(vld1q_u16(symbols + done + 8), factors);
        uint32x4_t twos = vreinterpretq_u32_u16(vpaddq_u16(front, back));
        /* The upper half moves down to the end of the lower one. */
        uint32x4_t fours = vorrq_u32(vandq_u32(twos, lower_half), vshlq_u32(vbicq_u32(twos, lower_half), by_fours));
        uint64x2_t all = vreinterpretq_u64_u32(fours);
        all = vorrq_u64(vandq_u64(all, lower), vshlq_u64(vbicq_u64(all, lower), by_eights));
        vst1_u8(out, vget_low_u8(vreinterpretq_u8_u64(all)));
        vst1_u8(out + bits, vget_high_u8(vreinterpretq_u8_u64(all)));
    }
    return done;
}

/* Symbol i of eight of nine bits begins at bit i of byte i. */
static size_t write_nines(uint8_t *out, size_t len, const uint16_t *symbols, size_t count)
{
    static const int16_t shifts[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint8_t evens[16] = {0, 1, 4, 5, 8, 9, 12, 13, 255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t odds[16] = {255, 2, 3, 6, 7, 10, 11, 14, 15, 255, 255, 255, 255, 255, 255, 255};
    const int16x8_t by = vld1q_s16(shifts);
    const uint8x16_t even = vld1q_u8(evens), odd = vld1q_u8(odds);
    size_t done = 0;
    for (; count - done >= 32 && len >= 36 + BEYOND; done += 32, out += 36, len -= 36) {
        for (size_t i = 0; i < 4; i++) {
            uint8x16_t words = vreinterpretq_u8_u16(vshlq_u16(vld1q_u16(symbols + done + 8 * i), by));
            vst1q_u8(out + 9 * i, vorrq_u8(vqtbl1q_u8(words, even), vqtbl1q_u8(words, odd)));
        }
    }
    return done;
}

/* ---- all ----------------------------------------------------------------------------------------------------------------- */

void tg_neon_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    const size_t len = ((count + d.symbols - 1) / d.symbols * d.bits + 7) / 8;
    size_t done = 0;
    if (d.base == 2) {
        done = write_signs(out, symbols, count);
    } else if (d.base == 3) {
        done = write_base_3(out, symbols, count);
    } else if (d.base == 5) {
        done = write_base_5(out, len, symbols, count);
    } else if (d.base == 9) {
        done = write_base_9(out, symbols, count);
    } else if (d.base == 512) {
        done = write_nines(out, len, symbols, count);
    } else if (d.symbols == 1 && d.bits <= 8) {
        done = write_bits(out, len, symbols, count, d.bits);
    } else if (d.symbols > 1 && d.base < 128) {
        done = write_groups(out, len, symbols, count, d);
    }
    tg_scalar_bits_write(out + done / d.symbols * d.bits / 8, symbols + done, count - done, d);
}
#endif
