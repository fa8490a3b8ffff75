/* See conversions.h. */
#include "kernels/conversions.h"

#include "kernels/kernels.h"

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

bool tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n)
{
    enum { PIECE = 1024 }; /* elements converted at a time, so that the quotients stay in the L1 cache */
    const tg_kernels *k = tg_kernels_best();
    bool (*narrow)(void *, const float *, size_t) = dtype == TG_FP16 ? k->halves.fp16_narrow : k->halves.bf16_narrow;
    bool finite = true;
    for (size_t done = 0; done < n; done += PIECE) {
        float quotients[PIECE];
        size_t m = n - done < PIECE ? n - done : PIECE;
        for (size_t i = 0; i < m; i++) {
            quotients[i] = values[done + i] / divisor;
        }
        finite = finite && (divisor == 1.0f || k->passes.all_finite(quotients, m));
        if (dtype == TG_FP32) {
            memcpy((char *)out + done * sizeof *quotients, quotients, m * sizeof *quotients);
        } else {
            (void)narrow((char *)out + 2 * done, quotients, m);
        }
    }
    return finite;
}
