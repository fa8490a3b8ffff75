/* Steps for the simulation; see plan_step.h. Outlines of a few ranks tell all: one of each kind. Bytes that a rank sends to ranks of
 * a kind are counted together, and received in equal parts. */
#include "plan_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "plan_scene.h"

/* ---- kinds of ranks ------------------------------------------------------------------------------------------------ */

/* Ranks of one kind. */
typedef struct kind {
    uint32_t rank;  /* one of them */
    uint32_t host;  /* kind of host */
    uint32_t count; /* on such a host */
} kind;

typedef struct cast {
    kind of[CLI_ACTOR_MAX];
    size_t n;
    uint32_t host_size, hosts;
    int is_hierarchical;
} cast;

/* Hosts of a kind: the first, and all others; or all. */
static double hosts_of(const cast *c, uint32_t host_kind)
{
    int has_others = c->of[c->n - 1].host == 1;
    return host_kind == 1 ? (double)c->hosts - 1 : has_others ? 1 : (double)c->hosts;
}

static cast cast_alike(const cli_setting *s)
{
    uint32_t size = s->workers / s->hosts;
    return (cast){.of = {{0, 0, size}}, .n = 1, .host_size = size, .hosts = s->hosts};
}

static cast cast_all(const cli_setting *s)
{
    uint32_t size = s->workers / s->hosts;
    cast c = {.host_size = size, .hosts = s->hosts, .is_hierarchical = s->is_hierarchical && size > 1};
    c.of[c.n++] = (kind){0, 0, 1};
    if (size > 1) {
        c.of[c.n++] = (kind){1, 0, size - 1};
    }
    if (s->hosts > 1) {
        c.of[c.n++] = (kind){size, 1, c.is_hierarchical ? 1 : size};
    }
    if (s->hosts > 1 && c.is_hierarchical) {
        c.of[c.n++] = (kind){size + 1, 1, size - 1};
    }
    return c;
}

static size_t kind_of(const cast *c, uint32_t rank)
{
    uint32_t host = rank / c->host_size, place = rank % c->host_size;
    if (c->n == 1) {
        return 0;
    }
    if (host == 0) {
        return place == 0 ? 0 : 1;
    }
    size_t first = c->host_size > 1 ? 2 : 1;
    return c->is_hierarchical && place > 0 ? first + 1 : first;
}

/* ---- costs ----------------------------------------------------------------------------------------------------------- */

static double cost_of(const cli_recipe_cost *recipe, const cli_recipe_cost *dense, const tg_work *w)
{
    const cli_pass_cost *own = &recipe->passes[w->pass], *plain = &dense->passes[w->pass];
    double frames = w->pass == TG_PASS_SUM || w->pass == TG_PASS_CHECK_SUM ? (double)w->frames : 1;
    double call = fmax(w->elements > 0 ? own->call : 0, w->dense_elements > 0 ? plain->call : 0);
    return frames * (call + (double)w->elements * own->element + (double)w->chunks * own->chunk +
                     (double)w->dense_elements * plain->element + (double)w->dense_chunks * plain->chunk);
}

/* ---- outlines ---------------------------------------------------------------------------------------------------------- */

/* What the visitor of an outline fills in. */
typedef struct author {
    cli_draft *draft;
    const cast *cast;
    size_t actor;
    const cli_recipe_cost *recipe, *dense;
    size_t talks[3]; /* operations of each kind so far, of this group */
    size_t group;
    double sent; /* bytes */
    int code;
} author;

static void on_work(void *context, size_t group, const tg_work *work)
{
    author *a = context;
    if (a->code == CLI_OK) {
        a->code = cli_draft_work(a->draft, a->actor, group, cost_of(a->recipe, a->dense, work));
    }
}

