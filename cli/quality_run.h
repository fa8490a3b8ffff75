/* How well a recipe keeps values: its error, how much of that is bias, and what it costs. */
#ifndef CLI_QUALITY_RUN_H
#define CLI_QUALITY_RUN_H

#include <stddef.h>

#include "tersegrad/tersegrad.h"

enum { CLI_QUALITY_STEPS = 8 }; /* the values are encoded so often, each time with other randomness */

typedef struct cli_quality_row {
    const char *distribution, *recipe;
    size_t place; /* of the recipe among those that were given */
    double nmse;  /* squared error of one step over the energy, mean over the steps; NAN without energy */
    double bias;  /* squared bias over the energy: what the mean of ever more steps would still be off by. An estimate
                   * that is right on average, so about 0, on either side of it, for a recipe without bias */
    double bits;  /* of the frame, for each value */
} cli_quality_row;

/* Misuse if a recipe is not understood, or has feedback: its error is then not that of one step. Reports. */
int cli_quality_check(const char *const *recipes, size_t n);

/* Fills in the numbers for out->recipe on values[0..n), the elements of `tensor` as fp32. Reports. */
int cli_quality_run(cli_quality_row *out, const tg_tensor *tensor, const float *values, size_t n,
                    const tg_options *opt);

#endif
