/* Measures the costs of this machine and of its GPU; for `tersegrad probe`, and for `tersegrad plan` without a probe. */
#ifndef CLI_PROBE_MACHINE_H
#define CLI_PROBE_MACHINE_H

#include "device.h"
#include "probe_data.h"

typedef struct cli_measuring {
    const char *const *recipes; /* canonical */
    size_t recipe_n;
    const uint32_t *threads;
    size_t thread_n;
    const uint64_t *sizes; /* elements */
    size_t size_n;
    double seconds;      /* for each recipe, number of threads and size */
    const float *values; /* gradients to measure on; NULL: synthetic ones */
    size_t value_n;
    const cli_device *device; /* of cli_gpu_measure */
} cli_measuring;

/* Adds to `out` what it costs to copy, to add, to talk, and to encode and decode. */
int cli_machine_measure(cli_machine *out, const cli_measuring *how);

/* The same of a GPU, whatever threads there are: copies in its memory, of messages, and recipes. */
int cli_gpu_measure(cli_gpu *out, const cli_measuring *how);

/* Cores that this process may use. */
uint32_t cli_machine_cores(void);

#endif
