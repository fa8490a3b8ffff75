/* LGC's two protocols: messages between ranks. exec/lgc.h has the computations. */
#ifndef TG_EXCHANGE_LGC_H
#define TG_EXCHANGE_LGC_H

#include "exchange/exchange.h"
#include "exec/lgc.h"

/* LGC's part of an exchange. */
typedef struct tg_lgc_exchange {
    tg_lgc *lgc;
    uint8_t *out;           /* buffer of the messages of a round */
    const uint8_t **bodies; /* of messages that have arrived, one a rank */
} tg_lgc_exchange;

static inline tg_lgc *tg_lgc_of(const tg_exchange *x)
{
    return ((const tg_lgc_exchange *)x->own)->lgc;
}

/* Types of messages; lgc_message.c describes them. */
typedef enum tg_lgc_topic {
    TG_LGC_LEAD = 1,
    TG_LGC_SLICE,
    TG_LGC_SUM,
    TG_LGC_VALUES,
    TG_LGC_REPORT,
    TG_LGC_ANSWER
} tg_lgc_topic;

#define TG_LGC_HEADER 32

/* Bytes of a message beside its body. */
static inline uint64_t tg_lgc_around(void)
{
    return TG_LGC_HEADER + 8;
}

/* Messages begin at multiples of 16 bytes, so that a device can read whole numbers. */
static inline uint64_t tg_lgc_padded(uint64_t len)
{
    return (len + 15) / 16 * 16;
}

/* ---- lgc_message.c ------------------------------------------------------------------------------------------------- */

/* The largest length of any message, padded. */
uint64_t tg_lgc_message_max(const tg_lgc *l);

/* Completes a message: writes header and hash around its body, body_len bytes at message + TG_LGC_HEADER. */
tg_framed tg_lgc_seal(const tg_exchange *x, uint8_t *message, tg_lgc_topic about, uint32_t slice, uint64_t body_len);

/* The body of rank p's message, at least or, unless it may be longer (LEAD, REPORT), exactly so many bytes. TG_E_FRAME if it is
 * damaged or not the expected message. */
tg_status tg_lgc_open(tg_message *body, const tg_exchange *x, uint32_t p, tg_lgc_topic about, uint64_t len,
                      tg_detail *why);

/* ---- lgc_rounds.c ---------------------------------------------------------------------------------------------------- */

uint32_t tg_lgc_rounds(const tg_exchange *x);
void tg_lgc_shape(tg_exchange *x, uint32_t round);
tg_status tg_lgc_send(tg_exchange *x, uint32_t round, tg_detail *why) TG_CHECKED;
tg_status tg_lgc_receive(tg_exchange *x, uint32_t round, tg_detail *why) TG_CHECKED;

#endif
