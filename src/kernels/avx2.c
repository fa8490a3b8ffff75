/* The kernels for AVX2 with F16C and BMI2, and their table. Each gives the bits of the scalar one of its name. The caller has checked
 * that the CPU has these instructions (kernels.c). */
#include "kernels/scalar.h"

#if defined(__x86_64__)
#include "kernels/avx2.h"
#include "kernels/bmi2.h"
#include "kernels/mask_bits.h"
#define TG_TARGET __attribute__((target("avx2,bmi2,f16c,popcnt")))
#include "kernels/bucket_loops.h"
#include "kernels/loops.h"
#include "kernels/rans_loops.h"
#include "kernels/word_loops.h"

#include <immintrin.h>
#include <string.h>

#define INLINED static inline __attribute__((always_inline)) TG_TARGET

/* ---- passes -------------------------------------------------------------------------------------------------------------- */

enum { LANES = 8, PREFETCH_DISTANCE = 512 }; /* in elements */

INLINED void put(float *out, __m256 values, bool non_temporal)
{
    if (non_temporal) {
        _mm256_stream_ps(out, values);
    } else {
        _mm256_storeu_ps(out, values);
    }
}

/* Elements before the first vector that is aligned, where non-temporal stores can begin; at most n. */
INLINED size_t before_aligned(const float *out, size_t n)
{
    size_t head = (0 - (uintptr_t)out / sizeof *out) % LANES;
    return head < n ? head : n;
}

TG_TARGET static void stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len)
{
    memcpy(out, bytes, len);
}

TG_TARGET static void copy(float *out, const float *values, size_t n, bool non_temporal)
{
    size_t i = before_aligned(out, n);
    if (!non_temporal) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    memcpy(out, values, i * sizeof *out);
    for (; n - i >= LANES; i += LANES) {
        _mm256_stream_ps(out + i, _mm256_loadu_ps(values + i));
    }
    memcpy(out + i, values + i, (n - i) * sizeof *out);
}

/* All bits of an element are set where it is NaN or Inf. */
INLINED __m256i not_finite(__m256 values)
{
    const __m256i infinity = _mm256_set1_epi32(0x7f800000);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(values), infinity), infinity);
}

INLINED bool accumulate_all(float *out, const float *a, const float *b, float share, size_t n, bool non_temporal)
{
    __m256i bad = _mm256_setzero_si256();
    const __m256 factor = _mm256_set1_ps(share);
    size_t i = non_temporal ? before_aligned(out, n) : 0;
    bool head = tg_kernels_scalar.passes.accumulate(out, NULL, a, b, share, i, false);
    for (; n - i >= LANES; i += LANES) {
        __m256 value = _mm256_loadu_ps(a + i);
        _mm_prefetch((const char *)(a + i) + PREFETCH_DISTANCE * sizeof *a, _MM_HINT_T0);
        _mm_prefetch((const char *)(b + i) + PREFETCH_DISTANCE * sizeof *b, _MM_HINT_T0);
        __m256 sum = _mm256_add_ps(value, _mm256_mul_ps(factor, _mm256_loadu_ps(b + i)));
        bad = _mm256_or_si256(bad, not_finite(sum));
        put(out + i, sum, non_temporal);
    }
    bool tail = tg_kernels_scalar.passes.accumulate(out + i, NULL, a + i, b + i, share, n - i, false);
    return head && tail && _mm256_testz_si256(bad, bad) != 0;
}

TG_TARGET static bool accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                                 bool non_temporal)
{
    bool finite = non_temporal && also == NULL ? accumulate_all(out, a, b, share, n, true)
                                               : accumulate_all(out, a, b, share, n, false);
    if (also != NULL) {
        copy(also, out, n, non_temporal);
    }
    return finite;
}

INLINED bool subtract_all(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    __m256i bad = _mm256_setzero_si256();
    size_t i = non_temporal ? before_aligned(out, n) : 0;
    bool head = tg_kernels_scalar.passes.subtract(out, a, b, i, false);
    for (; n - i >= LANES; i += LANES) {
        __m256 difference = _mm256_sub_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i));
        bad = _mm256_or_si256(bad, not_finite(difference));
        put(out + i, difference, non_temporal);
    }
    bool tail = tg_kernels_scalar.passes.subtract(out + i, a + i, b + i, n - i, false);
    return head && tail && _mm256_testz_si256(bad, bad) != 0;
}

TG_TARGET static bool subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    return non_temporal ? subtract_all(out, a, b, n, true) : subtract_all(out, a, b, n, false);
}

/* ---- halves ---------------------------------------------------------------------------------------------------------- */

