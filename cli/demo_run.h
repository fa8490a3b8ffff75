/* A synthetic model's gradients through the exchange, with one thread per worker. While it runs it holds two
 * promises: all workers end with the same bits, and the bytes that are reported are those that the link
 * carried. Either one broken is a failure.
 */
#ifndef CLI_DEMO_RUN_H
#define CLI_DEMO_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "tersegrad/tersegrad.h"

typedef struct cli_demo_run cli_demo_run;

/* What a recipe did. */
typedef struct cli_demo_outcome {
    const char *recipe;
    char canonical[TG_RECIPE_CAP]; /* by which the largest tensor travels */
    char exchange[32];
    double bytes; /* that a worker sends per step, on average */
    double payload;
    double dense;
    double step_nmse, sum_nmse;
    double seconds;
} cli_demo_outcome;

/* `workers` is at most CLI_WORKER_MAX. */
int cli_demo_run_new(cli_demo_run **out, uint32_t workers, uint64_t step_n, uint64_t seed);
void cli_demo_run_free(cli_demo_run *d);

/* All steps with one recipe, from the same start and with the same gradients each time; the recipe number `at` of
 * recipe_n, for the progress line. */
int cli_demo_run_recipe(cli_demo_outcome *out, cli_demo_run *d, const char *recipe, size_t at, size_t recipe_n);

size_t cli_demo_run_tensors(const cli_demo_run *d);
uint64_t cli_demo_run_elements(const cli_demo_run *d);

#endif
