/* Drafts of a step, and scenes of them; see plan_scene.h. */
#include "plan_scene.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* ---- drafts -------------------------------------------------------------------------------------------------------- */

static int reach_group(cli_draft *d, size_t actor, size_t group)
{
    if (group < d->group_n[actor]) {
        return CLI_OK;
    }
    cli_items *items = realloc(d->items[actor], (group + 1) * sizeof *items);
    if (items == NULL) {
        return cli_fail_memory();
    }
    memset(items + d->group_n[actor], 0, (group + 1 - d->group_n[actor]) * sizeof *items);
    d->items[actor] = items;
    d->group_n[actor] = group + 1;
    return CLI_OK;
}

/* Work after work is one. */
int cli_draft_work(cli_draft *d, size_t actor, size_t group, double seconds)
{
    int code = reach_group(d, actor, group);
    if (code != CLI_OK) {
        return code;
    }
    cli_items *items = &d->items[actor][group];
    if (items->n > 0 && items->of[items->n - 1].work >= 0) {
        items->of[items->n - 1].work += seconds;
        return CLI_OK;
    }
    return cli_items_add(items, (cli_item){.work = seconds});
}

static size_t find_op(const cli_draft *d, size_t group, int talk, size_t number)
{
    for (size_t i = d->op_n; i-- > 0;) {
        if (d->ops[i].group == group && d->ops[i].talk == talk && d->ops[i].number == number) {
            return i;
        }
    }
    return d->op_n;
}

int cli_draft_carry(cli_draft *d, size_t group, int talk, size_t number, const cli_transfer *t)
{
    size_t op = find_op(d, group, talk, number);
    int code = reach_group(d, t->actor, group);
    if (code == CLI_OK && op == d->op_n && d->op_n == d->op_cap) {
        size_t cap = d->op_cap == 0 ? 32 : 2 * d->op_cap;
        cli_draft_op *ops = realloc(d->ops, cap * sizeof *ops);
        if (ops == NULL) {
            return cli_fail_memory();
        }
        d->ops = ops;
        d->op_cap = cap;
    }
    if (code != CLI_OK) {
        return code;
    }
    if (op == d->op_n) {
        d->ops[d->op_n++] = (cli_draft_op){.group = group, .talk = talk, .number = number};
    }
    d->ops[op].of[t->actor] = *t;
    return cli_items_add(&d->items[t->actor][group], (cli_item){.work = -1, .op = op});
}

void cli_draft_free(cli_draft *d)
{
    for (size_t a = 0; a < CLI_ACTOR_MAX; a++) {
        for (size_t g = 0; g < d->group_n[a]; g++) {
            free(d->items[a][g].of);
        }
        free(d->items[a]);
    }
    free(d->ops);
    *d = (cli_draft){.op_n = 0};
}

/* ---- scenes -------------------------------------------------------------------------------------------------------- */

/* Bytes of an operation on one host of each kind: out to other hosts, in from them, between its own ranks. */
typedef struct amounts {
    double out[CLI_HOST_KINDS], in[CLI_HOST_KINDS], local[CLI_HOST_KINDS];
    double ranks[CLI_HOST_KINDS]; /* on it */
    double messages, most;        /* that a rank sends; bytes likewise */
    uint32_t actors;
} amounts;

static amounts add_up(const cli_draft_op *op, const cli_cast *c)
{
    amounts m = {.messages = 0};
    for (size_t a = 0; a < c->n; a++) {
        double sent = 0;
        m.ranks[c->host[a]] += c->count[a];
        for (size_t k = 0; k < c->n; k++) {
            double remote = op->of[a].bytes[k][0] * c->count[a], local = op->of[a].bytes[k][1] * c->count[a];
            sent += op->of[a].bytes[k][0];
            m.out[c->host[a]] += remote;
            m.in[c->host[k]] += remote * c->hosts[a] / c->hosts[k]; /* shared by hosts of that kind */
            m.local[c->host[a]] += local;
            if (remote + local > 0) {
                m.actors |= UINT32_C(1) << a | UINT32_C(1) << k;
            }
        }
        m.messages = fmax(m.messages, op->of[a].messages);
        m.most = fmax(m.most, sent);
    }
    return m;
}

double cli_network_time(double *load, double bytes, double ranks, const cli_wire *w)
{
    double cpu = w->tcp * bytes, seconds = fmax(bytes / w->rate, cpu / ranks);
    *load = seconds > 0 ? cpu / seconds : 0;
    return seconds;
}

/* Seconds of the network by a column of the probe, without those of the shortest messages, which are the delay. */
static double time_by_table(const amounts *m, const double *column, const cli_wire *w)
{
    double bytes = fmax(m->out[0], m->in[0]);
    double seconds = m->most > 0 ? cli_network_seconds(w->measured, column, m->most, bytes / m->most / w->rate) : 0;
    return fmax(0, seconds - column[0]);
}

/* One operation at a time, while nobody computes. */
static void time_alone(cli_op *op, const amounts *m, const cli_wire *w)
{
    op->slowdown = 1;
    if (w->is_even) {
        op->network[0] = time_by_table(m, w->measured->exchange, w);
        op->memory[0] = 0; /* the table has it */
    }
}

