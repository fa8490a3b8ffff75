/* The upper half of a single: its range, 8 significant bits, to nearest even. A finite value stays finite. */
#include "kernels/kernels.h"
#include "quantize/quantize.h"

static void encode(uint32_t *words, float *decoded, const float *values, size_t n)
{
    tg_narrow_words(words, decoded, values, TG_BF16, n);
}

static void decode(float *values, const uint32_t *words, size_t n)
{
    tg_widen_words(values, words, TG_BF16, n);
}

const tg_quantize_part tg_quantize_bf16 = {
    .part = {.name = "bf16", .summary = "the upper half of a single: 8 significant bits, its whole range"},
    .plain_len = 2,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