static void on_carry(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    author *a = context;
    if (group != a->group) {
        a->group = group;
        memset(a->talks, 0, sizeof a->talks);
    }
    cli_transfer t = {.actor = a->actor};
    const void *last = NULL;
    for (uint32_t p = 0; p < op->world; p++) {
        if (op->sends[p].len > 0) {
            t.distinct += talk == TG_TALK_MESSAGES && op->sends[p].data != last ? (double)op->sends[p].len : 0;
            last = op->sends[p].data;
            int is_local = p / a->cast->host_size == op->rank / a->cast->host_size;
            t.bytes[kind_of(a->cast, p)][is_local] += (double)op->sends[p].len;
            t.messages += !is_local;
            a->sent += (double)op->sends[p].len;
        }
    }
    if (a->code == CLI_OK) {
        a->code = cli_draft_carry(a->draft, group, (int)talk, a->talks[talk]++, &t);
    }
}

static tg_options options_of(const cli_setting *s)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.exchange = s->exchange;
    opt.group_len = s->group_len;
    opt.host_size = s->is_hierarchical ? s->workers / s->hosts : 0;
    return opt;
}

static double *bits_of(const cli_setting *s, const cli_recipe_cost *cost)
{
    double *bits = malloc((s->tensor_n + 1) * sizeof *bits);
    for (size_t t = 0; t < s->tensor_n && bits != NULL; t++) {
        bits[t] = s->tensors[t].kind == TG_CONV ? cost->conv_bits : cost->bits;
    }
    return bits;
}

/* Outlines each kind of rank into the draft. */
static int write_draft(cli_draft *draft, cli_prediction *out, tg_detail *why, const cli_setting *s, const cast *c,
                       const char *recipe, const double *bits, const cli_recipe_cost *costs)
{
    tg_options opt = options_of(s);
    double sent = 0;
    for (size_t k = 0; k < c->n; k++) {
        author a = {.draft = draft, .cast = c, .actor = k, .recipe = &costs[0], .dense = &costs[1], .group = SIZE_MAX};
        const tg_outline_visitor visitor = {on_work, on_carry, &a};
        tg_outline o;
        tg_status status = tg_exchange_outline(&o, &visitor, recipe, s->tensors, s->tensor_n, c->of[k].rank, s->workers,
                                               &opt, bits, why);
        if (status != TG_OK || a.code != CLI_OK) {
            return status == TG_E_MEMORY ? cli_fail_status(recipe, status, why)
                   : status != TG_OK     ? CLI_NOT_PREDICTED
                                         : a.code;
        }
        sent += a.sent * c->of[k].count * hosts_of(c, c->of[k].host);
        if (k == 0) {
            out->groups = o.groups;
            out->phase = o.phase;
            out->residual_len = o.residual_len;
            memcpy(out->exchange, o.exchange, sizeof out->exchange);
        }
    }
    out->bytes = sent / s->workers;
    return CLI_OK;
}

/* ---- ranks that are alike ------------------------------------------------------------------------------------------------ */

/* Whether ranks 0 and 1 of a few do the same: then all do, however many they are. */
typedef struct trace {
    uint64_t hash;
    int has_root;
} trace;

static void mix(trace *t, double value)
{
    t->hash = t->hash * UINT64_C(6364136223846793005) + (uint64_t)(value / 64) + 1;
}

static void trace_work(void *context, size_t group, const tg_work *work)
{
    mix(context, (double)(group * 8 + work->pass) * 64);
}

static void trace_carry(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    trace *t = context;
    uint64_t sum = 0;
    (void)group;
    (void)talk;
    for (uint32_t p = 0; p < op->world; p++) {
        sum += op->sends[p].len;
    }
    t->has_root |= op->kind == TG_BROADCAST || op->kind == TG_GATHERV;
    mix(t, op->kind == TG_ALLGATHERV ? (double)sum : 0); /* slices of a model may differ a little */
}

