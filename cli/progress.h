/* One line of progress on stderr that overwrites itself, on a terminal alone; elsewhere nothing. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

/* Shows "label  done/total" as a bar; cheap enough to be called in every step. */
void cli_progress_show(const char *label, uint64_t done, uint64_t total);

/* Wipes the line, so that what is printed next starts clean. Does nothing if none is shown. */
void cli_progress_clear(void);

#endif
