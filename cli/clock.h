/* Time, for measurements alone. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

/* Seconds since some moment, by a clock that never goes back. */
double cli_clock_now(void);

/* Seconds that the calling thread has run on a core. */
double cli_clock_thread(void);

#endif
