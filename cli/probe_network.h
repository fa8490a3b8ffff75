/* Measures the network between the processes of an MPI job; for `tersegrad probe`. */
#ifndef CLI_PROBE_NETWORK_H
#define CLI_PROBE_NETWORK_H

#include "probe_data.h"
#include "world.h"

/* All processes call it. `seconds` limits the time for each size of message; `tcp` is CPU time of a byte, as in cli_machine. */
int cli_network_measure(cli_network *out, const cli_world *w, double seconds, double tcp);

#endif
