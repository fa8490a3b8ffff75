/* See halves.h. On little-endian CPUs bytes are converted in place, on others through a small buffer. */
#include "quantize/halves.h"

#include "base/bytes.h"
#include "kernels/kernels.h"

enum { PIECE = 1024 }; /* values of that buffer */

bool tg_halves_write(uint8_t *bytes, const float *values, tg_dtype dtype, size_t n)
{
    const tg_kernels *k = tg_kernels_best();
    bool (*narrow)(void *, const float *, size_t) = dtype == TG_FP16 ? k->fp16_narrow : k->bf16_narrow;
    if (TG_IS_LITTLE_ENDIAN) {
        return narrow(bytes, values, n);
    }
    bool finite = true;
    for (size_t done = 0; done < n; done += PIECE) {
        uint16_t halves[PIECE];
        size_t m = n - done < PIECE ? n - done : PIECE;
        finite = narrow(halves, values + done, m) && finite;
        for (size_t i = 0; i < m; i++) {
            tg_put16(bytes + 2 * (done + i), halves[i]);
        }
    }
    return finite;
}

/* Copies the next values to the buffer in the CPU's byte order; returns how many. */
static size_t take(uint16_t halves[PIECE], const uint8_t *bytes, size_t n)
{
    size_t m = n < PIECE ? n : PIECE;
    for (size_t i = 0; i < m; i++) {
        halves[i] = tg_get16(bytes + 2 * i);
    }
    return m;
}

void tg_halves_read(float *values, const uint8_t *bytes, tg_dtype dtype, size_t n)
{
    if (TG_IS_LITTLE_ENDIAN) {
        tg_widen(values, bytes, dtype, n);
        return;
    }
    for (size_t done = 0, m = 0; done < n; done += m) {
        uint16_t halves[PIECE];
        m = take(halves, bytes + 2 * done, n - done);
        tg_widen(values + done, halves, dtype, m);
    }
}

void tg_halves_add(float *sums, const uint8_t *bytes, tg_dtype dtype, float weight, size_t n)
{
    const tg_kernels *k = tg_kernels_best();
    void (*add)(float *, const void *, float, size_t) = dtype == TG_FP16 ? k->fp16_add : k->bf16_add;
    if (TG_IS_LITTLE_ENDIAN) {
        add(sums, bytes, weight, n);
        return;
    }
    for (size_t done = 0, m = 0; done < n; done += m) {
        uint16_t halves[PIECE];
        m = take(halves, bytes + 2 * done, n - done);
        add(sums + done, halves, weight, m);
    }
}
