/* Outlines: a step of one rank without gradients. A reducer drives an exchange that works on paper (exec/paper.h) over a link that
 * carries nothing: every operation is done as soon as it is started. So protocol, groups, rounds, lengths and votes are decided
 * where they always are.
 *
 * Other ranks are imagined to do the same as this one. So votes and announced lengths, which are read, arrive as they were sent:
 * what this rank sends to p, it receives from p; or, where ranks pass messages on, what it sends to rank + d it receives from
 * rank - d. */
#include "link/reducer.h"

#include "exec/paper.h"
#include "recipe/policy.h"

#include <string.h>

typedef struct outline {
    tg_link link; /* first, so that the link is the outline */
    tg_paper paper;
    const tg_outline_visitor *visitor;
    tg_exchange *x;
    tg_reducer *reducer;
    size_t group; /* that is on its way */
} outline;

/* The group on its way; the number of groups if all are done. */
static size_t group_of(const outline *o)
{
    return o->x->step.phase == TG_FLYING ? o->group : o->x->lane_n;
}

static void note(tg_paper *paper, const tg_work *work)
{
    const outline *o = paper->context;
    o->visitor->work(o->visitor->context, group_of(o), work);
}

/* ---- the link ------------------------------------------------------------------------------------------------------------ */

/* What this rank sends that has the length of what it receives from rank p; NULL if there is none. */
static const tg_span *mirror(const tg_op *op, uint32_t p)
{
    uint32_t opposite = (uint32_t)((2 * (uint64_t)op->rank + op->world - p) % op->world);
    if (op->sends[p].len == op->recvs[p].len) {
        return &op->sends[p];
    }
    return op->sends[opposite].len == op->recvs[p].len ? &op->sends[opposite] : NULL;
}

static tg_status start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    outline *o = (outline *)(void *)self;
    (void)why;
    for (uint32_t p = 0; p < op->world && channel < TG_GROUP_CHANNEL; p++) {
        const tg_span *from = op->recvs[p].len > 0 ? mirror(op, p) : NULL;
        if (from != NULL) {
            memcpy(op->recvs[p].data, from->data, (size_t)from->len);
        }
    }
    if (o->x->step.phase != TG_OPENING) { /* in the first step only */
        tg_talk talk = channel >= TG_GROUP_CHANNEL     ? TG_TALK_MESSAGES
                       : channel == TG_CONTROL_CHANNEL ? TG_TALK_CLOSING
                                                       : TG_TALK_LENGTHS;
        o->visitor->carry(o->visitor->context, group_of(o), talk, op);
    }
    return TG_OK;
}

static tg_status test(tg_link *self, uint32_t channel, tg_detail *why)
{
    (void)self;
    (void)channel;
    (void)why;
    return TG_OK;
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    return start(self, TG_CONTROL_CHANNEL, op, why);
}

static void give_up(tg_link *self, const char *reason)
{
    (void)self;
    (void)reason;
}

/* ---- the step ------------------------------------------------------------------------------------------------------------ */

/* Group after group, as a backward pass would that waits for each. */
static tg_status walk(outline *o, void *const *grads, tg_detail *why)
{
    size_t tensor_n = o->x->codec->layout->tensor_n;
    TG_TRY(tg_reducer_begin(o->reducer, 0, grads, why));
    for (o->group = 0; o->group < o->x->lane_n; o->group++) {
        for (size_t t = 0; t < tensor_n; t++) {
            if (tg_exchange_group(o->x, t) == o->group) {
                TG_TRY(tg_reducer_ready(o->reducer, t, why));
            }
        }
    }
    return tg_reducer_wait(o->reducer, why);
}

static tg_status run(outline *o, tg_outline *out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                     uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why)
{
    void **grads = NULL;
    TG_TRY(tg_exchange_new(&o->x, recipe, tensors, tensor_n, rank, world, opt, why));
    TG_TRY(tg_reducer_new(&o->reducer, o->x, &o->link, why));
    TG_TRY(tg_acquire(&grads, &o->x->allocator, (uint64_t)tensor_n + 1, sizeof *grads, why));
    for (size_t t = 0; t < tensor_n; t++) {
        grads[t] = o; /* something, which nobody reads */
    }
    tg_learning learning;
    tg_exchange_learning(&learning, o->x);
    tg_status status = walk(o, grads, why);
    tg_release(&o->x->allocator, grads);
    if (status == TG_OK) {
        *out = (tg_outline){.groups = o->x->lane_n,
                            .residual_len = o->paper.residual_len,
                            .is_exact = o->paper.is_exact,
                            .phase = learning.phase};
        (void)strncpy(out->exchange, tg_exchange_name(o->x), sizeof out->exchange - 1);
    }
    return status;
}

tg_status tg_exchange_outline(tg_outline *out, const tg_outline_visitor *visitor, const char *recipe,
                              const tg_tensor *tensors, size_t tensor_n, uint32_t rank, uint32_t world,
                              const tg_options *opt, const double *bits, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(visitor, why);
    TG_NEED(visitor->work, why);
    TG_NEED(visitor->carry, why);
    tg_options own;
    TG_TRY(tg_options_read(&own, opt, why));
    if (own.device != NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "an outline needs no device: it has no gradients");
    }
    outline o = {.link = {.carry = carry,
                          .abort = give_up,
                          .start = start,
                          .test = test,
                          .channel_n = TG_GROUP_CHANNEL + TG_GROUP_MAX},
                 .visitor = visitor};
    tg_paper_begin(&o.paper);
    o.paper.note = note;
    o.paper.context = &o;
    o.paper.bits = bits;
    own.device = &o.paper.device;
    own.verify_every = 0;
    tg_status status = run(&o, out, recipe, tensors, tensor_n, rank, world, &own, why);
    tg_reducer_free(o.reducer);
    tg_exchange_free(o.x);
    tg_paper_end(&o.paper);
    return status;
}
