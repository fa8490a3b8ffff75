/* Progress for a person who waits; see progress.h. A pipe or a file never gets a bar, so logs stay plain. Whether a line is on
 * the terminal, and since when work goes on, is state that is not handed around.
 */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"

static int shown;
static double since, first_done, last_shown;

void cli_progress_start(double done)
{
    since = last_shown = cli_clock_now();
    first_done = done;
}

/* "40 s left", "5 min left"; nothing before there is something to judge by. */
static void describe_left(char *out, size_t cap, double left)
{
    out[0] = '\0';
    if (!isfinite(left) || left < 0) {
        return;
    }
    if (left < 100) {
        (void)snprintf(out, cap, "%.0f s left", left);
    } else if (left < 100 * 60) {
        (void)snprintf(out, cap, "%.0f min left", left / 60);
    } else {
        (void)snprintf(out, cap, "%.1f h left", left / 3600);
    }
}

/* Characters that fit on a line of the terminal, or on most. */
static size_t line_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static void show_bar(const char *text, double share)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    size_t room = line_width(), used = WIDTH + 2;
    for (int i = 0; i < WIDTH; i++) {
        bar[i] = i < (int)(share * WIDTH) ? '#' : '.';
    }
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K%s %.*s", bar, room > used ? (int)(room - used) : 0, text);
    fflush(stderr);
    shown = 1;
}

void cli_progress_show_left(const char *label, double share, double left)
{
    enum { QUIET_SECONDS = 10 };
    int terminal = isatty(STDERR_FILENO);
    double now = cli_clock_now();
    if (since == 0) {
        cli_progress_start(0);
    }
    if (now - last_shown < (terminal ? 0.1 : QUIET_SECONDS)) {
        return;
    }
    char until[48], text[240];
    last_shown = now;
    describe_left(until, sizeof until, left);
    const char *between = until[0] != '\0' ? ", " : "";
    if (terminal) { /* the time first, because the end of a long line does not fit */
        (void)snprintf(text, sizeof text, "%s%s%.180s", until, between, label);
        show_bar(text, share);
    } else {
        fprintf(stderr, "%s%s%s\n", label, between, until);
    }
}

void cli_progress_show(const char *label, double done, double total)
{
    double spent = since == 0 ? 0 : cli_clock_now() - since;
    cli_progress_show_left(label, done / total, spent / (done - first_done) * (total - done));
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
