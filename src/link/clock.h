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

#endif
