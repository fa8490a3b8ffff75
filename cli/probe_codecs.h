/* Measures what recipes cost, on a CPU or a GPU; for `tersegrad probe`. */
#ifndef CLI_PROBE_CODECS_H
#define CLI_PROBE_CODECS_H

#include "probe_workspace.h"

/* Adds a row for each recipe, number of threads and size. A byte is copied in `copy` seconds. */
int cli_costs_measure(cli_costs *out, const cli_measuring *how, double copy, cli_workspace *w);

#endif
