/* An emulated slow link; see slow.h. */
#include "slow.h"

#include <math.h>
#include <time.h>

static double seconds_of(const tr_slow *s, const tg_op *op)
{
    double out = 0, in = 0;
    for (uint32_t r = 0; r < op->world; r++) {
        if (s->host_size == 0 || r / s->host_size != op->rank / s->host_size) {
            out += (double)op->sends[r].len;
            in += (double)op->recvs[r].len;
        }
    }
    return out + in > 0 ? s->latency + 8 * fmax(out, in) / s->bits : 0;
}

static void hold_back(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = floor(seconds);
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((seconds - whole) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
        /* interrupted by a signal: the deadline stays */
    }
}

/* The inner link returns when all ranks have met and copied, so all hold back from the same moment on. */
static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    tr_slow *s = (tr_slow *)(void *)self;
    tg_status status = s->inner->carry(s->inner, op, why);
    s->link.sent_len = s->inner->sent_len;
    if (status == TG_OK) {
        hold_back(seconds_of(s, op));
    }
    return status;
}

static void give_up(tg_link *self, const char *reason)
{
    tr_slow *s = (tr_slow *)(void *)self;
    s->inner->abort(s->inner, reason);
}

void tr_slow_init(tr_slow *s, tg_link *inner, double bits, double latency)
{
    *s = (tr_slow){.link = {.carry = carry, .abort = give_up}, .inner = inner, .bits = bits, .latency = latency};
}
