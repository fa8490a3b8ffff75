/* A step that has begun, over a link that performs one operation at a time. */
#ifndef TG_LINK_REDUCE_H
#define TG_LINK_REDUCE_H

#include "base/status.h"

/* Carries out all operations of a step. Aborts the link if other ranks do not know of a failure. */
tg_status tg_carry_step(tg_exchange *x, tg_link *link, tg_detail *why) TG_CHECKED;

#endif
