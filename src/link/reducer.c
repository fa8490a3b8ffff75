/* The reducer: steps in flight. When all gradients of a group are ready, the group is encoded, sent and checked while the caller
 * computes. docs/steps.md describes a step.
 *
 *     caller                       begin   ready  ready  ready       wait
 *     reducer    opening on channel 0 |  lengths on channels 1-4 |  closing on channel 0, finish
 *                                     |  group 0 on channel 5    |
 *                                     |  group 1 on channel 6    |
 *
 * tg_reducer_pump does all that can be done without waiting. A thread of the reducer calls it, woken by the caller and by the link; or, with
 * a link that does not listen, the caller's own ready, test and wait. With a link that performs one operation at a time, wait does
 * everything. */
#include "link/reducer.h"

#include "link/clock.h"
#include "link/reduce.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

enum { TEST_EVERY_MS = 50 };

/* ---- the thread -------------------------------------------------------------------------------------------------------- */

static void notify(void *context)
{
    tg_reducer *r = context;
    pthread_mutex_lock(&r->lock);
    r->has_news = true;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
}

/* Waits for news, but not longer than until the link should be tested for its timeout. Call with the lock held. */
static void await_news(tg_reducer *r)
{
    struct timespec until = tg_time_of_ms(tg_now_ms() + TEST_EVERY_MS);
    if (r->is_begun && !r->is_ended) {
        (void)pthread_cond_timedwait(&r->news, &r->lock, &until);
    } else {
        (void)pthread_cond_wait(&r->news, &r->lock);
    }
}

