/* The table of kernels for AVX2. Kernels that compilers vectorise well enough are loops of plain C, compiled for AVX2 here. */
#include "kernels/avx2.h"

#if defined(__x86_64__)
#include "kernels/bmi2.h"
#include "kernels/scalar.h"
#define TG_TARGET TG_AVX2
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function" /* some of these loops have versions in avx2_symbols.c */
#include "kernels/bucket_loops.h"
#pragma GCC diagnostic pop

const tg_kernels tg_kernels_avx2 = {
    .passes = {.all_finite = tg_avx2_all_finite,
               .accumulate = tg_avx2_accumulate,
               .subtract = tg_avx2_subtract,
               .copy = tg_avx2_copy,
               .stream_bytes = tg_avx2_stream_bytes,
               .add = tg_avx2_add},
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
               .list_marks = tg_avx2_list_marks},
    .symbols = {.draw = tg_scalar_draw,
                .ternary = ternary,
                .two_sided = two_sided,
                .levels = levels,
                .natural = natural,
                .signs = tg_avx2_signs,
                .mark_above = tg_avx2_mark_above,
                .count_above = tg_avx2_count_above,
                .round_between = round_between,
                .powers = tg_avx2_powers,
                .look_up = tg_avx2_look_up,
                .look_up_add = tg_avx2_look_up_add},
    .statistics = {.magnitudes = magnitudes,
                   .squares = squares,
                   .moments = moments,
                   .sums_around = sums_around,
                   .sum_above = sum_above,
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
               .rice_read = tg_bmi2_rice_read},
};
#endif
