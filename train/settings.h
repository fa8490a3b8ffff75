/* The settings of a run as text, one line "name value" for each. Processes compare them before a run; a checkpoint stores
 * them. */
#ifndef TR_SETTINGS_H
#define TR_SETTINGS_H

#include "run.h"

#define TR_SETTINGS_CAP 65536 /* enough for hundreds of rules */

void tr_settings_text(char out[TR_SETTINGS_CAP], const tr_settings *s, const tr_data *data);

/* The schedule of local steps as text, such as "1,200:4". */
#define TR_ROUNDS_CAP 1024
void tr_settings_rounds(char out[TR_ROUNDS_CAP], const tr_settings *s);

/* Checks that a run with settings `now` can resume one with settings `saved`. Returns 0, or -1 and an error with both values. */
int tr_settings_compare(const char *saved, const char *now, char why[TR_WHY]);

/* The number of workers in such a text; 0 if it has none. */
uint32_t tr_settings_workers(const char *text);

#endif
