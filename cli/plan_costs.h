/* The recipes that a plan is about, and what they cost on this machine. */
#ifndef CLI_PLAN_COSTS_H
#define CLI_PLAN_COSTS_H

#include "device.h"
#include "plan_run.h"

/* Makes the rows of a plan: these recipes, which must live as long; n 0: all presets. The caller frees p->rows in any case. */
int cli_plan_list(cli_plan *p, const char *const *recipes, size_t n);

/* Measures all recipes of the plan for a second or two, at the size of the model or near it, on a GPU or on the CPU. */
int cli_plan_measure(cli_probe_data *out, const cli_plan *p, const cli_device *device);

#endif
