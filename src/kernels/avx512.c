/* The table of kernels for AVX-512, and those that are written once for all instruction sets. */
#include "kernels/avx512.h"

#if defined(__x86_64__)
#include "kernels/bmi2.h"
#define TG_TARGET TG_AVX512
#define TG_LANES 16
#include "kernels/block_loops.h"
#include "kernels/factor_loops.h"

const tg_kernels tg_kernels_avx512 = {
    .passes = {.all_finite = tg_avx512_all_finite,
               .accumulate = tg_avx512_accumulate,
               .subtract = tg_avx512_subtract,
               .divide = tg_avx512_divide,
               .copy = tg_avx512_copy,
               .stream_bytes = tg_avx512_stream_bytes,
               .add = tg_avx512_add,
               .hash_leaf = tg_avx512_hash_leaf},
    .halves = {.all_finite = tg_avx512_halves_all_finite,
               .fp16_narrow = tg_avx512_fp16_narrow,
               .fp16_widen = tg_avx512_fp16_widen,
               .fp16_add = tg_avx512_fp16_add,
               .bf16_narrow = tg_avx512_bf16_narrow,
               .bf16_widen = tg_avx512_bf16_widen,
               .bf16_add = tg_avx512_bf16_add},
    .select = {.largest_key = tg_avx512_largest_key,
               .mark_keys = tg_avx512_mark_keys,
               .mark_bin = tg_avx512_mark_bin,
               .list_marks = tg_avx512_list_marks,
               .compress = tg_avx512_compress,
               .expand_add = tg_avx512_expand_add,
               .expand_set = tg_avx512_expand_set},
    .symbols = {.draw = tg_avx512_draw,
                .ternary = tg_avx512_ternary,
                .two_sided = tg_avx512_two_sided,
                .levels = tg_avx512_levels,
                .natural = tg_avx512_natural,
                .signs = tg_avx512_signs,
                .mark_above = tg_avx512_mark_above,
                .count_above = tg_avx512_count_above,
                .minifloats = tg_avx512_minifloats,
                .round_between = tg_avx512_round_between,
                .powers = tg_avx512_powers,
                .look_up = tg_avx512_look_up,
                .look_up_add = tg_avx512_look_up_add},
    .blocks = TG_BLOCK_KERNELS,
    .statistics = {.magnitudes = tg_avx512_magnitudes,
                   .squares = tg_avx512_squares,
                   .moments = tg_avx512_moments,
                   .sums_around = tg_avx512_sums_around,
                   .sum_above = tg_avx512_sum_above,
                   .ends = tg_avx512_ends,
                   .nth = tg_avx512_nth,
                   .split = tg_avx512_split,
                   .ways_up = tg_avx512_ways_up},
    .coders = {.bits_write = tg_avx512_bits_write,
               .bits_read = tg_avx512_bits_read,
               .numbers_below = tg_avx512_numbers_below,
               .count = tg_avx512_count,
               .split_words = tg_avx512_split_words,
               .join_words = tg_avx512_join_words,
               .rans_push = tg_avx512_rans_push,
               .rans_pull = tg_avx512_rans_pull,
               .prefix_write = tg_bmi2_prefix_write,
               .prefix_read = tg_bmi2_prefix_read,
               .rice_read = tg_bmi2_rice_read,
               .rice_write = tg_bmi2_rice_write},
    .factors =
        {.multiply = multiply, .multiply_back = multiply_back, .expand = expand, .dots = dots, .project = project},
};
#endif
