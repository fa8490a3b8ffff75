/* bfloat16: the upper half of a binary32, rounded to nearest, ties to even. A finite value stays finite: it saturates. */
#include "quantize/halves.h"
#include "quantize/quantize.h"

static bool write(uint8_t *bytes, const float *values, size_t n)
{
    return tg_halves_write(bytes, values, TG_BF16, n);
}

static void read(float *values, const uint8_t *bytes, size_t n)
{
    tg_halves_read(values, bytes, TG_BF16, n);
}

static void add(float *sums, const uint8_t *bytes, float weight, size_t n)
{
    tg_halves_add(sums, bytes, TG_BF16, weight, n);
}

const tg_quantize_part tg_quantize_bf16 = {
    .part = {.name = "bf16", .summary = "bfloat16: 8 significant bits, the range of fp32"},
    .plain_len = 2,
    .wire_dtype = TG_BF16,
    .adds_up = true,
    .write = write,
    .read = read,
    .add = add,
};
