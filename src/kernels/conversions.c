/* See conversions.h. */
#include "kernels/conversions.h"

#include "kernels/kernels.h"
#include "kernels/range.h"

#include <string.h>

void tg_widen(float *out, const void *src, tg_dtype dtype, size_t n)
{
    if (out == NULL || src == NULL) {
        return;
    }
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *out);
        return;
    }
    const tg_half_kernels *halves = &tg_kernels_best()->halves;
    (dtype == TG_FP16 ? halves->fp16_widen : halves->bf16_widen)(out, src, n);
}

void tg_narrow(void *out, const float *src, tg_dtype dtype, size_t n)
{
    if (out == NULL || src == NULL) {
        return;
    }
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *src);
        return;
    }
    const tg_half_kernels *halves = &tg_kernels_best()->halves;
    (void)(dtype == TG_FP16 ? halves->fp16_narrow : halves->bf16_narrow)(out, src, n);
}

bool tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n, bool non_temporal)
{
    enum { PIECE = 1024 }; /* elements converted at a time, so that the quotients stay in the L1 cache */
    const tg_kernels *k = tg_kernels_best();
    bool finite = true;
    if (dtype == TG_FP32) {
        return k->passes.divide(out, values, divisor, n, non_temporal) || divisor == 1.0f;
    }
    bool (*narrow)(void *, const float *, size_t) = dtype == TG_FP16 ? k->halves.fp16_narrow : k->halves.bf16_narrow;
    for (size_t done = 0; done < n; done += PIECE) {
        float quotients[PIECE];
        size_t m = n - done < PIECE ? n - done : PIECE;
        finite = k->passes.divide(quotients, values + done, divisor, m, false) && finite;
        (void)narrow((char *)out + 2 * done, quotients, m);
    }
    return finite || divisor == 1.0f;
}

void tg_replace_nonfinite(void *out, tg_dtype dtype, const float *values, size_t n)
{
    enum { PIECE = 1024 };
    const size_t len = tg_dtype_len(dtype);
    for (size_t done = 0; done < n; done += PIECE) {
        float old[PIECE];
        size_t m = n - done < PIECE ? n - done : PIECE;
        char *to = (char *)out + done * len;
        tg_widen(old, to, dtype, m);
        for (size_t i = 0; i < m; i++) {
            if (!tg_all_finite(&old[i], 1)) {
                tg_narrow(to + i * len, &values[done + i], dtype, 1);
            }
        }
    }
}
