/* All elements whose magnitude is at least T. */
#include "kernels/kernels.h"
#include "select/select.h"

#include <float.h>

enum { T = TG_SELECT_OWN };

static const tg_param params[] = {
    TG_SELECT_SCOPE_PARAM,
    TG_SELECT_COORDS_PARAM,
    {.name = "T",
     .summary = "smallest magnitude that is sent",
     .lowest = 0,
     .highest = FLT_MAX,
     .required = true,
     .is_main = true},
};

static uint64_t most(const double *p, uint64_t n)
{
    (void)p;
    return n;
}

static void mark(uint64_t *mask, const void *scratch, const double *p, uint64_t at, const float *u, size_t n)
{
    (void)scratch;
    (void)at;
    uint32_t least = tg_magnitude_key((float)p[T]);
    tg_kernels_best()->select.mark_keys(mask, u, least, n);
}

const tg_select_part tg_select_threshold = {
    .part = {.name = "threshold",
             .summary = "all elements whose magnitude is at least T",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .by = TG_BY_DATA,
    .most = most,
    .mark = mark,
};
