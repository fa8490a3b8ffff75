/* AdaComp (arXiv 1712.02679): selects in bins of consecutive elements. An element is sent if another step of the same
 * gradient would lift it above the bin's maximum, so the number of entries adapts to the data:
 *
 *     G = residual + gradient g;   H = G + (weight - 1) g
 *     sent if |H| >= max |G| of the bin
 *
 * A bin of zeros sends nothing. An element with G = 0 is never sent. */
#include "select/select.h"

#include "base/half.h"
#include "kernels/kernels.h"

#include <string.h>

enum { BIN = TG_SELECT_OWN, CONV, OTHER, WEIGHT };
enum { BY_KIND = 0, CONV_STANDARD = 50, OTHER_STANDARD = 500 };

static const tg_param params[] = {
    TG_SELECT_SCOPE_PARAM,
    TG_SELECT_COORDS_PARAM,
    {.name = "bin",
     .summary = "elements of a bin; auto: depends on the kind of the tensor",
     .lowest = 1,
     .highest = TG_BIN_MAX,
     .is_whole = true,
     .is_main = true,
     .standard = BY_KIND,
     .word = "auto"},
    {.name = "conv",
     .summary = "with auto: elements of a bin in a convolution",
     .lowest = 1,
     .highest = TG_BIN_MAX,
     .is_whole = true,
     .standard = CONV_STANDARD},
    {.name = "other",
     .summary = "with auto: elements of a bin in any other tensor",
     .lowest = 1,
     .highest = TG_BIN_MAX,
     .is_whole = true,
     .standard = OTHER_STANDARD},
    {.name = "weight",
     .summary = "weight of the gradient in the value that is compared with the bin's largest",
     .lowest = 1,
     .highest = 100,
     .standard = 2},
};

static void resolve(double *p, tg_kind kind)
{
    p[BIN] = p[BIN] != BY_KIND ? p[BIN] : kind == TG_CONV ? p[CONV] : p[OTHER];
    p[CONV] = CONV_STANDARD;
    p[OTHER] = OTHER_STANDARD;
}

static uint64_t most(const double *p, uint64_t n)
{
    (void)p;
    return n;
}

static uint32_t bin(const double *p)
{
    return (uint32_t)p[BIN];
}

static void mark_bins(uint64_t *mask, float *maxima, const double *p, const float *u, const float *g, size_t n)
{
    const tg_kernels *k = tg_kernels_best();
    float more = (float)(p[WEIGHT] - 1.0);
    size_t bin_n = (size_t)p[BIN];
    for (size_t at = 0; at < n; at += bin_n) {
        size_t m = n - at < bin_n ? n - at : bin_n;
        uint32_t largest = k->select.largest_key(u + at, m);
        memcpy(maxima++, &largest, sizeof largest);
        if (largest > 0) {
            k->select.mark_bin(mask, at, u + at, g + at, more, largest, m);
        }
    }
}

const tg_select_part tg_select_adabins = {
    .part = {.name = "adabins",
             .summary = "AdaComp: in every bin, elements that the gradient would lift above the bin's largest",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .by = TG_BY_DATA,
    .most = most,
    .bin = bin,
    .mark_bins = mark_bins,
    .resolve = resolve,
};
