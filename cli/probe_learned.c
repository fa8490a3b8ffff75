/* Costs of LGC; see probe_learned.h. Two exchanges learn for one step, and then send codes. What a rank computes between two
 * operations is one pass, or a few that always come together. The rounds are those of exchange/lgc.c. */
#include "probe_learned.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "probe_parts.h"

enum { RANKS = 2, LAPS = 8, ROUND_MAX = 100, ROUND_MIN = 4, FIRST = 2 };

/* Calls of tg_exchange_next in a step: each round has an operation for lengths and one for messages; then there is the vote. */
enum { LAP_LEAD = 0, LAP_FOLLOW = 2, LAP_SERVE = 4, LAP_TAKE = 6, LAP_FINISH = 7 };

/* The recipe with the shortest phases before codes are sent. */
static void shorten_phases(char *out, size_t cap, const char *recipe)
{
    static const char *const left_out[] = {"dense=", "learn=", "enough="};
    static const char name[] = "autoencoder";
    const char *part = strstr(recipe, name), *end = part + strcspn(part, "+");
    size_t len = (size_t)(part - recipe) + sizeof name - 1;
    char separator = '@';
    snprintf(out, cap, "%.*s", (int)len, recipe);
    for (const char *at = part + sizeof name - 1; at < end;) {
        size_t item_len = strcspn(at + 1, ",+");
        int is_kept = 1;
        for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
            is_kept = is_kept && strncmp(at + 1, left_out[i], strlen(left_out[i])) != 0;
        }
        if (is_kept && len < cap) {
            len += (size_t)snprintf(out + len, cap - len, "%c%.*s", separator, (int)item_len, at + 1);
            separator = ',';
        }
        at += 1 + item_len;
    }
    if (len < cap) {
        snprintf(out + len, cap - len, "%cdense=0,learn=1,enough=1e9%s", separator, end);
    }
}

/* ---- sizes --------------------------------------------------------------------------------------------------------- */

/* What rank 0, which leads, does by the outline: the size of each pass; and bytes of its message to rank 1 beside indices. */
typedef struct sizes {
    double elements[TG_PASS_N], chunks[TG_PASS_N];
    double lead_len;
} sizes;

static void on_work(void *context, size_t group, const tg_work *work)
{
    sizes *s = context;
    (void)group;
    if (work->elements > 0) {
        s->elements[work->pass] = (double)work->elements;
        s->chunks[work->pass] = (double)work->chunks;
    }
}

static void on_carry(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    sizes *s = context;
    (void)group;
    if (talk == TG_TALK_MESSAGES && op->kind == TG_BROADCAST && s->lead_len == 0) {
        s->lead_len = (double)op->sends[1].len;
    }
}

/* *out must be zero. */
static int find_sizes(sizes *out, const char *recipe, const cli_tensors *t)
{
    static const double no_bits[CLI_TENSOR_MAX];
    const tg_outline_visitor visitor = {on_work, on_carry, out};
    tg_detail why = {""};
    tg_outline o;
    tg_status status = tg_exchange_outline(&o, &visitor, recipe, t->of, t->tensor_n, 0, RANKS, NULL, no_bits, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(recipe, status, &why);
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    tg_exchange *ranks[RANKS];
    void *grads[RANKS][CLI_TENSOR_MAX];
    const cli_tensors *tensors;
    cli_workspace *workspace;
    uint32_t threads;
    double laps[RANKS][LAPS]; /* of the last step */
    double lead_len;
} pair;

static int fail(tg_status status, const tg_detail *why)
{
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, why);
}

static int open_pair(pair *p, const char *recipe)
{
    char shortened[2 * TG_RECIPE_CAP];
    tg_options opt = TG_OPTIONS_INIT;
    tg_detail why = {""};
    tg_status status = TG_OK;
    shorten_phases(shortened, sizeof shortened, recipe);
    opt.threads = p->threads;
    opt.has_seed = 1;
    opt.device = p->workspace->device->gpu;
    for (uint32_t r = 0; r < RANKS && status == TG_OK; r++) {
        cli_tensors_place(p->grads[r], p->tensors, p->workspace->sums[r]);
        status = tg_exchange_new(&p->ranks[r], shortened, p->tensors->of, p->tensors->tensor_n, r, RANKS, &opt, &why);
    }
    return fail(status, &why);
}

static void close_pair(const pair *p)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        tg_exchange_free(p->ranks[r]);
    }
}

/* Messages from rank to rank, to their own, too. */
static int carry(const pair *p, const tg_op ops[RANKS])
{
    int code = CLI_OK;
    for (uint32_t from = 0; from < RANKS; from++) {
        for (uint32_t to = 0; to < RANKS && code == CLI_OK; to++) {
            const tg_span *out = &ops[from].sends[to], *in = &ops[to].recvs[from];
            if (out->len > 0 && in->len == out->len) {
                code = cli_device_copy(p->workspace->device, in->data, out->data, (size_t)out->len);
            }
        }
    }
    return code == CLI_OK ? cli_device_wait(p->workspace->device) : code;
}

/* Lets both ranks come to their next operation. *more: there is one. */
static int lap(pair *p, tg_op ops[RANKS], size_t number, int *more)
{
    tg_detail why = {""};
    for (uint32_t r = 0; r < RANKS; r++) {
        double begin = cli_workspace_now(p->workspace, p->threads);
        tg_status status = tg_exchange_next(p->ranks[r], &ops[r], &why);
        if (number < LAPS) {
            p->laps[r][number] = cli_workspace_now(p->workspace, p->threads) - begin;
        }
        if (status < 0) {
            return fail(status, &why);
        }
        *more = status == TG_MORE;
    }
    return p->workspace->code;
}

