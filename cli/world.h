/* Who the workers of a run are: threads of this process, or the processes that a launcher of MPI has started. */
#ifndef CLI_WORLD_H
#define CLI_WORLD_H

#include "args.h"

typedef struct cli_world {
    tg_link *link; /* NULL: threads */
    uint32_t rank, size;
} cli_world;

/* As --link says, or MPI where a launcher has started this. Of processes, all but rank 0 then keep quiet, except about what
 * they alone know to have failed. */
int cli_world_open(cli_world *out, const cli_args *args);

/* From here on there is a checkpoint to resume from: who is ended by a launcher says so. */
void cli_world_saved(void);

/* What others hear from a worker that has already said what has failed. */
#define CLI_SAYS_ITSELF "has failed, and says why itself"

/* Ends with `code`: if all know of it or all is well, together; if `alone`, by telling the others and ending them. */
int cli_world_close(cli_world *w, int code, int alone);

#endif
