/* IEEE half precision, to nearest even. A finite value stays finite: beyond 65504 it saturates. */
#include "kernels/kernels.h"
#include "quantize/quantize.h"

static void encode(uint32_t *words, float *decoded, const float *values, size_t n)
{
    tg_narrow_words(words, decoded, values, TG_FP16, n);
}

static void decode(float *values, const uint32_t *words, size_t n)
{
    tg_widen_words(values, words, TG_FP16, n);
}

const tg_quantize_part tg_quantize_fp16 = {
    .part = {.name = "fp16", .summary = "IEEE half precision: 11 significant bits, up to 65504"},
    .plain_len = 2,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
