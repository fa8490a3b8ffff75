/* What copies cost on a GPU; for `tersegrad probe`. */
#ifndef CLI_PROBE_GPU_H
#define CLI_PROBE_GPU_H

#include "probe_workspace.h"

/* Sets all of `out` but its kind and costs. Uses the room's sums, of n elements each. */
int cli_gpu_copies(cli_gpu *out, cli_workspace *w, size_t n);

#endif
