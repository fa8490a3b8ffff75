/* Progress of long work on stderr, with an estimate of the time left: on a terminal a bar that overwrites itself, elsewhere a
 * plain line every ten seconds. Work may be counted in any unit, as long as a unit takes about the same time.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

/* Work begins, of which `done` is done already. */
void cli_progress_start(double done);

/* Shows how far it is; cheap enough to be called in every step. */
void cli_progress_show(const char *label, double done, double total);

/* The same where the caller knows better how long it takes: `share` of the work is done, and it takes `left` seconds more. */
void cli_progress_show_left(const char *label, double share, double left);

/* Wipes the line, so that what is printed next starts clean. Does nothing if none is shown. */
void cli_progress_clear(void);

#endif
