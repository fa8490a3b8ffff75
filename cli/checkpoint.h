/* The checkpoint of a training run, as a file. It survives a kill at any moment: each save writes a new file, syncs it and renames
 * it. It records how long the log was, so that a resumed run can cut off what was logged after it. */
#ifndef CLI_CHECKPOINT_H
#define CLI_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#define CLI_NO_LOG UINT64_MAX /* length of the log of a run that keeps none */

typedef struct cli_checkpoint {
    uint8_t *run; /* what tr_hooks.save was given, to be freed; NULL: nothing was saved yet */
    size_t run_len;
    uint64_t log_len; /* bytes, or CLI_NO_LOG */
} cli_checkpoint;

/* Before a run begins: refuses a path that is neither a regular file nor free, without opening it, and removes temporary files that
 * killed runs with the same checkpoint have left behind. A symbolic link to a regular file or to nothing is followed. Reports. */
int cli_checkpoint_prepare(const char *path);

/* Reads the checkpoint, if there is one. All its bytes are under its checksum. Reports. */
int cli_checkpoint_read(cli_checkpoint *out, const char *path);

/* Writes the checkpoint, all of it or nothing. Reports. */
int cli_checkpoint_write(const char *path, const cli_checkpoint *c);

#endif