static int are_alike(const cli_setting *s, const char *recipe, const double *bits)
{
    tg_options opt = options_of(s);
    trace traces[2] = {{0, 0}, {0, 0}};
    uint32_t world = s->workers < 8 ? s->workers : 8;
    if (s->is_hierarchical || world < 2) {
        return 0;
    }
    for (uint32_t r = 0; r < 2; r++) {
        const tg_outline_visitor visitor = {trace_work, trace_carry, &traces[r]};
        tg_outline o;
        if (tg_exchange_outline(&o, &visitor, recipe, s->tensors, s->tensor_n, r, world, &opt, bits, NULL) != TG_OK) {
            return 0;
        }
    }
    return traces[0].hash == traces[1].hash && !traces[0].has_root;
}

/* ---- groups -------------------------------------------------------------------------------------------------------------- */

typedef struct group_sizes {
    double *of;
    size_t n, cap;
} group_sizes;

static void note_size(void *context, size_t group, const tg_work *work)
{
    group_sizes *g = context;
    if (work->pass == TG_PASS_ENCODE && group < g->cap) {
        g->of[group] += (double)(work->elements + work->dense_elements);
        g->n = group + 1 > g->n ? group + 1 : g->n;
    }
}

static void note_nothing(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    (void)context;
    (void)group;
    (void)talk;
    (void)op;
}

