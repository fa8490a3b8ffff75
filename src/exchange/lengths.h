/* Lengths that go ahead of messages. */
#ifndef TG_EXCHANGE_LENGTHS_H
#define TG_EXCHANGE_LENGTHS_H

#include "base/status.h"

#define TG_LENGTH_LEN 5                        /* bytes of a length on its way */
#define TG_LENGTH_MAX (UINT64_C(0xfffffffffd)) /* of a message whose length is announced */
#define TG_LENGTHS_SEAL_LEN 8

/* Announcements of a step, one after the other. */
typedef struct tg_lengths {
    tg_span *sends, *recvs;
    uint8_t *table;    /* rows: what each rank is told, and then what each rank tells */
    uint8_t *out, *in; /* messages */
    uint64_t *told;   /* of each group and rank: the length that the rank has announced for the group's next messages */
    uint32_t *told_n; /* of each group: ranks that have announced one */
    uint64_t number;  /* of the announcement in the step, from 1 */
    uint32_t hop;     /* of those in which rows are handed on */
    bool is_out;      /* an announcement is under way */
} tg_lengths;

/* Takes all memory. The exchange has its lanes. `tg_lengths_close` accepts what this left unfinished. */
tg_status tg_lengths_open(tg_exchange *x, tg_detail *why) TG_CHECKED;
void tg_lengths_close(tg_exchange *x);

/* Forgets the last step. */
void tg_lengths_begin(tg_exchange *x);

/* Continues an announcement, or starts the next one. TG_MORE: perform *op. TG_OK: none is due; groups whose lengths are all known can go
 * on. TG_E_LINK: what came cannot be understood. */
tg_status tg_lengths_next(tg_exchange *x, tg_op *op, tg_detail *why) TG_CHECKED;

/* Operations of an announcement. */
uint32_t tg_lengths_hops(uint32_t world);

#endif
