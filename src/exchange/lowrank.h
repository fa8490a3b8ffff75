/* The exchange of PowerSGD; see lowrank.c. It stands behind the functions of an exchange whose recipe asks for it. */
#ifndef TG_EXCHANGE_LOWRANK_H
#define TG_EXCHANGE_LOWRANK_H

#include "exchange/exchange.h"

/* Takes over the tensors and recipes of x->codec's layout. */
tg_status tg_lowrank_new(tg_lowrank **out, const tg_exchange *x, const tg_options *opt, tg_detail *why) TG_CHECKED;
void tg_lowrank_free(tg_lowrank *l);

/* As tg_exchange_begin and so on; with a status other than TG_OK the step only tells the others of it, and its reason. */
tg_status tg_lowrank_begin(tg_lowrank *l, uint64_t step, void *const *grads, tg_status status, const tg_detail *reason,
                           tg_detail *why) TG_CHECKED;
tg_status tg_lowrank_next(tg_lowrank *l, tg_op *op, tg_detail *why) TG_CHECKED;
void tg_lowrank_cancel(tg_lowrank *l);
void tg_lowrank_meter(const tg_lowrank *l, tg_meter *last, tg_meter *total);

#endif
