/* How workers meet between steps: threads of one process at a gate, processes over their link. Worker 0 then knows what the
 * others report, and does what one alone is to do. */
#ifndef TR_MEETING_H
#define TR_MEETING_H

#include "team.h"

/* All workers come; worker 0, who then has all reports, does its work. -1 if any has failed, now or before. Threads wait
 * until the work is done; processes go on, and if it fails, hear of it in what they next say to each other. */
int tr_meet(tr_worker *w, int (*work)(tr_team *t, char why[TR_WHY]));

/* As tr_meet, but every worker also brings bytes, of any length, which worker 0 finds at t->parts. */
int tr_meet_with(tr_worker *w, const void *bytes, size_t len, int (*work)(tr_team *t, char why[TR_WHY]));

/* Processes: len bytes of worker 0 come to all. */
int tr_spread(tr_worker *w, void *bytes, size_t len);

/* A worker has failed in the middle of something that others wait for. */
void tr_give_up(tr_worker *w, const char *why);

#endif
