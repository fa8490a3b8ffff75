/* IEEE half precision, rounded to nearest, ties to even. A finite value stays finite: it saturates at 65504. */
#include "quantize/halves.h"
#include "quantize/quantize.h"

static bool write(uint8_t *bytes, const float *values, size_t n)
{
    return tg_halves_write(bytes, values, TG_FP16, n);
}

static void read(float *values, const uint8_t *bytes, size_t n)
{
    tg_halves_read(values, bytes, TG_FP16, n);
}

static void add(float *sums, const uint8_t *bytes, float weight, size_t n)
{
    tg_halves_add(sums, bytes, TG_FP16, weight, n);
}

const tg_quantize_part tg_quantize_fp16 = {
    .part = {.name = "fp16", .summary = "IEEE half precision: 11 significant bits, up to 65504"},
    .plain_len = 2,
    .wire_dtype = TG_FP16,
    .adds_up = true,
    .write = write,
    .read = read,
    .add = add,
};
