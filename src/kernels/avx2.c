/* The table of kernels for AVX2. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/bmi2.h"
#define TG_TARGET TG_AVX2
#define TG_LANES 8
#include "kernels/block_loops.h"
#include "kernels/factor_loops.h"

const tg_kernels tg_kernels_avx2 = {
    .passes = {.all_finite = tg_avx2_all_finite,
               .accumulate = tg_avx2_accumulate,
               .subtract = tg_avx2_subtract,
               .divide = tg_avx2_divide,
               .copy = tg_avx2_copy,
               .stream_bytes = tg_avx2_stream_bytes,
               .add = tg_avx2_add,
               .hash_leaf = tg_avx2_hash_leaf},
    .halves = {.all_finite = tg_avx2_halves_all_finite,
               .fp16_narrow = tg_avx2_fp16_narrow,
               .fp16_widen = tg_avx2_fp16_widen,
               .fp16_add = tg_avx2_fp16_add,
               .bf16_narrow = tg_avx2_bf16_narrow,
               .bf16_widen = tg_avx2_bf16_widen,
               .bf16_add = tg_avx2_bf16_add},
    .select = {.largest_key = tg_avx2_largest_key,
               .mark_keys = tg_avx2_mark_keys,
               .mark_bin = tg_avx2_mark_bin,
               .list_marks = tg_avx2_list_marks,
               .compress = tg_bmi2_compress,
               .expand_add = tg_bmi2_expand_add,
               .expand_set = tg_bmi2_expand_set},
    .symbols = {.draw = tg_avx2_draw,
                .ternary = tg_avx2_ternary,
                .two_sided = tg_avx2_two_sided,
                .levels = tg_avx2_levels,
                .natural = tg_avx2_natural,
                .signs = tg_avx2_signs,
                .mark_above = tg_avx2_mark_above,
                .count_above = tg_avx2_count_above,
                .minifloats = tg_avx2_minifloats,
                .round_between = tg_avx2_round_between,
                .powers = tg_avx2_powers,
                .look_up = tg_avx2_look_up,
                .look_up_add = tg_avx2_look_up_add},
    .blocks = TG_BLOCK_KERNELS,
    .statistics = {.magnitudes = tg_avx2_magnitudes,
                   .squares = tg_avx2_squares,
                   .moments = tg_avx2_moments,
                   .sums_around = tg_avx2_sums_around,
                   .sum_above = tg_avx2_sum_above,
                   .ends = tg_avx2_ends,
                   .nth = tg_avx2_nth,
                   .split = tg_avx2_split,
                   .ways_up = tg_avx2_ways_up},
    .coders = {.bits_write = tg_avx2_bits_write,
               .bits_read = tg_avx2_bits_read,
               .numbers_below = tg_avx2_numbers_below,
               .count = tg_avx2_count,
               .split_words = tg_avx2_split_words,
               .join_words = tg_avx2_join_words,
               .rans_push = tg_avx2_rans_push,
               .rans_pull = tg_avx2_rans_pull,
               .prefix_write = tg_bmi2_prefix_write,
               .prefix_read = tg_bmi2_prefix_read,
               .rice_read = tg_bmi2_rice_read,
               .rice_write = tg_bmi2_rice_write},
    .factors =
        {.multiply = multiply, .multiply_back = multiply_back, .expand = expand, .dots = dots, .project = project},
};
#endif
