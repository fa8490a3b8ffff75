/* The tensors of the model that `tersegrad plan` is about: a built-in model, a file of shapes, or a number of parameters. */
#ifndef CLI_PLAN_MODEL_H
#define CLI_PLAN_MODEL_H

#include "args.h"
#include "shapes.h"

/* As --model, --shapes and --params say; exactly one of them. Free `out` (cli_shapes_free) in any case. */
int cli_plan_model(cli_shapes *out, const cli_args *args);

/* Seconds of a step of a built-in model on one core, and of its backward pass, by training a few of them. */
int cli_plan_compute(double *compute, double *backward, const char *name, size_t batch_n);

#endif
