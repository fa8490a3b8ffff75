/* Lengths that go ahead of messages. */
#ifndef TG_EXCHANGE_LENGTHS_H
#define TG_EXCHANGE_LENGTHS_H

#include "base/status.h"

#define TG_LENGTH_LEN 5                        /* bytes of a length on its way */
#define TG_LENGTH_MAX (UINT64_C(0xfffffffffd)) /* of a message whose length is announced */
#define TG_LENGTHS_SEAL_LEN 8
#define TG_ANNOUNCEMENT_MAX 4 /* under way at once */

typedef enum tg_announcement_state { TG_UNANNOUNCED, TG_ANNOUNCED, TG_ARRIVED } tg_announcement_state;

/* An announcement on its way. */
typedef struct tg_announcement {
    tg_announcement_state state;
    uint64_t number; /* in the step, from 0 */
    uint32_t hop;    /* of those in which rows are handed on */
    tg_span *sends, *recvs;
    uint8_t *table;    /* rows: what each rank is told, and then what each rank tells */
    uint8_t *out, *in; /* messages */
} tg_announcement;

/* Announcements of a step. Number n is in slot n mod TG_ANNOUNCEMENT_MAX. */
typedef struct tg_lengths {
    tg_announcement slots[TG_ANNOUNCEMENT_MAX];
    uint64_t started, heard; /* how many */
    uint64_t *told;   /* of each group and rank: the length that the rank has announced for the group's next messages */
    uint32_t *told_n; /* of each group: ranks that have announced one */
} tg_lengths;

/* Takes all memory. The exchange has its lanes. `tg_lengths_close` accepts what this left unfinished. */
tg_status tg_lengths_open(tg_exchange *x, tg_detail *why) TG_CHECKED;
void tg_lengths_close(tg_exchange *x);

/* Forgets the last step. */
void tg_lengths_begin(tg_exchange *x);

/* Starts an announcement, if it is time. TG_MORE: perform *op, on the channel of slot *slot. TG_OK: none is due. With `more_to_come`, the
 * caller is about to encode further groups, for which an announcement may wait. */
tg_status tg_lengths_start(tg_exchange *x, uint32_t *slot, tg_op *op, bool more_to_come) TG_CHECKED;

/* Continues an announcement whose operation is done. TG_MORE: perform *op. TG_OK: it is over; groups whose lengths are all known can go on.
 * TG_E_LINK: what came cannot be understood. */
tg_status tg_lengths_next(tg_exchange *x, uint32_t slot, tg_op *op, tg_detail *why) TG_CHECKED;

/* Operations of an announcement. */
uint32_t tg_lengths_hops(uint32_t world);

#endif
