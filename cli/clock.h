/* Time, for measurements alone, and their median. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

#include <stddef.h>

/* Seconds since some moment, by a clock that never goes back. */
double cli_clock_now(void);

/* Seconds that the calling thread has run on a core. */
double cli_clock_thread(void);

/* The median of n > 0 values, which are sorted. */
double cli_median(double *values, size_t n);

#endif
