/* Symbols at their plain width for AVX2: writing. pack/bits.c defines groups, docs/format.md the bytes. Eight groups fill whole
 * bytes; they are processed together. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/digits.h"
#include "kernels/scalar.h"

#include <string.h>

/* Where writers are. Stores may reach past what is written, but never past `end`. */
typedef struct target {
    uint8_t *out;
    const uint8_t *end;
} target;

TG_AVX2_INLINE bool has(const target *t, size_t len)
{
    return (size_t)(t->end - t->out) >= len;
}

TG_AVX2_INLINE __m256i load(const uint16_t *symbols)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)symbols);
}

/* ---- groups of several symbols ----------------------------------------------------------------------------------------- */

enum { GROUPS = 8 };

/* How groups of k symbols below 128 become numbers: a byte shuffle that moves 2 k bytes to two groups of k, each at the start of
 * a 64-bit lane; and factors by which digits are combined by twos, fours and eights. */
typedef struct combination {
    uint32_t k;
    __m256i spread, twos, fours, eights;
} combination;

TG_AVX2_INLINE combination combination_of(uint32_t base, uint32_t k)
{
    uint8_t at[16];
    for (uint32_t i = 0; i < 16; i++) {
        at[i] = (uint8_t)(i % 8 < k ? i / 8 * k + i % 8 : 0x80);
    }
    return (combination){.k = k,
                         .spread = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at)),
                         .twos = _mm256_set1_epi16((short)(base << 8 | 1)),
                         .fours = _mm256_set1_epi32((int)(base * base << 16 | 1)),
                         .eights = _mm256_set1_epi64x((long long)base * base * base * base)};
}

/* The numbers of four groups. Loads sixteen symbols from each of two pairs of groups. */
TG_AVX2_INLINE __m256i numbers_of(const uint16_t *symbols, const combination *c)
{
    __m256i bytes = _mm256_packus_epi16(load(symbols), load(symbols + 2 * (size_t)c->k));
    bytes = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 2, 0)), c->spread);
    __m256i pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, c->twos), c->fours);
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(pairs, 32), c->eights);
    return _mm256_add_epi64(high, _mm256_and_si256(pairs, _mm256_set1_epi64x(0xffffffff)));
}

/* Writes eight numbers of so many bits, and up to 8 bytes after them. */
TG_AVX2_INLINE void put_numbers(uint8_t *out, __m256i first, __m256i last, uint32_t bits)
{
    uint64_t all[GROUPS], held = 0;
    uint32_t held_n = 0;
    _mm256_storeu_si256((__m256i *)(void *)all, first);
    _mm256_storeu_si256((__m256i *)(void *)(all + 4), last);
    for (int g = 0; g < GROUPS; g++) {
        held |= all[g] << held_n;
        held_n += bits;
        memcpy(out, &held, sizeof held);
        out += held_n / 8;
        held >>= held_n & ~7u; /* at most 48 + 7 bits */
        held_n &= 7;
    }
}

/* `k` and `bits` are d's, as constants where that is faster. */
TG_AVX2_INLINE size_t write_groups_of(target t, const uint16_t *symbols, size_t count, tg_digits d, uint32_t k,
                                      uint32_t bits)
{
    const combination c = combination_of(d.base, k);
    const size_t half = 4 * (size_t)k, reach = half + 2 * k + 16 > 2 * half ? half + 2 * k + 16 : 2 * half;
    size_t done = 0;
    for (; count - done >= reach && has(&t, bits + 8); done += 2 * half, t.out += bits) {
        put_numbers(t.out, numbers_of(symbols + done, &c), numbers_of(symbols + done + half, &c), bits);
    }
    return done;
}

TG_AVX2 static size_t write_groups(target t, const uint16_t *symbols, size_t count, tg_digits d)
{
    return d.symbols == 8 && d.bits == 41 ? write_groups_of(t, symbols, count, d, 8, 41)
                                          : write_groups_of(t, symbols, count, d, d.symbols, d.bits);
}

/* ---- five digits of base 3 in a byte, or of base 9 in two -------------------------------------------------------------- */