/* An operation of a group, beside other work. */
static void time_grouped(cli_op *op, const amounts *m, const cli_wire *w)
{
    const cli_network *n = w->measured;
    int is_local = m->out[0] + m->out[1] <= 0;
    double local = fmax(m->local[0], m->local[1]), bytes = is_local ? local : m->most;
    cli_talk talk = !w->has_hosts ? CLI_TALK_ALL : is_local ? CLI_TALK_LOCAL : CLI_TALK_LEADERS;
    const double *idle = n->talks[talk].idle;
    op->wait = cli_network_load(n, talk, bytes);
    op->slowdown = cli_network_slowdown(n, talk, bytes);
    if (w->is_even || w->has_hosts) {
        op->delay = idle[0];
    }
    for (size_t h = 0; h < CLI_HOST_KINDS && (w->is_even || w->has_hosts); h++) {
        op->network[h] = is_local ? 0 : time_by_table(m, idle, w);
        op->memory[h] = is_local ? fmax(0, cli_network_seconds(n, idle, local, 0) - idle[0]) : 0;
    }
}

static cli_op time_op(const amounts *m, const cli_wire *w)
{
    cli_op op = {.actors = m->actors, .delay = w->op};
    for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
        op.network[h] = cli_network_time(&op.load[h], fmax(m->out[h], m->in[h]), m->ranks[h], w);
        op.memory[h] = m->local[h] * w->local;
    }
    if (m->messages > 0) {
        op.delay = w->latency + w->message * (m->messages - 1) + (w->measured == NULL ? w->op : 0);
    }
    if (w->measured != NULL && (m->messages > 0 || w->has_hosts)) {
        op.load[0] = op.load[1] = 0;
        (w->is_grouped ? time_grouped : time_alone)(&op, m, w);
    }
    return op;
}

/* Bytes that a rank of kind `a` receives in an operation; ranks of its kind share what is sent to them. */
static double received(const cli_draft_op *op, const cli_cast *c, size_t a)
{
    double sum = 0;
    for (size_t from = 0; from < c->n; from++) {
        sum += (op->of[from].bytes[a][0] + op->of[from].bytes[a][1]) * c->count[from] * c->hosts[from];
    }
    return sum / (c->count[a] * c->hosts[a]);
}

/* Adds an item of the draft; around an operation, copies of its messages to host memory and from it. */
static int add_item(cli_items *items, const cli_item *item, const cli_draft *d, const cli_cast *c, size_t a,
                    const cli_gpu *gpu)
{
    const cli_draft_op *op = item->work < 0 && gpu != NULL ? &d->ops[item->op] : NULL;
    double down = op != NULL ? op->of[a].distinct : 0, up = op != NULL ? received(op, c, a) : 0;
    int is_staged = 0, code = CLI_OK;
    for (size_t from = 0; from < c->n && op != NULL; from++) {
        is_staged |= op->of[from].distinct > 0;
    }
    if (is_staged && down > 0) {
        code = cli_items_add(items, (cli_item){.work = gpu->begin_down + down * gpu->down});
    }
    code = code == CLI_OK ? cli_items_add(items, *item) : code;
    if (code == CLI_OK && is_staged && up > 0) {
        code = cli_items_add(items, (cli_item){.work = gpu->begin_up + up * gpu->up});
    }
    return code;
}

static int copy_items(cli_actor *actor, const cli_draft *d, const cli_cast *c, size_t a, size_t group_n,
                      const cli_gpu *gpu)
{
    actor->groups = calloc(group_n + 1, sizeof *actor->groups);
    if (actor->groups == NULL) {
        return cli_fail_memory();
    }
    for (size_t g = 0; g < d->group_n[a] && g <= group_n; g++) {
        for (size_t i = 0; i < d->items[a][g].n; i++) {
            int code = add_item(&actor->groups[g], &d->items[a][g].of[i], d, c, a, gpu);
            if (code != CLI_OK) {
                return code;
            }
        }
    }
    return CLI_OK;
}

int cli_draft_stage(cli_scene *scene, double *most, const cli_draft *d, const cli_cast *c, const cli_wire *w)
{
    double out[CLI_HOST_KINDS] = {0};
    scene->ops = calloc(d->op_n + 1, sizeof *scene->ops);
    scene->op_n = d->op_n;
    if (scene->ops == NULL) {
        return cli_fail_memory();
    }
    for (size_t i = 0; i < d->op_n; i++) {
        amounts m = add_up(&d->ops[i], c);
        scene->ops[i] = time_op(&m, w);
        for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
            out[h] += m.out[h];
        }
    }
    *most = fmax(out[0], out[1]);
    int code = CLI_OK;
    for (size_t a = 0; a < c->n && code == CLI_OK; a++) {
        code = copy_items(&scene->actors[a], d, c, a, scene->group_n, w->gpu);
    }
    return code;
}

void cli_scene_free(cli_scene *scene)
{
    for (size_t a = 0; a < scene->actor_n; a++) {
        for (size_t g = 0; g <= scene->group_n && scene->actors[a].groups != NULL; g++) {
            free(scene->actors[a].groups[g].of);
        }
        free(scene->actors[a].groups);
    }
    free(scene->ops);
    free(scene->ready);
    *scene = (cli_scene){.actor_n = 0};
}