/* The instruction makes infinities of values beyond the range; these are replaced by the largest value before. */
TG_TARGET static bool fp16_narrow(void *halves, const float *values, size_t n)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff), largest = _mm256_set1_epi32(0x477fe000);
    const __m256i infinity = _mm256_set1_epi32(0x7f800000);
    __m256i finite = _mm256_set1_epi32(-1);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(values + i));
        __m256i magnitude = _mm256_and_si256(bits, rest), below = _mm256_cmpgt_epi32(infinity, magnitude);
        _mm_prefetch((const char *)(values + i) + PREFETCH_DISTANCE * sizeof *values, _MM_HINT_T0);
        __m256i beyond = _mm256_and_si256(_mm256_cmpgt_epi32(magnitude, largest), below);
        finite = _mm256_and_si256(finite, below);
        __m256i clipped = _mm256_or_si256(_mm256_andnot_si256(rest, bits), largest);
        __m256 value = _mm256_castsi256_ps(_mm256_blendv_epi8(bits, clipped, beyond));
        _mm_storeu_si128((__m128i *)(void *)((uint16_t *)halves + i),
                         _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    bool tail = tg_kernels_scalar.halves.fp16_narrow((uint16_t *)halves + i, values + i, n - i);
    return tail && _mm256_movemask_epi8(finite) == -1;
}

/* The instruction makes NaNs quiet; vectors with NaNs are left to the scalar kernel, which keeps them. */
TG_TARGET static void fp16_widen(float *out, const void *halves, size_t n)
{
    const __m128i rest = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)halves + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(bits));
        if (_mm_movemask_epi8(_mm_cmpgt_epi16(_mm_and_si128(bits, rest), infinity)) != 0) {
            tg_kernels_scalar.halves.fp16_widen(out + i, (const uint16_t *)halves + i, 8);
        }
    }
    tg_kernels_scalar.halves.fp16_widen(out + i, (const uint16_t *)halves + i, n - i);
}

TG_TARGET static void fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    const __m256 factor = _mm256_set1_ps(weight);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)halves + i)));
        _mm256_storeu_ps(sums + i, _mm256_add_ps(_mm256_loadu_ps(sums + i), _mm256_mul_ps(factor, values)));
    }
    tg_kernels_scalar.halves.fp16_add(sums + i, (const uint16_t *)halves + i, weight, n - i);
}

TG_TARGET static void mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff), below = _mm256_set1_epi32((int)least - 1);
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 64; k += 8) {
            __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(values + i + k));
            __m256i above = _mm256_cmpgt_epi32(_mm256_and_si256(bits, rest), below);
            word |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(above)) << k;
        }
        mask[i / 64] = word;
    }
    if (i < n) {
        tg_kernels_scalar.select.mark_keys(mask + i / 64, values + i, least, n - i);
    }
}

TG_TARGET static void mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least,
                               size_t n)
{
    const __m256i rest = _mm256_set1_epi32(0x7fffffff), below = _mm256_set1_epi32((int)least - 1);
    const __m256i infinity = _mm256_set1_epi32(0x7f800000);
    const __m256 factor = _mm256_set1_ps(more);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __m256 value = _mm256_loadu_ps(u + i);
        __m256 sum = _mm256_add_ps(value, _mm256_mul_ps(factor, _mm256_loadu_ps(g + i)));
        __m256i reach = _mm256_and_si256(_mm256_castps_si256(sum), rest);
        __m256i key = _mm256_and_si256(_mm256_castps_si256(value), rest);
        __m256i beyond = _mm256_or_si256(_mm256_cmpgt_epi32(reach, below), _mm256_cmpgt_epi32(reach, infinity));
        __m256i is_in = _mm256_and_si256(beyond, _mm256_cmpgt_epi32(key, _mm256_setzero_si256()));
        set_mask_bits(mask, at + i, (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_in)));
    }
    tg_kernels_scalar.select.mark_bin(mask, at + i, u + i, g + i, more, least, n - i);
}

const tg_kernels tg_kernels_avx2 = {
    .passes = {.all_finite = all_finite,
               .accumulate = accumulate,
               .subtract = subtract,
               .copy = copy,
               .stream_bytes = stream_bytes,
               .add = add,
               .hash_leaf = tg_avx2_hash_leaf},
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
                .two_sided = two_sided,
                .levels = levels,
                .natural = natural,
                .signs = signs,
                .mark_above = mark_above,
                .count_above = count_above,
                .round_between = round_between,
                .powers = powers,
                .look_up = look_up,
                .look_up_add = look_up_add},
    .statistics = {.magnitudes = magnitudes,
                   .squares = squares,
                   .moments = moments,
                   .sums_around = sums_around,
                   .sum_above = sum_above,
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
               .rans_push = rans_push,
               .rans_pull = rans_pull,
               .prefix_write = tg_bmi2_prefix_write,
               .prefix_read = tg_bmi2_prefix_read,
               .rice_read = tg_bmi2_rice_read},
};
#endif
