/* Values unchanged. */
#include "quantize/quantize.h"

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/kernels.h"

#include <string.h>

enum { PIECE = 1024 }; /* values copied at a time, where bytes cannot be used in place */

static bool write(uint8_t *bytes, const float *values, size_t n)
{
    if (TG_IS_LITTLE_ENDIAN) {
        memcpy(bytes, values, n * sizeof *values);
    }
    for (size_t i = 0; !TG_IS_LITTLE_ENDIAN && i < n; i++) {
        tg_put32(bytes + 4 * i, tg_float_bits(values[i]));
    }
    return tg_all_finite(values, n);
}

static void read(float *values, const uint8_t *bytes, size_t n)
{
    if (TG_IS_LITTLE_ENDIAN) {
        memcpy(values, bytes, n * sizeof *values);
    }
    for (size_t i = 0; !TG_IS_LITTLE_ENDIAN && i < n; i++) {
        values[i] = tg_bits_float(tg_get32(bytes + 4 * i));
    }
}

static void add(float *sums, const uint8_t *bytes, float weight, size_t n)
{
    if (TG_IS_LITTLE_ENDIAN && (uintptr_t)bytes % sizeof(float) == 0) {
        tg_kernels_best()->passes.add(sums, (const float *)(const void *)bytes, weight, n);
        return;
    }
    for (size_t done = 0; done < n; done += PIECE) {
        float values[PIECE];
        size_t m = n - done < PIECE ? n - done : PIECE;
        read(values, bytes + 4 * done, m);
        tg_kernels_best()->passes.add(sums + done, values, weight, m);
    }
}

const tg_quantize_part tg_quantize_fp32 = {
    .part = {.name = "fp32", .summary = "IEEE single precision: no loss"},
    .plain_len = 4,
    .adds_up = true,
    .write = write,
    .read = read,
    .add = add,
};
