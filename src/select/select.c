/* What several select parts use. */
#include "select/select.h"

#include <math.h>

const char *const tg_scope_choices[] = {"tensor", "model", NULL};
const char *const tg_coords_choices[] = {"own", "shared", NULL};
const char *const tg_coords_auto_choices[] = {"own", "shared", "auto", NULL};
const char *const tg_no_yes_choices[] = {"no", "yes", NULL};

uint64_t tg_ratio_entries(double ratio, uint64_t n)
{
    if (n == 0) {
        return 0;
    }
    double entries = floor(ratio * (double)n + 0.5);
    if (entries < 1.0) {
        return 1;
    }
    return entries >= (double)n ? n : (uint64_t)entries;
}

uint64_t tg_ratio_most(const double *p, uint64_t n)
{
    return tg_ratio_entries(p[TG_SELECT_RATIO], n);
}

double tg_unbiased_gain(const double *p, uint64_t n)
{
    return p[TG_SELECT_UNBIASED] != 0.0 && n > 0 ? (double)n / (double)tg_ratio_most(p, n) : 1.0;
}
