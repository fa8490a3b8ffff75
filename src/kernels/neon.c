/* The table of kernels for NEON. Those of loops that compilers vectorise well, or that are scalar by nature, are plain C. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/scalar.h"
#define TG_TARGET __attribute__((unused)) /* some have a version of their own */
#define TG_LANES 4
#include "kernels/block_loops.h"
#include "kernels/factor_loops.h"
#include "kernels/loops.h"
#include "kernels/mark_loops.h"
#include "kernels/prefix_loops.h"
#include "kernels/rice_loops.h"

const tg_kernels tg_kernels_neon = {
    .passes = {.all_finite = tg_neon_all_finite,
               .accumulate = tg_neon_accumulate,
               .subtract = tg_neon_subtract,
               .divide = tg_neon_divide,
               .copy = tg_scalar_copy,
               .stream_bytes = tg_scalar_stream_bytes,
               .add = tg_neon_add,
               .hash_leaf = tg_scalar_hash_leaf},
    .halves = {.all_finite = halves_all_finite,
               .fp16_narrow = tg_neon_fp16_narrow,
               .fp16_widen = tg_neon_fp16_widen,
               .fp16_add = tg_neon_fp16_add,
               .bf16_narrow = tg_neon_bf16_narrow,
               .bf16_widen = bf16_widen,
               .bf16_add = bf16_add},
    .select = {.largest_key = tg_neon_largest_key,
               .mark_keys = tg_neon_mark_keys,
               .mark_bin = tg_neon_mark_bin,
               .list_marks = tg_neon_list_marks,
               .compress = compress,
               .expand_add = expand_add,
               .expand_set = expand_set},
    .symbols = {.draw = tg_neon_draw,
                .ternary = tg_neon_ternary,
                .two_sided = tg_neon_two_sided,
                .levels = tg_neon_levels,
                .natural = tg_neon_natural,
                .signs = tg_neon_signs,
                .mark_above = tg_neon_mark_above,
                .count_above = tg_neon_count_above,
                .minifloats = tg_neon_minifloats,
                .round_between = tg_neon_round_between,
                .powers = tg_neon_powers,
                .look_up = tg_neon_look_up,
                .look_up_add = tg_neon_look_up_add},
    .blocks = TG_BLOCK_KERNELS,
    .statistics = {.magnitudes = tg_neon_magnitudes,
                   .squares = tg_neon_squares,
                   .moments = tg_neon_moments,
                   .sums_around = tg_neon_sums_around,
                   .sum_above = tg_neon_sum_above,
                   .ends = tg_neon_ends,
                   .nth = tg_neon_nth,
                   .split = tg_neon_split,
                   .ways_up = tg_neon_ways_up},
    .coders = {.bits_write = tg_neon_bits_write,
               .bits_read = tg_neon_bits_read,
               .numbers_below = tg_neon_numbers_below,
               .count = tg_neon_count,
               .split_words = tg_neon_split_words,
               .join_words = tg_neon_join_words,
               .rans_push = tg_neon_rans_push,
               .rans_pull = tg_neon_rans_pull,
               .prefix_write = prefix_write,
               .prefix_read = prefix_read,
               .rice_read = rice_read,
               .rice_write = rice_write},
    .factors =
        {.multiply = multiply, .multiply_back = multiply_back, .expand = expand, .dots = dots, .project = project},
};
#endif
