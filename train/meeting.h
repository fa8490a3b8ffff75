/* Synchronises workers between steps: threads at a barrier, processes over their link. Worker 0 receives the reports of all
 * workers, and does the work that only one of them must do. */
#ifndef TR_MEETING_H
#define TR_MEETING_H

#include "team.h"

/* All workers call this. Worker 0 receives all reports and calls `work`. Returns -1 if any worker has failed, now or before. Threads
 * wait until the work is done. Processes continue, and learn of a failure in their next operation. */
int tr_meet(tr_worker *w, int (*work)(tr_team *t, char why[TR_WHY]));

/* Like tr_meet, but every worker also sends bytes, of any length, which worker 0 receives in t->parts. */
int tr_meet_with(tr_worker *w, const void *bytes, size_t len, int (*work)(tr_team *t, char why[TR_WHY]));

/* Every worker sends a byte to all, which are in `all`, in rank order, afterwards; sends and recvs have room for one span a worker. */
int tr_vote(tr_worker *w, uint8_t *all, uint8_t own, tg_span *sends, tg_span *recvs);

/* Processes only: broadcasts len bytes from worker 0. */
int tr_spread(tr_worker *w, void *bytes, size_t len);

/* Reports that this worker has failed while others wait for it: fails the barrier and aborts the link. */
void tr_give_up(tr_worker *w, const char *why);

#endif