static int step(pair *p, uint64_t number)
{
    tg_detail why = {""};
    int code = CLI_OK, more = 1;
    for (uint32_t r = 0; r < RANKS && code == CLI_OK; r++) {
        const float *values = cli_workspace_gradients(p->workspace, p->tensors, number + 3 * r);
        code = cli_device_copy(p->workspace->device, p->workspace->sums[r], values, p->tensors->n * sizeof *values);
        code = code == CLI_OK ? fail(tg_exchange_begin(p->ranks[r], number, p->grads[r], &why), &why) : code;
    }
    for (size_t i = 0; more && code == CLI_OK; i++) {
        tg_op ops[RANKS];
        code = lap(p, ops, i, &more);
        if (code == CLI_OK && more && ops[0].kind == TG_BROADCAST && i == LAP_LEAD + 1) {
            p->lead_len = (double)ops[number % RANKS].sends[(number + 1) % RANKS].len;
        }
        code = code == CLI_OK && more ? carry(p, ops) : code;
        if (code == CLI_OK && number > 0 && more != (i + 1 < LAPS)) { /* the first step has another vote */
            return cli_fail(CLI_FAILED, "a step of LGC has other rounds than were expected");
        }
    }
    return code;
}

/* ---- passes -------------------------------------------------------------------------------------------------------- */

enum { LOAD, LEAD, FOLLOW, DECODE, FINISH, PART_N };
static const tg_pass passes[PART_N] = {TG_PASS_ENCODE, TG_PASS_LEAD, TG_PASS_FOLLOW, TG_PASS_DECODE, TG_PASS_COPY};

/* A ring's codes are decoded by every rank; a server decodes those of all ranks. */
static void take_laps(double *parts[PART_N], size_t round, const pair *p, uint32_t leader, int is_server)
{
    parts[LOAD][round] = p->laps[1 - leader][LAP_LEAD];
    parts[LEAD][round] = fmax(0, p->laps[leader][LAP_LEAD] - p->laps[1 - leader][LAP_LEAD]);
    parts[FOLLOW][round] = p->laps[1 - leader][LAP_FOLLOW];
    parts[DECODE][round] = is_server ? p->laps[0][LAP_SERVE] / RANKS : p->laps[1][LAP_TAKE];
    parts[FINISH][round] = p->laps[1][LAP_FINISH];
}

/* Seconds of each part on a set of tensors; *mask_len: bytes of indices. */
static int time_parts(double out[PART_N], double *mask_len, const sizes *s, const cli_recipe_cost *row,
                      const cli_tensors *t, cli_workspace *w, double seconds)
{
    static double rounds[PART_N][ROUND_MAX];
    double *parts[PART_N] = {rounds[LOAD], rounds[LEAD], rounds[FOLLOW], rounds[DECODE], rounds[FINISH]};
    int is_server = strstr(row->recipe, "autoencoder@server") != NULL;
    pair p = {.tensors = t, .workspace = w, .threads = row->threads};
    double begin = cli_clock_now(), lead_len = 0;
    size_t n = 0;
    int code = open_pair(&p, row->recipe);
    for (uint64_t number = 0; code == CLI_OK && n < ROUND_MAX; number++) {
        if (n >= ROUND_MIN && cli_clock_now() - begin > seconds) {
            break;
        }
        code = step(&p, number);
        if (number >= FIRST) {
            take_laps(parts, n++, &p, (uint32_t)(number % RANKS), is_server);
            lead_len += p.lead_len;
        }
    }
    close_pair(&p);
    for (int i = 0; i < PART_N && code == CLI_OK; i++) {
        out[i] = cli_median(parts[i], n);
    }
    *mask_len = code == CLI_OK ? fmax(0, lead_len / (double)n - s->lead_len) : 0;
    return code;
}

/* A code is decoded in one piece, so what that costs is told by its length alone. */
static cli_pass_cost cost_of(int part, const double lo[PART_N], const sizes *so, const double sh[PART_N],
                             const sizes *ss, double tiny)
{
    tg_pass pass = passes[part];
    if (part == DECODE) {
        return (cli_pass_cost){.element = fmax(0, lo[part] - tiny) / so->elements[pass], .call = tiny};
    }
    return cli_pass_cost_solve((cli_size){so->elements[pass], so->chunks[pass], lo[part]},
                               (cli_size){ss->elements[pass], ss->chunks[pass], sh[part]}, tiny);
}

int cli_learned_measure(cli_recipe_cost *row, cli_workspace *w, double seconds)
{
    static cli_tensors lo, sh, tiny;
    double a[PART_N], b[PART_N], c[PART_N] = {0}, mask_len = 0, none = 0;
    sizes so = {.lead_len = 0}, ss = {.lead_len = 0};
    cli_tensors_long(&lo, row->n, 1);
    cli_tensors_short(&sh);
    cli_tensors_tiny(&tiny);
    int code = find_sizes(&so, row->recipe, &lo);
    code = code == CLI_OK ? find_sizes(&ss, row->recipe, &sh) : code;
    code = code == CLI_OK ? time_parts(a, &mask_len, &so, row, &lo, w, 0.7 * seconds) : code;
    code = code == CLI_OK ? time_parts(b, &none, &ss, row, &sh, w, 0.3 * seconds) : code;
    if (code == CLI_OK && w->device->gpu != NULL) {
        code = time_parts(c, &none, &ss, row, &tiny, w, 0.1 * seconds);
    }
    if (code != CLI_OK) {
        return code;
    }
    for (int i = 0; i < PART_N; i++) {
        row->passes[passes[i]] = cost_of(i, a, &so, b, &ss, c[i]);
    }
    row->bits = row->conv_bits = 8 * mask_len / so.elements[TG_PASS_LEAD];
    return CLI_OK;
}