static void *run(void *context)
{
    tg_reducer *r = context;
    pthread_mutex_lock(&r->lock);
    while (!r->quits) {
        if (!r->has_news) {
            await_news(r);
        }
        r->has_news = false;
        if (r->is_begun && !r->is_ended && !r->quits) {
            pthread_mutex_unlock(&r->lock);
            (void)tg_reducer_pump(r);
            pthread_mutex_lock(&r->lock);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- making one ---------------------------------------------------------------------------------------------------------- */

static tg_status set_up(tg_reducer *r, tg_detail *why)
{
    const tg_allocator *a = &r->x->allocator;
    size_t tensor_n = r->x->codec->layout->tensor_n;
    TG_TRY(tg_acquire(&r->groups, a, r->x->lane_n, sizeof *r->groups, why));
    TG_TRY(tg_acquire(&r->is_ready, a, tensor_n, sizeof *r->is_ready, why));
    for (size_t t = 0; t < tensor_n; t++) {
        r->groups[tg_exchange_group(r->x, t)].tensor_n++;
    }
    if (r->link->start == NULL || r->link->listen == NULL) {
        return TG_OK;
    }
    if (pthread_create(&r->thread, NULL, run, r) != 0) {
        return tg_fail(TG_E_MEMORY, why, "the system starts no further thread");
    }
    r->has_thread = true;
    r->link->listen(r->link, notify, r);
    return TG_OK;
}

static void release(tg_reducer *r)
{
    tg_allocator a = r->x->allocator;
    pthread_cond_destroy(&r->end);
    pthread_cond_destroy(&r->news);
    pthread_mutex_destroy(&r->lock);
    tg_release(&a, r->is_ready);
    tg_release(&a, r->groups);
    tg_release(&a, r);
}

tg_status tg_reducer_new(tg_reducer **out, tg_exchange *x, tg_link *link, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(x, why);
    TG_NEED(link, why);
    TG_NEED(link->carry, why);
    TG_NEED(link->abort, why);
    if (x->step.phase != TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended; finish or cancel it first", x->step.number);
    }
    if (link->start != NULL && (link->test == NULL || link->channel_n < TG_GROUP_CHANNEL + x->lane_n)) {
        return tg_fail(TG_E_ARGUMENT, why, "the link has `start`, but no `test` or only %u channels; %u are needed",
                       link->channel_n, TG_GROUP_CHANNEL + x->lane_n);
    }
    tg_reducer *r = NULL;
    TG_TRY(tg_acquire(&r, &x->allocator, 1, sizeof *r, why));
    r->x = x;
    x->now = tg_now_ns;
    r->link = link;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&r->news, &attributes);
    pthread_cond_init(&r->end, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&r->lock, NULL);
    tg_status status = set_up(r, why);
    if (status != TG_OK) {
        release(r);
        return status;
    }
    *out = r;
    return TG_OK;
}

void tg_reducer_free(tg_reducer *r)
{
    if (r == NULL) {
        return;
    }
    if (r->has_thread) {
        pthread_mutex_lock(&r->lock);
        r->quits = true;
        pthread_cond_signal(&r->news);
        pthread_mutex_unlock(&r->lock);
        (void)pthread_join(r->thread, NULL);
        r->link->listen(r->link, NULL, NULL);
    }
    if (tg_reducer_is_busy(r)) {
        tg_exchange_cancel(r->x);
        r->link->abort(r->link, "the step was cancelled");
    }
    release(r);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------------ */

tg_status tg_reducer_begin(tg_reducer *r, uint64_t step, void *const *grads, tg_detail *why)
{
    TG_NEED(r, why);
    if (r->is_begun) { /* only the caller's functions change it */
        return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended; wait for it first", r->x->step.number);
    }
    TG_TRY(tg_exchange_begin(r->x, step, grads, why));
    for (uint32_t g = 0; g < r->x->lane_n; g++) {
        r->groups[g].flight = TG_GROUNDED;
        r->groups[g].missing = r->groups[g].tensor_n;
        r->groups[g].ready_ns = 0;
    }
    r->under_way = 0;
    memset(r->is_ready, 0, r->x->codec->layout->tensor_n * sizeof *r->is_ready);
    r->votes = r->is_over = false;
    memset(r->announces, 0, sizeof r->announces);
    r->outcome = (tg_outcome){TG_OK, {""}};
    pthread_mutex_lock(&r->lock);
    r->is_begun = true;
    r->is_ended = r->is_awaited = false;
    r->misuse = (tg_outcome){TG_OK, {""}};
    r->has_news = true;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
    return TG_OK;
}

/* Notes a tensor. Call with the lock held. */
static tg_status note_ready(tg_reducer *r, size_t tensor, tg_detail *why)
{
    const tg_layout *l = r->x->codec->layout;
    if (tensor >= l->tensor_n) {
        return tg_fail(TG_E_ARGUMENT, why, "tensor number %zu was reported ready; there are %zu", tensor, l->tensor_n);
    }
    if (r->is_ready[tensor]) {
        return tg_fail(TG_E_ARGUMENT, why, "tensor '%.150s' was reported ready twice", l->tensors[tensor].name);
    }
    r->is_ready[tensor] = true;
    tg_group_state *group = &r->groups[tg_exchange_group(r->x, tensor)];
    if (--group->missing == 0) {
        group->ready_ns = tg_now_ns();
        r->has_news = true;
        pthread_cond_signal(&r->news);
    }
    return TG_OK;
}

tg_status tg_reducer_ready_all(tg_reducer *r, const size_t *tensors, size_t tensor_n, tg_detail *why)
{
    TG_NEED(r, why);
    TG_NEED(tensors, why);
    if (!r->is_begun) {
        return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
    }
    tg_status status = TG_OK;
    tg_detail reason = {""};
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < tensor_n && status == TG_OK; i++) {
        status = note_ready(r, tensors[i], &reason);
    }
    if (status != TG_OK && r->misuse.status == TG_OK) {
        r->misuse = (tg_outcome){status, reason};
    }
    pthread_mutex_unlock(&r->lock);
    if (!r->has_thread && r->link->start != NULL) {
        (void)tg_reducer_pump(r);
    }
    return status == TG_OK ? TG_OK : tg_fail(status, why, "%s", reason.text);
}

tg_status tg_reducer_ready(tg_reducer *r, size_t tensor, tg_detail *why)
{
    return tg_reducer_ready_all(r, &tensor, 1, why);
}

tg_status tg_reducer_test(tg_reducer *r, tg_detail *why)
{
    TG_NEED(r, why);
    if (!r->is_begun) {
        return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
    }
    if (!r->has_thread && r->link->start != NULL) {
        (void)tg_reducer_pump(r);
    }
    pthread_mutex_lock(&r->lock);
    bool is_ended = r->is_ended;
    pthread_mutex_unlock(&r->lock);
    return is_ended ? TG_OK : TG_MORE;
}

/* A tensor that is not ready when the caller waits will never be. Call with the lock held. */
static void fail_missing(tg_reducer *r)
{
    const tg_layout *l = r->x->codec->layout;
    for (size_t t = 0; t < l->tensor_n && r->misuse.status == TG_OK; t++) {
        if (!r->is_ready[t]) {
            r->misuse.status =
                tg_fail(TG_E_ARGUMENT, &r->misuse.why,
                        "tensor '%.150s' was not reported ready before the step was waited for", l->tensors[t].name);
        }
    }
    r->is_awaited = true;
    r->has_news = true;
    pthread_cond_signal(&r->news);
}

/* Pumps until the step has ended, yielding first and sleeping a little later. */
static void pump_to_the_end(tg_reducer *r)
{
    enum { YIELDS = 300, PAUSE_NS = 30000 };
    for (unsigned idle = 0; !r->is_ended; idle++) {
        const struct timespec pause = {0, PAUSE_NS};
        if (tg_reducer_pump(r)) {
            idle = 0;
        } else if (idle < YIELDS) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&pause, NULL);
        }
    }
}

static void carry_to_the_end(tg_reducer *r)
{
    tg_detail why = {""};
    tg_reducer_heed_misuse(r);
    tg_status status = tg_carry_step(r->x, r->link, &why);
    tg_reducer_end(r, status, &why);
}

tg_status tg_reducer_wait(tg_reducer *r, tg_detail *why)
{
    TG_NEED(r, why);
    if (!r->is_begun) {
        return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
    }
    uint64_t begin = tg_now_ns();
    pthread_mutex_lock(&r->lock);
    fail_missing(r);
    while (r->has_thread && !r->is_ended) {
        (void)pthread_cond_wait(&r->end, &r->lock);
    }
    bool is_ended = r->is_ended;
    pthread_mutex_unlock(&r->lock);
    if (!is_ended && r->link->start != NULL) {
        pump_to_the_end(r);
    } else if (!is_ended) {
        carry_to_the_end(r);
    }
    pthread_mutex_lock(&r->lock);
    r->is_begun = false;
    pthread_mutex_unlock(&r->lock);
    tg_step_expose(r->x, tg_now_ns() - begin);
    return r->outcome.status == TG_OK ? TG_OK : tg_fail(r->outcome.status, why, "%s", r->outcome.why.text);
}
