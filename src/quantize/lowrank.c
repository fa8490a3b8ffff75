/* A matrix as the product of two thin ones (PowerSGD). No codec writes it: what travels are the two factors, by an exchange
 * of their own (exchange/lowrank.c), so this is a name and a number. */
#include "quantize/quantize.h"

static const tg_param params[] = {
    {.name = "rank",
     .summary = "columns of the two factors",
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
             .summary = "matrices as products of two thin ones (PowerSGD), by an exchange of its own",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .exchange = exchange,
};