/* The elements of each group, by an outline of dense gradients. */
static int find_groups(group_sizes *out, const cli_setting *s)
{
    tg_options opt = options_of(s);
    tg_outline o;
    tg_detail why = {""};
    *out = (group_sizes){.cap = s->tensor_n + 1};
    out->of = calloc(out->cap, sizeof *out->of);
    if (out->of == NULL) {
        return cli_fail_memory();
    }
    opt.exchange = "gather";
    opt.host_size = 0;
    const tg_outline_visitor visitor = {note_size, note_nothing, out};
    tg_status status = tg_exchange_outline(&o, &visitor, "fp32", s->tensors, s->tensor_n, 0, 2, &opt, NULL, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

/* When each of `group_n` groups is ready: the backward pass takes as long for each element. */
static int set_ready(cli_scene *scene, const cli_setting *s, const group_sizes *g, size_t group_n)
{
    double before = 0;
    scene->compute = s->compute;
    scene->group_n = group_n;
    scene->ready = calloc(group_n + 1, sizeof *scene->ready);
    if (scene->ready == NULL) {
        return cli_fail_memory();
    }
    for (size_t i = 0; i < group_n; i++) {
        before += i < g->n ? g->of[i] : 0;
        double share = group_n == g->n ? before / (double)s->n : 1;
        scene->ready[i] = s->group_len == 0 ? s->compute : s->compute - s->backward * (1 - fmin(1, share));
    }
    return CLI_OK;
}

static void set_hosts(cli_scene *scene, const cli_setting *s)
{
    scene->threads = s->threads;
    scene->computes_on_device = s->computes_on_device;
    scene->encodes_on_device = s->encodes_on_device;
    for (size_t h = 0; h < CLI_HOST_KINDS; h++) {
        scene->cores[h] = s->cores;
    }
}

/* ---- recipes ---------------------------------------------------------------------------------------------------------------- */

static int simulate(cli_prediction *out, const cli_draft *draft, const cli_setting *s, const cast *c)
{
    group_sizes g = {NULL, 0, 0};
    cli_scene scene = {.actor_n = c->n};
    cli_cast counts = {.n = c->n};
    for (size_t k = 0; k < c->n; k++) {
        scene.actors[k] = (cli_actor){.host = c->of[k].host, .count = c->of[k].count};
        counts.host[k] = c->of[k].host;
        counts.count[k] = c->of[k].count;
        counts.hosts[k] = hosts_of(c, c->of[k].host);
    }
    const cli_wire wire = {.rate = s->rate,
                           .latency = s->latency,
                           .message = s->message,
                           .local = 2 * s->probe->machine.copy,
                           .op = s->probe->machine.op,
                           .tcp = s->probe->machine.tcp,
                           .measured = s->is_measured ? &s->probe->network : NULL,
                           .is_even = c->n == 1 && s->probe->network.ranks == s->workers,
                           .has_hosts = c->is_hierarchical && s->probe->network.ranks == s->workers &&
                                        s->probe->network.hosts == s->hosts,
                           .is_grouped = s->group_len > 0,
                           .gpu = s->encodes_on_device ? &s->probe->gpu : NULL};
    set_hosts(&scene, s);
    int code = find_groups(&g, s);
    code = code == CLI_OK ? set_ready(&scene, s, &g, out->groups) : code;
    code = code == CLI_OK ? cli_draft_stage(&scene, &out->network_bytes, draft, &counts, &wire) : code;
    scene.lasting = out->network_bytes / s->rate;
    code = code == CLI_OK ? cli_sim_run(&out->time, &scene) : code;
    cli_scene_free(&scene);
    free(g.of);
    return code;
}

/* A recipe of which nothing was measured: one that has no outline, or one that the probe was not given. */
static int tell_missing(tg_detail *why, const cli_setting *s, const char *recipe)
{
    group_sizes none = {NULL, 0, 0};
    tg_options opt = options_of(s);
    tg_outline o;
    const tg_outline_visitor visitor = {note_size, note_nothing, &none};
    if (tg_exchange_outline(&o, &visitor, recipe, s->tensors, s->tensor_n, 0, s->workers, &opt, NULL, why) != TG_OK) {
        return CLI_NOT_PREDICTED;
    }
    return cli_fail(CLI_MISUSE, "the probe has not measured '%s'; give it to 'tersegrad probe --recipes'", recipe);
}

int cli_step_predict(cli_prediction *out, tg_detail *why, const cli_setting *s, const char *recipe)
{
    cli_recipe_cost costs[2];
    cli_draft draft = {.op_n = 0};
    *out = (cli_prediction){.bytes = 0};
    why->text[0] = '\0';
    const cli_costs *known = s->encodes_on_device ? &s->probe->gpu.costs : &s->probe->machine.costs;
    if (!cli_costs_find(&costs[0], known, recipe, s->threads, s->n) ||
        !cli_costs_find(&costs[1], known, "fp32", s->threads, s->n)) {
        return tell_missing(why, s, recipe);
    }
    double *bits = bits_of(s, &costs[0]);
    if (bits == NULL) {
        return cli_fail_memory();
    }
    cast c = are_alike(s, recipe, bits) ? cast_alike(s) : cast_all(s);
    int code = write_draft(&draft, out, why, s, &c, recipe, bits, costs);
    code = code == CLI_OK ? simulate(out, &draft, s, &c) : code;
    cli_draft_free(&draft);
    free(bits);
    return code;
}

/* ---- plain all-reduces -------------------------------------------------------------------------------------------------------- */

/* Seconds that an all-reduce of so many bytes waits, sends and adds. */
typedef struct plain {
    double delay, network, load, wait, slowdown, work, bytes;
} plain;

/* Costs of an element in plain all-reduces. On a GPU they are those of its memory: a sum moves three numbers where a copy moves two,
 * and so does a conversion to bf16 and back, in halves. */
typedef struct plain_costs {
    double add, add_bf16, convert, scale;
} plain_costs;

static plain_costs plain_costs_of(const cli_setting *s)
{
    const cli_machine *m = &s->probe->machine;
    double copy = sizeof(float) * s->probe->gpu.copy;
    return s->encodes_on_device ? (plain_costs){1.5 * copy, 0.75 * copy, 1.5 * copy, copy}
                                : (plain_costs){m->add, m->add_bf16, m->convert, m->add};
}

static plain plain_of(const cli_setting *s, double n, tg_dtype dtype)
{
    const cli_machine *m = &s->probe->machine;
    const plain_costs costs = plain_costs_of(s);
    const cli_network *net = &s->probe->network;
    double len = n * (double)tg_dtype_len(dtype), ranks = s->workers, rounds = ceil(log2(ranks));
    double add = n * (dtype == TG_FP32 ? costs.add : costs.add_bf16), share = (ranks - 1) / ranks;
    double small = s->latency + m->op;
    plain p = {.work = n * (costs.scale + (dtype == TG_FP32 ? 0 : costs.convert)),
               .bytes = 2 * share * len}; /* scaled by 1/ranks */
    if (s->is_measured && net->ranks == s->workers) {
        cli_talk talk = dtype == TG_FP32 ? CLI_TALK_FP32 : CLI_TALK_BF16;
        p.network = cli_network_seconds(net, net->talks[talk].idle, len, 2 * share / s->rate);
        p.slowdown = cli_network_slowdown(net, talk, len);
        p.wait = cli_network_load(net, talk, len);
        return p;
    }
    double ring = 2 * (ranks - 1) * small + 2 * share * len / s->rate + share * add;
    double doubling = rounds * (small + len / s->rate + add);
    int is_ring = ring <= doubling;
    p.delay = (is_ring ? 2 * (ranks - 1) : rounds) * small;
    p.bytes = (is_ring ? 2 * share : rounds) * len;
    p.network =
        cli_network_time(&p.load, p.bytes, (double)s->workers / s->hosts, &(cli_wire){.rate = s->rate, .tcp = m->tcp});
    p.work += (is_ring ? share : rounds) * add;
    return p;
}

static int stage_plain(cli_scene *scene, cli_prediction *out, const cli_setting *s, const group_sizes *g,
                       tg_dtype dtype)
{
    uint32_t size = s->workers / s->hosts;
    cli_actor *actor = &scene->actors[0];
    *actor = (cli_actor){.host = 0, .count = size, .groups = calloc(g->n + 1, sizeof(cli_items))};
    scene->ops = calloc(g->n + 1, sizeof *scene->ops);
    scene->actor_n = 1;
    scene->op_n = g->n;
    scene->is_serial = 1;
    if (actor->groups == NULL || scene->ops == NULL) {
        return cli_fail_memory();
    }
    int code = CLI_OK;
    for (size_t i = 0; i < g->n && code == CLI_OK; i++) {
        plain p = plain_of(s, g->of[i], dtype);
        scene->ops[i] = (cli_op){.actors = 1,
                                 .delay = p.delay,
                                 .load = {s->hosts > 1 ? p.load : 0, 0},
                                 .wait = p.wait,
                                 .slowdown = p.slowdown};
        *(s->hosts > 1 ? &scene->ops[i].network[0] : &scene->ops[i].memory[0]) =
            s->hosts > 1 || s->is_measured ? p.network : 2 * p.bytes * s->probe->machine.copy;
        code = cli_items_add(&actor->groups[i], (cli_item){.work = -1, .op = i});
        code = code == CLI_OK ? cli_items_add(&actor->groups[i], (cli_item){.work = p.work}) : code;
        out->bytes += p.bytes;
    }
    return code;
}

int cli_step_plain(cli_prediction *out, const cli_setting *s, tg_dtype dtype)
{
    group_sizes g;
    cli_scene scene = {.actor_n = 0};
    *out = (cli_prediction){.bytes = 0, .exchange = "all-reduce"};
    set_hosts(&scene, s);
    int code = find_groups(&g, s);
    code = code == CLI_OK ? set_ready(&scene, s, &g, g.n) : code;
    code = code == CLI_OK ? stage_plain(&scene, out, s, &g, dtype) : code;
    scene.lasting = s->hosts == s->workers ? out->bytes / s->rate : 0;
    code = code == CLI_OK ? cli_sim_run(&out->time, &scene) : code;
    out->groups = g.n;
    out->network_bytes = out->bytes;
    cli_scene_free(&scene);
    free(g.of);
    return code;
}
