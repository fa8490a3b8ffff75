/* The residual of elements that are all sent. */
#include "routes/dense.h"

void tg_store_residual(tg_encoding *e, const float *u, const float *decoded, uint64_t at, size_t n)
{
    float *next = tg_residual_at(e, at).next;
    bool finite = tg_kernels_best()->passes.subtract(next, u, decoded, n, e->plan->residual_n >= TG_NON_TEMPORAL_FROM);
    e->result->overflows = e->result->overflows || !finite;
    if (e->plan->nonfinite == TG_NONFINITE_PASS) {
        tg_zero_nonfinite(next, n);
    }
}
