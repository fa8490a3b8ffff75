/* IEEE half precision, to nearest even. A finite value stays finite: beyond 65504 it saturates. */
#include "base/half.h"
#include "quantize/quantize.h"

static void encode(uint32_t *words, float *decoded, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half = tg_float_to_fp16(values[i]);
        words[i] = half;
        decoded[i] = tg_fp16_to_float(half);
    }
}

static void decode(float *values, const uint32_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = tg_fp16_to_float((uint16_t)words[i]);
    }
}

const tg_quantize_part tg_quantize_fp16 = {
    .part = {.name = "fp16", .summary = "IEEE half precision: 11 significant bits, up to 65504"},
    .plain_len = 2,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
