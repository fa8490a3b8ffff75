/* The upper half of a single: its range, 8 significant bits, to nearest even. A finite value stays finite. */
#include "base/half.h"
#include "quantize/quantize.h"

static void encode(uint32_t *words, float *decoded, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half = tg_float_to_bf16(values[i]);
        words[i] = half;
        decoded[i] = tg_bf16_to_float(half);
    }
}

static void decode(float *values, const uint32_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = tg_bf16_to_float((uint16_t)words[i]);
    }
}

const tg_quantize_part tg_quantize_bf16 = {
    .part = {.name = "bf16", .summary = "the upper half of a single: 8 significant bits, its whole range"},
    .plain_len = 2,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
