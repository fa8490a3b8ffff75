/* The kernels in plain C, and their table: the reference that faster versions match bit for bit. */
#include "kernels/scalar.h"

#include "base/bits.h"
#include "base/half.h"
#define TG_TARGET
#include "kernels/block_loops.h"
#include "kernels/mark_loops.h"
#include "kernels/minifloat_loops.h"
#include "kernels/prefix_loops.h"
#include "kernels/rans_loops.h"
#include "kernels/rice_loops.h"
#include "kernels/word_loops.h"

#include <string.h>

static bool all_finite(const float *values, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= (tg_float_bits(values[i]) & 0x7f800000u) == 0x7f800000u ? 1 : 0;
    }
    return bad == 0;
}

static bool halves_all_finite(const void *halves, uint16_t exponent, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((((const tg_any_half *)halves)[i] & exponent) == exponent) {
            return false;
        }
    }
    return true;
}

bool tg_scalar_accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n,
                          bool non_temporal)
{
    (void)non_temporal;
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] + share * b[i];
    }
    for (size_t i = 0; also != NULL && i < n; i++) {
        also[i] = out[i];
    }
    return all_finite(out, n);
}

bool tg_scalar_subtract(float *out, const float *a, const float *b, size_t n, bool non_temporal)
{
    (void)non_temporal;
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] - b[i];
    }
    return all_finite(out, n);
}

static bool divide(float *out, const float *values, float divisor, size_t n, bool non_temporal)
{
    (void)non_temporal;
    for (size_t i = 0; i < n; i++) {
        out[i] = values[i] / divisor;
    }
    return all_finite(out, n);
}

void tg_scalar_copy(float *out, const float *values, size_t n, bool non_temporal)
{
    (void)non_temporal;
    memcpy(out, values, n * sizeof *out);
}

void tg_scalar_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len)
{
    memcpy(out, bytes, len);
}

static void add(float *sums, const float *values, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * values[i];
    }
}

static bool fp16_narrow(void *halves, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((tg_any_half *)halves)[i] = tg_float_to_fp16(values[i]);
    }
    return all_finite(values, n);
}

static void fp16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_fp16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static void fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * tg_fp16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static bool bf16_narrow(void *halves, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((tg_any_half *)halves)[i] = tg_float_to_bf16(values[i]);
    }
    return all_finite(values, n);
}

static void bf16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static void bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static void mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (size_t i = 0; i < n; i++) {
        mask[i / 64] |= (uint64_t)((tg_float_bits(values[i]) & 0x7fffffffu) >= least) << i % 64;
    }
}

static uint32_t largest_key(const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = tg_float_bits(values[i]) & 0x7fffffffu;
        largest = key > largest ? key : largest;
    }
    return largest;
}

static void mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t reach = tg_float_bits(u[i] + more * g[i]) & 0x7fffffffu;
        bool is_in = (reach >= least || reach > 0x7f800000u) && (tg_float_bits(u[i]) & 0x7fffffffu) != 0;
        mask[(at + i) / 64] |= (uint64_t)is_in << (at + i) % 64;
    }
}

void tg_rans_push_rest(tg_rans_writer *w, size_t round, uint32_t lane_n, const tg_rans_plans *plans)
{
    size_t whole = round == 0 ? 0 : w->count - w->count % round;
    w->symbols += whole;
    w->count -= whole;
    rans_push_one(w, lane_n, plans);
    w->symbols -= whole;
    w->count = whole;
}

const tg_kernels tg_kernels_scalar = {
    .passes = {.all_finite = all_finite,
               .accumulate = tg_scalar_accumulate,
               .subtract = tg_scalar_subtract,
               .divide = divide,
               .copy = tg_scalar_copy,
               .stream_bytes = tg_scalar_stream_bytes,
               .add = add,
               .hash_leaf = tg_scalar_hash_leaf},
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
               .list_marks = tg_scalar_list_marks,
               .compress = compress,
               .expand_add = expand_add,
               .expand_set = expand_set},
    .symbols = {.draw = tg_scalar_draw,
                .ternary = tg_scalar_ternary,
                .two_sided = tg_scalar_two_sided,
                .levels = tg_scalar_levels,
                .natural = tg_scalar_natural,
                .signs = tg_scalar_signs,
                .mark_above = tg_scalar_mark_above,
                .count_above = tg_scalar_count_above,
                .minifloats = minifloats,
                .round_between = tg_scalar_round_between,
                .powers = tg_scalar_powers,
                .look_up = tg_scalar_look_up,
                .look_up_add = tg_scalar_look_up_add},
    .blocks = TG_BLOCK_KERNELS,
    .statistics = {.magnitudes = tg_scalar_magnitudes,
                   .squares = tg_scalar_squares,
                   .moments = tg_scalar_moments,
                   .sums_around = tg_scalar_sums_around,
                   .sum_above = tg_scalar_sum_above,
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
               .prefix_write = prefix_write,
               .prefix_read = prefix_read,
               .rice_read = rice_read,
               .rice_write = rice_write},
    .factors = {.multiply = tg_scalar_multiply,
                .multiply_back = tg_scalar_multiply_back,
                .expand = tg_scalar_expand,
                .dots = tg_scalar_dots,
                .project = tg_scalar_project},
};
