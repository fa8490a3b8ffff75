/* Copies on a GPU; see probe_gpu.h. Messages are copied by the link that exchanges use, over one that carries nothing. */
#include "probe_gpu.h"

#include "clock.h"
#include "fail.h"
#include "probe_parts.h"

enum { ROUNDS = 15, RANKS = 2, SHORT = 64 };

/* Seconds a byte, from times of SHORT bytes and of `len`. Where `len` bytes are too few to be told from SHORT ones, at most so many. */
static double per_byte(double small, double large, size_t len)
{
    return large > small ? (large - small) / (double)(len - SHORT) : large / (double)len;
}

/* ---- a link that carries nothing ----------------------------------------------------------------------------------- */

static tg_status carry_nothing(tg_link *self, const tg_op *op, tg_detail *why)
{
    (void)self;
    (void)op;
    (void)why;
    return TG_OK;
}

static void give_up(tg_link *self, const char *reason)
{
    (void)self;
    (void)reason;
}

/* Seconds until a message of `len` bytes is in host memory, or has come from there to device memory. */
static int time_message(double *out, tg_link *link, cli_workspace *w, int is_down, size_t len)
{
    double rounds[ROUNDS];
    tg_span none[RANKS] = {{NULL, 0}, {NULL, 0}}, message[RANKS] = {{NULL, 0}, {w->sums[0], len}};
    const tg_op op = {.kind = TG_ALLTOALLV,
                      .rank = 0,
                      .world = RANKS,
                      .sends = is_down ? message : none,
                      .recvs = is_down ? none : message};
    tg_detail why = {""};
    tg_status status = TG_OK;
    for (int i = -2; i < ROUNDS && status == TG_OK; i++) { /* the first ones take memory */
        double begin = cli_workspace_now(w, 0);
        status = link->carry(link, &op, &why);
        rounds[i < 0 ? 0 : i] = cli_workspace_now(w, 0) - begin;
    }
    *out = status == TG_OK ? cli_median(rounds, ROUNDS) : 0;
    return status == TG_OK ? w->code : cli_fail_status(NULL, status, &why);
}

static int time_direction(double *byte, double *begin, tg_link *link, cli_workspace *w, int is_down, size_t len)
{
    double small = 0, large = 0;
    int code = time_message(&small, link, w, is_down, SHORT);
    code = code == CLI_OK ? time_message(&large, link, w, is_down, len) : code;
    *begin = small;
    *byte = per_byte(small, large, len);
    return code;
}

/* ---- all ------------------------------------------------------------------------------------------------------------- */

static int time_copy(double *out, cli_workspace *w, size_t len)
{
    double rounds[ROUNDS];
    int code = CLI_OK;
    for (int i = -2; i < ROUNDS && code == CLI_OK; i++) {
        double begin = cli_workspace_now(w, 0);
        code = cli_device_copy(w->device, w->sums[0], w->sums[1], len);
        rounds[i < 0 ? 0 : i] = cli_workspace_now(w, 0) - begin;
        code = code == CLI_OK ? w->code : code;
    }
    *out = cli_median(rounds, ROUNDS);
    return code;
}

int cli_gpu_copies(cli_gpu *out, cli_workspace *w, size_t n)
{
    tg_link inner = {.carry = carry_nothing, .abort = give_up}, *link = NULL;
    size_t len = n * sizeof(float);
    double small = 0, large = 0;
    int code = time_copy(&small, w, SHORT);
    code = code == CLI_OK ? time_copy(&large, w, len) : code;
    out->copy = per_byte(small, large, len);
    code = code == CLI_OK ? cli_device_link_new(&link, w->device, &inner, RANKS) : code;
    code = code == CLI_OK ? time_direction(&out->down, &out->begin_down, link, w, 1, len) : code;
    code = code == CLI_OK ? time_direction(&out->up, &out->begin_up, link, w, 0, len) : code;
    cli_device_link_free(link);
    return code;
}
