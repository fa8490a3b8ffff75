/* The settings of a run as text, a line "name value" for each: what processes of one run compare before they begin, and
 * what a saved run remembers. */
#ifndef TR_SETTINGS_H
#define TR_SETTINGS_H

#include "run.h"

#define TR_SETTINGS_CAP 65536 /* room for hundreds of rules */

void tr_settings_text(char out[TR_SETTINGS_CAP], const tr_settings *s, const tr_data *data);

/* Whether a run with settings `now` may go on from one with settings `saved`. 0, or -1 and a sentence with both values. */
int tr_settings_compare(const char *saved, const char *now, char why[TR_WHY]);

/* The number of workers in such a text; 0 if it names none. */
uint32_t tr_settings_workers(const char *text);

#endif
