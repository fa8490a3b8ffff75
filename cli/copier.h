/* memcpy by several threads: the limit of a machine for work that is shared by as many. */
#ifndef CLI_COPIER_H
#define CLI_COPIER_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_copier cli_copier;

/* With `threads` threads, the calling one included. */
int cli_copier_new(cli_copier **out, uint32_t threads);
void cli_copier_run(cli_copier *c, void *to, const void *from, size_t len);
void cli_copier_free(cli_copier *c);

#endif
