/* Who the workers of a run are; see world.h. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* Processes that a launcher of MPI has started beside this one, as it tells them; 0: none has. */
static unsigned long launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL) {
            return strtoul(value, NULL, 10);
        }
    }
    /* Others tell a rank alone. */
    return getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL ? 1 : 0;
}

#ifdef TG_WITH_MPI

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tersegrad/mpi.h"

/* A signal handler can be given nothing, so what it tells of is here. */
static tg_mpi *joined;
static char checkpoint[512];
static volatile sig_atomic_t is_saved;  /* something was saved there */
static double limit;                    /* seconds, as --timeout says */
static volatile sig_atomic_t has_ended; /* the run: MPI ends, too */

void cli_world_saved(void)
{
    is_saved = 1;
}

static size_t append(char *line, size_t len, size_t cap, const char *text)
{
    for (; *text != '\0' && len < cap; text++) {
        line[len++] = *text;
    }
    return len;
}

static size_t append_number(char *line, size_t len, size_t cap, unsigned value)
{
    char digits[12];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return append(line, len, cap, digits + at);
}

/* A launcher ends all processes when one of them dies. They say what they were waiting for, with what may be called here. */
static void on_end(int signal)
{
    char line[800];
    size_t len = append(line, 0, sizeof line, "\ntersegrad: rank ");
    int awaited = tg_mpi_awaited(joined);
    len = append_number(line, len, sizeof line, tg_mpi_rank(joined));
    len = append(line, len, sizeof line, ": ended by its launcher");
    if (awaited >= 0) {
        len = append(line, len, sizeof line, " while it waited for rank ");
        len = append_number(line, len, sizeof line, (unsigned)awaited);
    }
    if (is_saved && checkpoint[0] != '\0') {
        len = append(line, len, sizeof line, "; --resume goes on from ");
        len = append(line, len, sizeof line, checkpoint);
    }
    len = append(line, len, sizeof line, "\n");
    ssize_t written = write(STDERR_FILENO, line, len);
    _exit(written < 0 ? CLI_MISUSE : 128 + signal);
}

/* MPI's own start and end know no time limit, and wait for ever for a process that never calls MPI. An alarm ends them. */
enum { ALARM_SECONDS_MIN = 30 }; /* MPI's start alone may take longer than a short --timeout */

static void on_alarm(int signal)
{
    char line[300];
    size_t len = append(line, 0, sizeof line, "tersegrad: MPI has not ");
    len = append(line, len, sizeof line, has_ended ? "ended" : "started");
    len = append(line, len, sizeof line, " on all processes within --timeout (at least 30 s); ");
    len = append(line, len, sizeof line, "is each of them a program that uses this MPI, and still running?\n");
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)signal;
    _exit(written < 0 ? CLI_MISUSE : CLI_FAILED);
}

static void set_alarm(double seconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    (void)sigaction(SIGALRM, &action, NULL);
    (void)alarm(seconds > ALARM_SECONDS_MIN ? (unsigned)seconds : ALARM_SECONDS_MIN);
}

static int join(cli_world *out, const cli_args *args)
{
    int provided = 0;
    set_alarm(args->timeout);
    int started = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    (void)alarm(0);
    if (started != MPI_SUCCESS) {
        return cli_fail(CLI_FAILED, "MPI cannot be initialised");
    }
    limit = args->timeout;
    tg_detail why = {""};
    if (tg_mpi_new(&joined, MPI_COMM_WORLD, (uint32_t)(args->timeout * 1000), NULL, &why) != TG_OK) {
        (void)cli_fail(CLI_FAILED, "%s", why.text);
        (void)MPI_Abort(MPI_COMM_WORLD, CLI_FAILED);
        return CLI_FAILED;
    }
    *out = (cli_world){tg_mpi_link(joined), tg_mpi_rank(joined), tg_mpi_world(joined)};
    cli_fail_as(out->rank);
    if (args->checkpoint != NULL) {
        (void)snprintf(checkpoint, sizeof checkpoint, "%s", args->checkpoint);
        is_saved = args->resume && access(checkpoint, R_OK) == 0;
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_end;
    (void)sigaction(SIGTERM, &action, NULL);
    if (cli_args_has(args, CLI_FLAG_WORKERS) && args->workers != out->size) {
        if (out->rank == 0) {
            (void)cli_fail(CLI_MISUSE, "--workers is %u, but %u processes were started; leave it out", args->workers,
                           out->size);
        }
        return cli_world_close(out, CLI_MISUSE, 0);
    }
    return CLI_OK;
}

int cli_world_open(cli_world *out, const cli_args *args)
{
    *out = (cli_world){NULL, 0, args->workers};
    int by_mpi = cli_args_has(args, CLI_FLAG_LINK) ? args->link.kind == CLI_LINK_MPI : launched() > 0;
    return by_mpi ? join(out, args) : CLI_OK;
}

int cli_world_close(cli_world *w, int code, int alone)
{
    if (w->link == NULL) {
        return code;
    }
    if (alone) {
        /* Others have their own sentences to say before they are ended. */
        const struct timespec moment = {1, 0};
        (void)signal(SIGTERM, SIG_DFL);
        w->link->abort(w->link, CLI_SAYS_ITSELF);
        (void)nanosleep(&moment, NULL);
        (void)MPI_Abort(MPI_COMM_WORLD, code);
    }
    (void)signal(SIGTERM, SIG_DFL);
    tg_mpi_free(joined);
    joined = NULL;
    w->link = NULL;
    has_ended = 1;
    set_alarm(limit);
    int ended = MPI_Finalize();
    (void)alarm(0);
    return ended == MPI_SUCCESS ? code : CLI_FAILED;
}

#else

void cli_world_saved(void)
{
}

int cli_world_open(cli_world *out, const cli_args *args)
{
    *out = (cli_world){NULL, 0, args->workers};
    int by_mpi = cli_args_has(args, CLI_FLAG_LINK) && args->link.kind == CLI_LINK_MPI;
    if (by_mpi || (!cli_args_has(args, CLI_FLAG_LINK) && launched() > 1)) {
        return cli_fail(CLI_MISUSE, "this program was built without MPI; 'make mpi' builds one with it");
    }
    return CLI_OK;
}

int cli_world_close(cli_world *w, int code, int alone)
{
    (void)w;
    (void)alone;
    return code;
}

#endif
