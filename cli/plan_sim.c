/* The event simulation; see plan_sim.h. Time goes from event to event. Between two events every thread and every operation goes on
 * at a constant speed, its share of the cores or of the link. */
#include "plan_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* ---- state --------------------------------------------------------------------------------------------------------- */

enum { PARTS = 2 }; /* of an operation on a host: network, memory */

typedef struct op_state {
    uint32_t arrived; /* actors that have come to it */
    int is_begun, is_done;
    double delay;
    double left[CLI_HOST_KINDS][PARTS];
} op_state;

typedef struct group_state {
    size_t next;    /* item */
    int is_waiting; /* for the operation `next` */
} group_state;

typedef struct actor_state {
    double computed; /* seconds of computing done */
    double finished; /* the time at which all of it was; negative: not yet */
    double ended;    /* the time at which the last item was; negative: not yet */
    size_t ready_n;  /* groups that are ready */
    size_t working;  /* on this group; group_n + 1: on none */
    double left;     /* of that work */
    double worked;
    group_state *groups; /* group_n + 1 */
} actor_state;

typedef struct sim {
    const cli_scene *scene;
    actor_state actors[CLI_ACTOR_MAX];
    op_state *ops;
    double now, wire;
} sim;

static const double tiny = 1e-12;

static const cli_items *items_of(const sim *s, size_t a, size_t g)
{
    return &s->scene->actors[a].groups[g];
}

static int is_finished(const sim *s, size_t a, size_t g)
{
    return s->actors[a].groups[g].next >= items_of(s, a, g)->n;
}

static int are_groups_finished(const sim *s, size_t a)
{
    for (size_t g = 0; g < s->scene->group_n; g++) {
        if (!is_finished(s, a, g)) {
            return 0;
        }
    }
    return 1;
}

/* Whether actor a may go on with group g; group_n stands for what follows all groups. */
static int may_go_on(const sim *s, size_t a, size_t g)
{
    const actor_state *actor = &s->actors[a];
    if (is_finished(s, a, g) || actor->groups[g].is_waiting) {
        return 0;
    }
    if (g == s->scene->group_n) {
        return actor->finished >= 0 && are_groups_finished(s, a);
    }
    return g < actor->ready_n && (!s->scene->is_serial || g == 0 || is_finished(s, a, g - 1));
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

static int has_left(const op_state *o)
{
    for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
        if (o->left[h][0] > tiny || o->left[h][1] > tiny) {
            return 1;
        }
    }
    return 0;
}

static void begin_op(sim *s, size_t op)
{
    const cli_op *of = &s->scene->ops[op];
    op_state *o = &s->ops[op];
    o->is_begun = 1;
    o->delay = of->delay;
    for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
        o->left[h][0] = of->network[h];
        o->left[h][1] = of->memory[h];
    }
}

/* Lets actor a come to the operation of group g. */
static void arrive(sim *s, size_t a, size_t g)
{
    group_state *group = &s->actors[a].groups[g];
    size_t op = items_of(s, a, g)->of[group->next].op;
    op_state *o = &s->ops[op];
    if ((s->scene->ops[op].actors >> a & 1) == 0) {
        group->next++;
        return;
    }
    group->is_waiting = 1;
    o->arrived |= UINT32_C(1) << a;
    if (o->arrived == s->scene->ops[op].actors) {
        begin_op(s, op);
    }
}

/* Starts all that can start on actor a without time passing. Returns whether anything has. */
static int start_actor(sim *s, size_t a)
{
    actor_state *actor = &s->actors[a];
    size_t idle = s->scene->group_n + 1;
    int moved = 0;
    for (size_t g = 0; g <= s->scene->group_n; g++) {
        if (actor->working == g || !may_go_on(s, a, g)) {
            continue;
        }
        const cli_item *item = &items_of(s, a, g)->of[actor->groups[g].next];
        if (item->work < 0) {
            arrive(s, a, g);
            moved = 1;
        } else if (actor->working == idle) {
            actor->working = g;
            actor->left = item->work;
            moved = 1;
        }
    }
    if (actor->ended < 0 && actor->finished >= 0 && is_finished(s, a, s->scene->group_n) && are_groups_finished(s, a)) {
        actor->ended = s->now;
    }
    return moved;
}

/* Ends what has come to its end. Returns whether anything has. */
static int end_all(sim *s)
{
    const cli_scene *scene = s->scene;
    int moved = 0;
    for (size_t a = 0; a < scene->actor_n; a++) {
        actor_state *actor = &s->actors[a];
        while (actor->ready_n < scene->group_n && actor->computed >= scene->ready[actor->ready_n] - tiny) {
            actor->ready_n++;
            moved = 1;
        }
        if (actor->finished < 0 && actor->computed >= scene->compute - tiny) {
            actor->finished = s->now;
            moved = 1;
        }
        if (actor->working <= scene->group_n && actor->left <= tiny) {
            actor->groups[actor->working].next++;
            actor->working = scene->group_n + 1;
            moved = 1;
        }
    }
    for (size_t i = 0; i < scene->op_n; i++) {
        op_state *o = &s->ops[i];
        if (!o->is_begun || o->is_done || o->delay > tiny || has_left(o)) {
            continue;
        }
        o->is_done = moved = 1;
        for (size_t a = 0; a < scene->actor_n; a++) {
            for (size_t g = 0; g <= scene->group_n; g++) {
                group_state *group = &s->actors[a].groups[g];
                if (group->is_waiting && items_of(s, a, g)->of[group->next].op == i) {
                    group->is_waiting = 0;
                    group->next++;
                }
            }
        }
    }
    return moved;
}

