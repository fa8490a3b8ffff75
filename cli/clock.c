/* Time; see clock.h. */
#include "clock.h"

#include <time.h>

static double read(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double cli_clock_now(void)
{
    return read(CLOCK_MONOTONIC);
}

double cli_clock_thread(void)
{
    return read(CLOCK_THREAD_CPUTIME_ID);
}
