/* The upper half of a single: its range, 8 significant bits, to nearest even. A finite value stays finite. */
#include "base/bytes.h"
#include "kernels/kernels.h"
#include "quantize/halves.h"
#include "quantize/quantize.h"

static bool write(uint8_t *bytes, const float *values, size_t n)
{
    bool (*narrow)(void *, const float *, size_t) = tg_kernels_best()->halves.bf16_narrow;
    return TG_IS_LITTLE_ENDIAN ? narrow(bytes, values, n) : tg_halves_write(bytes, values, n, narrow);
}

static void read(float *values, const uint8_t *bytes, size_t n)
{
    void (*widen)(float *, const void *, size_t) = tg_kernels_best()->halves.bf16_widen;
    TG_IS_LITTLE_ENDIAN ? widen(values, bytes, n) : tg_halves_read(values, bytes, n, widen);
}

static void add(float *sums, const uint8_t *bytes, float weight, size_t n)
{
    void (*add_halves)(float *, const void *, float, size_t) = tg_kernels_best()->halves.bf16_add;
    TG_IS_LITTLE_ENDIAN ? add_halves(sums, bytes, weight, n) : tg_halves_add(sums, bytes, weight, n, add_halves);
}

const tg_quantize_part tg_quantize_bf16 = {
    .part = {.name = "bf16", .summary = "the upper half of a single: 8 significant bits, its whole range"},
    .plain_len = 2,
    .wire_dtype = TG_BF16,
    .adds_up = true,
    .write = write,
    .read = read,
    .add = add,
};
