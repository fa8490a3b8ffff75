/* The clock of links. */
#ifndef TG_LINK_CLOCK_H
#define TG_LINK_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds, of a clock that never goes back. */
static inline uint64_t tg_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline uint64_t tg_now_ms(void)
{
    return tg_now_ns() / 1000000;
}

/* A time of that clock, for functions that wait until then. */
static inline struct timespec tg_time_of_ms(uint64_t ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000L};
}

#endif
