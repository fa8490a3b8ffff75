/* A progress line for a person who waits; see progress.h. A pipe or a file never gets one, so logs stay
 * plain. The only state of the program that is not handed around: whether a line is on the terminal.
 */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

static int shown;

void cli_progress_show(const char *label, uint64_t done, uint64_t total)
{
    enum { WIDTH = 24 };
    if (!isatty(STDERR_FILENO) || total == 0) {
        return;
    }
    char bar[WIDTH + 1];
    uint64_t full = (uint64_t)((double)done / (double)total * WIDTH);
    for (uint64_t i = 0; i < WIDTH; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K%s %.120s", bar, label);
    fflush(stderr);
    shown = 1;
}

void cli_progress_clear(void)
{
    if (!shown) {
        return;
    }
    fputs("\r\033[K", stderr);
    fflush(stderr);
    shown = 0;
}
