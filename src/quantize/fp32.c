/* Values as they are. */
#include "quantize/quantize.h"

#include <string.h>

static void encode(uint32_t *words, float *decoded, const float *values, size_t n)
{
    memcpy(words, values, n * sizeof *words);
    memcpy(decoded, values, n * sizeof *decoded);
}

static void decode(float *values, const uint32_t *words, size_t n)
{
    memcpy(values, words, n * sizeof *values);
}

const tg_quantize_part tg_quantize_fp32 = {
    .part = {.name = "fp32", .summary = "IEEE single precision: nothing is lost"},
    .plain_len = 4,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
