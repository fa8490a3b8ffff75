/* An emulated slow link; see slow.h. */
#include "slow.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

/* ---- time -------------------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rounded up to nanoseconds, so that who has slept until then does not find it to be in the future. */
static struct timespec time_of(double seconds)
{
    double whole = floor(seconds);
    struct timespec t = {(time_t)whole, (long)((seconds - whole) * 1e9) + 1};
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* ---- the port ---------------------------------------------------------------------------------------------------------- */

/* Bytes to and from ranks of other hosts. */
static void measure(double *out, double *in, const tr_slow *s, const tg_op *op)
{
    *out = *in = 0;
    for (uint32_t r = 0; r < op->world; r++) {
        if (s->host_size == 0 || r / s->host_size != op->rank / s->host_size) {
            *out += (double)op->sends[r].len;
            *in += (double)op->recvs[r].len;
        }
    }
}

/* Sends bytes in one direction, after all that it was given before. Returns when the last one leaves. */
static double occupy(double *is_free, double from, double seconds)
{
    *is_free = fmax(*is_free, from) + seconds;
    return *is_free;
}

/* When bytes that begin to travel now have arrived. */
static double arrival(tr_slow *s, double out, double in)
{
    double from = now();
    if (out + in <= 0) {
        return from;
    }
    double sent = out > 0 ? occupy(&s->out_free, from, 8 * out / s->bits) : from;
    double received = in > 0 ? occupy(&s->in_free, from, 8 * in / s->bits) : from;
    return s->latency + fmax(sent, received);
}

/* ---- one operation at a time --------------------------------------------------------------------------------------------- */

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tr_slow *s = (tr_slow *)(void *)self;
    double out = 0, in = 0;
    measure(&out, &in, s, op);
    tg_status status = s->inner->carry(s->inner, op, why);
    s->link.sent_len = s->inner->sent_len;
    if (status == TG_OK) {
        struct timespec until = time_of(arrival(s, out, in));
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
            /* interrupted by a signal: the deadline stays */
        }
    }
    return status;
}

static void give_up(tg_link *self, const char *reason)
{
    tr_slow *s = (tr_slow *)(void *)self;
    s->inner->abort(s->inner, reason);
}

/* ---- several at once ------------------------------------------------------------------------------------------------------ */

static void set_state(tr_slow *s, tr_slow_channel *c, tr_slow_state state, double due)
{
    pthread_mutex_lock(&s->lock);
    c->state = state;
    c->due = due;
    c->is_told = 0;
    if (state == TR_SLOW_HELD) {
        pthread_cond_signal(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
}

static tg_status start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    tr_slow *s = (tr_slow *)(void *)self;
    if (channel >= s->link.channel_n) {
        if (why != NULL) {
            (void)snprintf(why->text, sizeof why->text, "channel %u does not exist: there are %u", channel,
                           s->link.channel_n);
        }
        return TG_E_ARGUMENT;
    }
    tg_status status = s->inner->start(s->inner, channel, op, why);
    if (status == TG_OK) {
        tr_slow_channel *c = &s->channels[channel];
        measure(&c->out, &c->in, s, op);
        set_state(s, c, TR_SLOW_INNER, 0);
    }
    return status;
}

static tg_status test(tg_link *self, uint32_t channel, tg_detail *why)
{
    tr_slow *s = (tr_slow *)(void *)self;
    if (channel >= s->link.channel_n || s->channels[channel].state == TR_SLOW_IDLE) {
        return s->inner->test(s->inner, channel, why);
    }
    tr_slow_channel *c = &s->channels[channel];
    if (c->state == TR_SLOW_INNER) {
        tg_status status = s->inner->test(s->inner, channel, why);
        if (status != TG_OK) {
            return status;
        }
        s->link.sent_len = s->inner->sent_len;
        set_state(s, c, TR_SLOW_HELD, arrival(s, c->out, c->in));
    }
    if (now() < c->due) {
        return TG_MORE;
    }
    set_state(s, c, TR_SLOW_IDLE, 0);
    return TG_OK;
}

/* ---- the timer ---------------------------------------------------------------------------------------------------------- */

/* The operation that is done next of those that nobody was called for yet; NULL if there is none. Call with the lock held. */
static tr_slow_channel *next_due(tr_slow *s)
{
    tr_slow_channel *next = NULL;
    for (uint32_t i = 0; i < s->link.channel_n; i++) {
        tr_slow_channel *c = &s->channels[i];
        if (c->state == TR_SLOW_HELD && !c->is_told && (next == NULL || c->due < next->due)) {
            next = c;
        }
    }
    return next;
}

static void *timer_main(void *argument)
{
    tr_slow *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->quits) {
        tr_slow_channel *next = next_due(s);
        if (next == NULL) {
            (void)pthread_cond_wait(&s->change, &s->lock);
        } else if (now() < next->due) {
            struct timespec until = time_of(next->due);
            (void)pthread_cond_timedwait(&s->change, &s->lock, &until);
        } else {
            next->is_told = 1;
            pthread_mutex_unlock(&s->lock);
            s->notify(s->context);
            pthread_mutex_lock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void end_timer(tr_slow *s)
{
    if (s->has_timer) {
        pthread_mutex_lock(&s->lock);
        s->quits = 1;
        pthread_cond_signal(&s->change);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->timer, NULL);
        s->has_timer = 0;
    }
}

/* Without a thread for the timer, the link only calls back when the inner one does; who waits for the emulated time must test now and
 * then, as the reducer does. */
static void start_timer(tr_slow *s)
{
    sigset_t all, kept;
    s->quits = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept); /* signals are left to the program's threads */
    s->has_timer = pthread_create(&s->timer, NULL, timer_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
}

static void listen(tg_link *self, void (*notify)(void *context), void *context)
{
    tr_slow *s = (tr_slow *)(void *)self;
    s->inner->listen(s->inner, notify, context);
    end_timer(s);
    s->notify = notify;
    s->context = context;
    if (notify != NULL) {
        start_timer(s);
    }
}

/* ---- the link ------------------------------------------------------------------------------------------------------------ */

void tr_slow_init(tr_slow *s, tg_link *inner, double bits, double latency)
{
    *s = (tr_slow){.link = {.carry = carry, .abort = give_up}, .inner = inner, .bits = bits, .latency = latency};
    if (inner->start != NULL) {
        s->link.start = start;
        s->link.test = test;
        s->link.listen = inner->listen != NULL ? listen : NULL;
        s->link.channel_n = inner->channel_n < TR_SLOW_CHANNELS ? inner->channel_n : TR_SLOW_CHANNELS;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->change, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&s->lock, NULL);
}

void tr_slow_destroy(tr_slow *s)
{
    end_timer(s);
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
}