/* Sixteen numbers, of which n[j] holds number 4 j + i in lane i, as bytes. */
TG_AVX2_INLINE void put_bytes(uint8_t *out, const __m256i n[4])
{
    const __m128i across = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i low = _mm256_or_si256(n[0], _mm256_slli_epi64(n[1], 8));
    __m256i high = _mm256_or_si256(_mm256_slli_epi64(n[2], 16), _mm256_slli_epi64(n[3], 24));
    __m256i lanes = _mm256_permutevar8x32_epi32(_mm256_or_si256(low, high), _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128((__m128i *)(void *)out, _mm_shuffle_epi8(_mm256_castsi256_si128(lanes), across));
}

/* As 16-bit words. */
TG_AVX2_INLINE void put_words(uint8_t *out, const __m256i n[4])
{
    const __m256i across = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9, 2, 3, 10,
                                            11, 4, 5, 12, 13, 6, 7, 14, 15);
    __m256i low = _mm256_or_si256(n[0], _mm256_slli_epi64(n[1], 16));
    __m256i high = _mm256_or_si256(_mm256_slli_epi64(n[2], 32), _mm256_slli_epi64(n[3], 48));
    __m256i pairs = _mm256_shuffle_epi8(_mm256_or_si256(low, high), across);
    _mm256_storeu_si256((__m256i *)(void *)out,
                        _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

/* `base` is a constant. */
TG_AVX2_INLINE size_t write_fives(target t, const uint16_t *symbols, size_t count, uint32_t base)
{
    enum { NUMBERS = 16, SYMBOLS = 5 * NUMBERS, REACH = SYMBOLS + 6 };
    const combination c = combination_of(base, 5);
    size_t done = 0;
    for (; count - done >= REACH; done += SYMBOLS, t.out += base == 3 ? NUMBERS : 2 * NUMBERS) {
        __m256i n[4];
        for (size_t j = 0; j < 4; j++) {
            n[j] = numbers_of(symbols + done + 20 * j, &c);
        }
        base == 3 ? put_bytes(t.out, n) : put_words(t.out, n);
    }
    return done;
}

/* ---- numbers of up to nine bits ---------------------------------------------------------------------------------------- */

/* Sixteen numbers, of three symbols below a base, in 16-bit lanes: each half of a vector has eight of them. The symbols of a
 * number are moved to the bytes of a 32-bit lane. */
TG_AVX2_INLINE __m256i threes_of(const uint16_t *symbols, uint32_t base)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 0, 1, 2, -1, 3, 4, 5,
                                            -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m256i digits = _mm256_set1_epi32((int)(base * base << 16 | base << 8 | 1)), ones = _mm256_set1_epi16(1);
    __m256i part[3];
    for (size_t v = 0; v < 3; v++) {
        const __m128i *here = (const __m128i *)(const void *)(symbols + 8 * v);
        part[v] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(here)), _mm_loadu_si128(here + 3), 1);
    }
    __m256i low = _mm256_packus_epi16(part[0], part[1]), high = _mm256_packus_epi16(part[2], part[2]);
    __m256i first = _mm256_shuffle_epi8(low, spread);
    __m256i last = _mm256_shuffle_epi8(_mm256_alignr_epi8(high, low, 12), spread);
    return _mm256_packus_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(first, digits), ones),
                               _mm256_madd_epi16(_mm256_maddubs_epi16(last, digits), ones));
}

/* Of one to three symbols. */
TG_AVX2_INLINE __m256i smalls_of(const uint16_t *symbols, uint32_t base, uint32_t k)
{
    if (k == 1) {
        return load(symbols);
    }
    if (k == 3) {
        return threes_of(symbols, base);
    }
    const __m256i digits = _mm256_set1_epi32((int)(base << 16 | 1));
    __m256i first = _mm256_madd_epi16(load(symbols), digits), last = _mm256_madd_epi16(load(symbols + 16), digits);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, last), _MM_SHUFFLE(3, 1, 2, 0));
}

