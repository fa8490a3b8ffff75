/* Ballots: how ranks tell each other that they are well before anything changes. */
#ifndef TG_EXCHANGE_BALLOTS_H
#define TG_EXCHANGE_BALLOTS_H

#include "exchange/exchange.h"

/* What the ballots of a round say. */
typedef enum tg_verdict { TG_ALL_WELL, TG_RANK_FAILED, TG_RANKS_DISAGREE, TG_NOT_A_BALLOT } tg_verdict;

/* Fills in the ballots to all ranks, with this rank's status; `number` for all, or NULL: the length of each rank's message. */
void tg_ballots_cast(tg_exchange *x, const uint64_t *number);

/* The verdict. Every rank sees the same ballots but for their numbers, and so comes to the same one. Of a failed rank,
 * x->step.failed_rank is set; of the last two, the sentence. */
tg_verdict tg_ballots_judge(tg_exchange *x, tg_detail *why);

/* The number on rank p's ballot, which was judged. */
uint64_t tg_ballots_number(const tg_exchange *x, uint32_t p);

/* Spans in which the failed rank sends its reason to all. */
void tg_ballots_ask_reason(tg_exchange *x);

#endif
