/* A matrix as the product of two thin factors (PowerSGD). It is never written to a frame: an exchange of its own sends the
 * two factors (exchange/lowrank.c). This file only declares the parameters. */
#include "quantize/lowrank.h"
#include "quantize/quantize.h"

/* Not fp16: factors have the scale of gradients, much of which is below its range. */
static const char *const factors_choices[] = {"fp32", "bf16", NULL};

static const tg_param params[TG_LOWRANK_PARAM_N] = {
    [TG_LOWRANK_RANK] = {.name = "rank",
                         .summary = "rank of the approximation: columns of the two factors",
                         .lowest = 1,
                         .highest = 64,
                         .is_whole = true,
                         .is_main = true,
                         .standard = 4},
    [TG_LOWRANK_FACTORS] = {.name = "factors",
                            .summary = "type of the factors on the wire; what rounding loses is in the residual",
                            .choices = factors_choices},
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
             .param_n = TG_LOWRANK_PARAM_N},
    .exchange = exchange,
};