/* ---- speeds -------------------------------------------------------------------------------------------------------- */

typedef struct speeds {
    double cpu[CLI_HOST_KINDS];          /* of a thread, where 1 is a core of its own */
    int computes[CLI_HOST_KINDS];        /* some rank does, on a core */
    size_t flows[CLI_HOST_KINDS][PARTS]; /* operations that share a link */
} speeds;

static int is_flowing(const op_state *o)
{
    return o->is_begun && !o->is_done && o->delay <= tiny;
}

/* Cores that a rank needs for its operations under way: one thread sees to all of them. */
static double waiting_load(const sim *s, size_t a)
{
    double most = 0;
    for (size_t g = 0; g <= s->scene->group_n; g++) {
        const group_state *group = &s->actors[a].groups[g];
        if (group->is_waiting) {
            most = fmax(most, s->scene->ops[items_of(s, a, g)->of[group->next].op].wait);
        }
    }
    return most;
}

/* Whether an actor's computing needs a core now. */
static int does_compute(const sim *s, size_t a)
{
    return !s->scene->computes_on_device && s->actors[a].finished < 0;
}

/* Whether an actor's codec works now, and needs cores. */
static int does_encode(const sim *s, size_t a)
{
    return !s->scene->encodes_on_device && s->actors[a].working <= s->scene->group_n;
}

static speeds find_speeds(const sim *s)
{
    speeds v = {.cpu = {1, 1}};
    double load[CLI_HOST_KINDS] = {0, 0};
    for (size_t a = 0; a < s->scene->actor_n; a++) {
        uint32_t host = s->scene->actors[a].host;
        double threads =
            (does_compute(s, a) ? 1 : 0) + (does_encode(s, a) ? s->scene->threads : 0) + waiting_load(s, a);
        load[host] += threads * s->scene->actors[a].count;
        v.computes[host] |= does_compute(s, a);
    }
    for (size_t i = 0; i < s->scene->op_n; i++) {
        for (size_t h = 0; h < CLI_HOST_KINDS && is_flowing(&s->ops[i]); h++) {
            for (size_t p = 0; p < PARTS; p++) {
                v.flows[h][p] += s->ops[i].left[h][p] > tiny;
            }
        }
    }
    for (size_t i = 0; i < s->scene->op_n; i++) {
        for (size_t h = 0; h < CLI_HOST_KINDS && is_flowing(&s->ops[i]); h++) {
            if (s->ops[i].left[h][0] > tiny) {
                load[h] += s->scene->ops[i].load[h] / (double)v.flows[h][0];
            }
        }
    }
    for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
        v.cpu[h] = load[h] > s->scene->cores[h] ? s->scene->cores[h] / load[h] : 1;
    }
    return v;
}

/* How fast an operation's bytes move on a host. Beside computing, as was measured. Where that was not, copies in memory are made by a
 * thread, and the network is slowed down only if it does not get the cores that it needs. */
static double flow_speed(const sim *s, const speeds *v, size_t op, size_t h, size_t part)
{
    double share = 1 / (double)v->flows[h][part], cpu = v->cpu[h], slowdown = s->scene->ops[op].slowdown;
    if (slowdown > 0) { /* it was measured */
        return v->computes[h] && slowdown > 1 ? share / slowdown : share;
    }
    if (part == 1) {
        return share * cpu;
    }
    double need = s->scene->ops[op].load[h];
    return need > cpu && need > 0 && cpu < 1 ? share * cpu / need : share;
}

/* Latency, too, is longer while ranks compute. */
static double delay_speed(const sim *s, const speeds *v, size_t op)
{
    double slowdown = s->scene->ops[op].slowdown;
    return (v->computes[0] || v->computes[1]) && slowdown > 1 ? 1 / slowdown : 1;
}

/* Computing and codec share a device evenly while both are on it. */
static double device_speed(const sim *s, size_t a)
{
    const actor_state *actor = &s->actors[a];
    int computes = s->scene->computes_on_device && actor->finished < 0;
    int encodes = s->scene->encodes_on_device && actor->working <= s->scene->group_n;
    return computes && encodes ? 0.5 : 1;
}

static double compute_speed(const sim *s, const speeds *v, size_t a)
{
    return s->scene->computes_on_device ? device_speed(s, a) : v->cpu[s->scene->actors[a].host];
}

static double codec_speed(const sim *s, const speeds *v, size_t a)
{
    return s->scene->encodes_on_device ? device_speed(s, a) : v->cpu[s->scene->actors[a].host];
}