/* Numbers of up to eight bits are put together by twos, fours and eights; stores 8 bytes from both halves. */
TG_AVX2_INLINE void put_smalls(uint8_t *out, __m256i numbers, uint32_t bits)
{
    const __m256i four_bits = _mm256_set1_epi64x((long long)((UINT64_C(1) << 4 * bits) - 1));
    __m256i twos = _mm256_madd_epi16(numbers, _mm256_set1_epi32((int)(UINT32_C(1) << (16 + bits) | 1)));
    __m256i fours = _mm256_or_si256(twos, _mm256_srl_epi64(twos, _mm_cvtsi32_si128((int)(32 - 2 * bits))));
    fours = _mm256_and_si256(fours, four_bits);
    __m256i upper = _mm256_sll_epi64(_mm256_srli_si256(fours, 8), _mm_cvtsi32_si128((int)(4 * bits)));
    __m256i eights = _mm256_or_si256(fours, upper);
    _mm_storel_epi64((__m128i *)(void *)out, _mm256_castsi256_si128(eights));
    _mm_storel_epi64((__m128i *)(void *)(out + bits), _mm256_extracti128_si256(eights, 1));
}

/* Of nine bits, number i of eight begins at bit i of byte i; stores 16 bytes from both halves. */
TG_AVX2_INLINE void put_nines(uint8_t *out, __m256i numbers)
{
    const __m256i factors = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i even =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m256i odd =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1, -1));
    __m256i words = _mm256_mullo_epi16(numbers, factors);
    words = _mm256_or_si256(_mm256_shuffle_epi8(words, even), _mm256_shuffle_epi8(words, odd));
    _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(words));
    _mm_storeu_si128((__m128i *)(void *)(out + 9), _mm256_extracti128_si256(words, 1));
}

/* `k`, how many symbols a number has, is a constant. */
TG_AVX2_INLINE size_t write_smalls(target t, const uint16_t *symbols, size_t count, tg_digits d, uint32_t k)
{
    const size_t step = 16 * (size_t)k;
    size_t done = 0;
    for (; d.bits == 9 && count - done >= step && has(&t, 9 + 16); done += step, t.out += 18) {
        put_nines(t.out, smalls_of(symbols + done, d.base, k));
    }
    for (; d.bits <= 8 && count - done >= step && has(&t, d.bits + 8); done += step, t.out += 2 * d.bits) {
        put_smalls(t.out, smalls_of(symbols + done, d.base, k), d.bits);
    }
    return done;
}

/* ---- symbols of one bit ------------------------------------------------------------------------------------------------ */

TG_AVX2 static size_t write_signs(uint8_t *out, const uint16_t *symbols, size_t count)
{
    size_t i = 0;
    for (; count - i >= 32; i += 32) {
        __m256i bytes = _mm256_packus_epi16(load(symbols + i), load(symbols + i + 16));
        bytes = _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 2, 0));
        uint32_t bits = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(bytes, 7));
        memcpy(out + i / 8, &bits, sizeof bits);
    }
    return i;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

/* Writers write whole bytes, and leave the rest to the scalar kernel. */
TG_AVX2 void tg_avx2_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    target t = {out, out + ((count + d.symbols - 1) / d.symbols * d.bits + 7) / 8};
    size_t done = 0;
    if (d.base == 2) {
        done = write_signs(out, symbols, count);
    } else if (d.base == 3) {
        done = write_fives(t, symbols, count, 3);
    } else if (d.base == 9) {
        done = write_fives(t, symbols, count, 9);
    } else if (d.symbols == 1 && d.bits <= 9) {
        done = write_smalls(t, symbols, count, d, 1);
    } else if (d.symbols == 2 && d.bits <= 9) {
        done = write_smalls(t, symbols, count, d, 2);
    } else if (d.symbols == 3 && d.bits <= 9) {
        done = write_smalls(t, symbols, count, d, 3);
    } else if (d.symbols > 1 && d.base < 128) {
        done = write_groups(t, symbols, count, d);
    }
    tg_scalar_bits_write(out + done / d.symbols * d.bits / 8, symbols + done, count - done, d);
}
#endif
