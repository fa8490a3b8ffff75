/* A matrix as the product of two thin factors (PowerSGD). It is never written to a frame: an exchange of its own sends the
 * two factors (exchange/lowrank.c). This file only declares the parameter. */
#include "quantize/quantize.h"

static const tg_param params[] = {
    {.name = "rank",
     .summary = "rank of the approximation: columns of the two factors",
     .lowest = 1,
     .highest = 64,
     .is_whole = true,
     .is_main = true,
     .standard = 4},
};

static const char *exchange(const double *p)
{
    (void)p;
    return "lowrank";
}

const tg_quantize_part tg_quantize_lowrank = {
    .part = {.name = "lowrank",
             .summary = "PowerSGD: matrices as products of two thin factors, with an exchange of its own",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .exchange = exchange,
};
