/* Threads link: ranks are threads of one process. This file has the hub, and callbacks; threads_carry.c carries out operations. */
#include "link/threads.h"

#include "link/clock.h"

#include <signal.h>
#include <time.h>

/* ---- callbacks --------------------------------------------------------------------------------------------------------- */

void tg_threads_notify_due(tg_threads *hub)
{
    while (hub->due != NULL) {
        tg_threads_end *e = hub->due;
        void (*notify)(void *) = e->notify; /* does not change while calls > 0 */
        void *context = e->context;
        hub->due = e->next_due;
        e->is_due = false;
        pthread_mutex_unlock(&hub->lock);
        notify(context);
        pthread_mutex_lock(&hub->lock);
        if (--e->calls == 0) {
            pthread_cond_broadcast(&e->wake);
        }
    }
}

static void check_listeners(tg_threads *hub)
{
    for (uint32_t r = 0; r < hub->world; r++) {
        for (uint32_t c = 0; hub->ends[r].listens && c < TG_THREADS_CHANNELS; c++) {
            tg_threads_check_timeout(hub, c, r);
        }
    }
}

static void *watch_main(void *argument)
{
    enum { PERIOD_MAX_MS = 250 };
    tg_threads *hub = argument;
    uint32_t period = hub->timeout_ms / 8 + 1;
    period = period < PERIOD_MAX_MS ? period : PERIOD_MAX_MS;
    pthread_mutex_lock(&hub->lock);
    while (!hub->watch_ends) {
        if (hub->listener_n == 0 || hub->failed) {
            pthread_cond_wait(&hub->watch_wake, &hub->lock);
            continue;
        }
        struct timespec until = tg_time_of_ms(tg_now_ms() + period);
        (void)pthread_cond_timedwait(&hub->watch_wake, &hub->lock, &until);
        check_listeners(hub);
        tg_threads_notify_due(hub);
    }
    pthread_mutex_unlock(&hub->lock);
    return NULL;
}

/* If the thread cannot be created, timeouts are noticed in `test` alone. Signals are left to the program's threads. */
static void start_watch(tg_threads *hub)
{
    sigset_t all, kept;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    hub->watch_runs = pthread_create(&hub->watch, NULL, watch_main, hub) == 0;
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
}

static void set_listener(tg_link *self, void (*notify)(void *context), void *context)
{
    tg_threads_end *e = (tg_threads_end *)(void *)self;
    tg_threads *hub = e->hub;
    pthread_mutex_lock(&hub->lock);
    if (e->listens) {
        e->listens = false;
        hub->listener_n--;
    }
    while (e->calls > 0) {
        pthread_cond_wait(&e->wake, &hub->lock);
    }
    e->notify = notify;
    e->context = context;
    if (notify != NULL) {
        e->listens = true;
        hub->listener_n++;
        if (!hub->watch_runs) {
            start_watch(hub);
        }
        pthread_cond_signal(&hub->watch_wake);
    }
    pthread_mutex_unlock(&hub->lock);
}

/* ---- the hub --------------------------------------------------------------------------------------------------------------- */

static void init_conditions(tg_threads *hub)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&hub->watch_wake, &attributes);
    for (uint32_t r = 0; r < hub->world; r++) {
        pthread_cond_init(&hub->ends[r].wake, &attributes);
    }
    pthread_condattr_destroy(&attributes);
}

tg_status tg_threads_new(tg_threads **out, uint32_t world, uint32_t timeout_ms, const tg_allocator *allocator,
                         tg_detail *why)
{
    TG_NEED(out, why);
    TG_TRY(tg_allocator_check(allocator, why));
    if (world == 0) {
        return tg_fail(TG_E_ARGUMENT, why, "a world has at least one rank");
    }
    tg_allocator a = tg_allocator_or_standard(allocator);
    tg_threads *hub = NULL;
    tg_threads_end *ends = NULL;
    tg_threads_slot *slots = NULL;
    tg_status status = tg_acquire(&ends, &a, world, sizeof *ends, why);
    if (status == TG_OK) {
        status = tg_acquire(&slots, &a, (uint64_t)world * TG_THREADS_CHANNELS, sizeof *slots, why);
    }
    if (status == TG_OK) {
        status = tg_acquire(&hub, &a, 1, sizeof *hub, why);
    }
    if (status != TG_OK) {
        tg_release(&a, slots);
        tg_release(&a, ends);
        return status;
    }
    *hub = (tg_threads){.allocator = a, .world = world, .timeout_ms = timeout_ms, .ends = ends, .slots = slots};
    const tg_link link = {.carry = tg_threads_carry,
                          .abort = tg_threads_abort,
                          .start = tg_threads_start,
                          .test = tg_threads_test,
                          .listen = set_listener,
                          .channel_n = TG_THREADS_CHANNELS};
    for (uint32_t r = 0; r < world; r++) {
        ends[r] = (tg_threads_end){.link = link, .hub = hub, .rank = r};
    }
    init_conditions(hub);
    pthread_mutex_init(&hub->lock, NULL);
    *out = hub;
    return TG_OK;
}

tg_link *tg_threads_link(tg_threads *hub, uint32_t rank)
{
    return hub != NULL && rank < hub->world ? &hub->ends[rank].link : NULL;
}

void tg_threads_free(tg_threads *hub)
{
    if (hub == NULL) {
        return;
    }
    if (hub->watch_runs) {
        pthread_mutex_lock(&hub->lock);
        hub->watch_ends = true;
        pthread_cond_signal(&hub->watch_wake);
        pthread_mutex_unlock(&hub->lock);
        pthread_join(hub->watch, NULL);
    }
    pthread_mutex_destroy(&hub->lock);
    pthread_cond_destroy(&hub->watch_wake);
    for (uint32_t r = 0; r < hub->world; r++) {
        pthread_cond_destroy(&hub->ends[r].wake);
    }
    tg_allocator a = hub->allocator;
    tg_release(&a, hub->slots);
    tg_release(&a, hub->ends);
    tg_release(&a, hub);
}