static double time_to_next(const sim *s, const speeds *v)
{
    double dt = INFINITY;
    for (size_t a = 0; a < s->scene->actor_n; a++) {
        const actor_state *actor = &s->actors[a];
        if (actor->finished < 0) {
            double until = actor->ready_n < s->scene->group_n ? s->scene->ready[actor->ready_n] : s->scene->compute;
            dt = fmin(dt, fmax(0, until - actor->computed) / compute_speed(s, v, a));
        }
        if (actor->working <= s->scene->group_n) {
            dt = fmin(dt, actor->left / codec_speed(s, v, a));
        }
    }
    for (size_t i = 0; i < s->scene->op_n; i++) {
        const op_state *o = &s->ops[i];
        if (!o->is_begun || o->is_done) {
            continue;
        }
        if (o->delay > tiny) {
            dt = fmin(dt, o->delay / delay_speed(s, v, i));
            continue;
        }
        for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
            for (size_t p = 0; p < PARTS; p++) {
                if (o->left[h][p] > tiny) {
                    dt = fmin(dt, o->left[h][p] / flow_speed(s, v, i, h, p));
                }
            }
        }
    }
    return dt;
}

static void advance(sim *s, const speeds *v, double dt)
{
    int is_on_wire = 0;
    for (size_t a = 0; a < s->scene->actor_n; a++) {
        actor_state *actor = &s->actors[a];
        double computed = dt * compute_speed(s, v, a), encoded = dt * codec_speed(s, v, a);
        if (actor->finished < 0) {
            actor->computed += computed;
        }
        if (actor->working <= s->scene->group_n) {
            actor->left -= encoded;
            actor->worked += dt;
        }
    }
    for (size_t i = 0; i < s->scene->op_n; i++) {
        op_state *o = &s->ops[i];
        int was_delayed = o->is_begun && !o->is_done && o->delay > tiny;
        is_on_wire |= o->is_begun && !o->is_done;
        for (size_t h = 0; h < CLI_HOST_KINDS && is_flowing(o); h++) {
            for (size_t p = 0; p < PARTS; p++) {
                o->left[h][p] -= o->left[h][p] > tiny ? dt * flow_speed(s, v, i, h, p) : 0;
            }
        }
        if (was_delayed) {
            o->delay -= dt * delay_speed(s, v, i);
        }
    }
    s->wire += is_on_wire ? dt : 0;
    s->now += dt;
}

/* ---- the run ------------------------------------------------------------------------------------------------------- */

static int have_all_ended(const sim *s)
{
    for (size_t a = 0; a < s->scene->actor_n; a++) {
        if (s->actors[a].ended < 0) {
            return 0;
        }
    }
    return 1;
}

static void settle(sim *s)
{
    int moved = 1;
    while (moved) {
        moved = end_all(s);
        for (size_t a = 0; a < s->scene->actor_n; a++) {
            moved |= start_actor(s, a);
        }
    }
}

static int run(cli_forecast *out, sim *s)
{
    for (;;) {
        settle(s);
        if (have_all_ended(s)) {
            break;
        }
        speeds v = find_speeds(s);
        double dt = time_to_next(s, &v);
        if (!isfinite(dt)) {
            return cli_fail(CLI_FAILED, "the simulated step never ends");
        }
        advance(s, &v, dt);
    }
    *out = (cli_forecast){.compute = INFINITY, .work = s->actors[0].worked, .wire = s->wire};
    for (size_t a = 0; a < s->scene->actor_n; a++) {
        out->step = fmax(out->step, s->actors[a].ended);
        out->compute = fmin(out->compute, s->actors[a].finished);
    }
    out->step = fmax(out->step, s->scene->lasting);
    out->exposed = out->step - out->compute;
    return CLI_OK;
}

int cli_sim_run(cli_forecast *out, const cli_scene *scene)
{
    sim s = {.scene = scene};
    size_t group_n = scene->group_n + 1;
    group_state *groups = calloc(group_n * (scene->actor_n + 1), sizeof *groups);
    s.ops = calloc(scene->op_n + 1, sizeof *s.ops);
    int code = groups != NULL && s.ops != NULL ? CLI_OK : cli_fail_memory();
    if (code == CLI_OK) {
        for (size_t a = 0; a < scene->actor_n; a++) {
            s.actors[a] =
                (actor_state){.finished = -1, .ended = -1, .working = group_n, .groups = groups + a * group_n};
        }
        code = run(out, &s);
    }
    free(s.ops);
    free(groups);
    return code;
}

int cli_items_add(cli_items *items, cli_item item)
{
    if (items->n == items->cap) {
        size_t cap = items->cap == 0 ? 8 : 2 * items->cap;
        cli_item *of = realloc(items->of, cap * sizeof *of);
        if (of == NULL) {
            return cli_fail_memory();
        }
        items->of = of;
        items->cap = cap;
    }
    items->of[items->n++] = item;
    return CLI_OK;
}
