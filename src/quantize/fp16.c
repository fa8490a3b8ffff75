/* IEEE half precision, to nearest even. A finite value stays finite: beyond 65504 it saturates. */
#include "base/bytes.h"
#include "kernels/kernels.h"
#include "quantize/halves.h"
#include "quantize/quantize.h"

static bool write(uint8_t *bytes, const float *values, size_t n)
{
    bool (*narrow)(void *, const float *, size_t) = tg_kernels_best()->halves.fp16_narrow;
    return TG_IS_LITTLE_ENDIAN ? narrow(bytes, values, n) : tg_halves_write(bytes, values, n, narrow);
}

static void read(float *values, const uint8_t *bytes, size_t n)
{
    void (*widen)(float *, const void *, size_t) = tg_kernels_best()->halves.fp16_widen;
    TG_IS_LITTLE_ENDIAN ? widen(values, bytes, n) : tg_halves_read(values, bytes, n, widen);
}

static void add(float *sums, const uint8_t *bytes, float weight, size_t n)
{
    void (*add_halves)(float *, const void *, float, size_t) = tg_kernels_best()->halves.fp16_add;
    TG_IS_LITTLE_ENDIAN ? add_halves(sums, bytes, weight, n) : tg_halves_add(sums, bytes, weight, n, add_halves);
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
