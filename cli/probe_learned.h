/* What LGC costs once codes are sent: a step of two ranks in this thread, timed between operations; for `tersegrad probe`. */
#ifndef CLI_PROBE_LEARNED_H
#define CLI_PROBE_LEARNED_H

#include "probe_workspace.h"

/* Fills in passes and bits of a row, whose recipe, threads and n are set. */
int cli_learned_measure(cli_recipe_cost *row, cli_workspace *w, double seconds);

#endif
