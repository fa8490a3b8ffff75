/* Values as they are. */
#include "quantize/quantize.h"

#include <string.h>

static void encode(uint32_t *symbols, float *decoded, const float *values, size_t n)
{
    memcpy(symbols, values, n * sizeof *symbols);
    memcpy(decoded, values, n * sizeof *decoded);
}

static void decode(float *values, const uint32_t *symbols, size_t n, float scale)
{
    (void)scale;
    memcpy(values, symbols, n * sizeof *values);
}

const tg_quantize_part tg_quantize_fp32 = {
    .part = {.name = "fp32", .summary = "IEEE single precision: nothing is lost"},
    .symbol_bits = 32,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
