/* The simulation of `tersegrad plan`, against steps that are computed by hand. */
#include "support.h"

#include "plan_scene.h"

#include <math.h>
#include <stdlib.h>

#define NEAR(value, want) assert_true(fabs((value) - (want)) < 1e-9)

/* A scene of up to two actors, two groups and four operations. */
typedef struct stage {
    cli_scene scene;
    double ready[2];
    cli_op ops[4];
    cli_items items[2][3];
    cli_item of[2][3][4];
} stage;

static stage *stage_new(double compute, double cores, size_t actor_n, size_t group_n)
{
    stage *s = calloc(1, sizeof *s);
    s->scene = (cli_scene){.actor_n = actor_n,
                           .group_n = group_n,
                           .ready = s->ready,
                           .compute = compute,
                           .ops = s->ops,
                           .cores = {cores, cores},
                           .threads = 1};
    for (size_t a = 0; a < actor_n; a++) {
        s->scene.actors[a] = (cli_actor){.host = 0, .count = 1, .groups = s->items[a]};
        for (size_t g = 0; g < 3; g++) {
            s->items[a][g].of = s->of[a][g];
        }
    }
    return s;
}

static void add_work(stage *s, size_t a, size_t g, double seconds)
{
    s->of[a][g][s->items[a][g].n++] = (cli_item){.work = seconds};
}

static size_t add_op(stage *s, size_t a, size_t g, size_t op)
{
    s->of[a][g][s->items[a][g].n++] = (cli_item){.work = -1, .op = op};
    s->ops[op].actors |= UINT32_C(1) << a;
    s->scene.op_n = op + 1 > s->scene.op_n ? op + 1 : s->scene.op_n;
    return op;
}

static cli_forecast run(stage *s)
{
    cli_forecast f;
    assert_int_equal(cli_sim_run(&f, &s->scene), 0);
    free(s);
    return f;
}

static void test_after_the_backward_pass(void **state)
{
    stage *s = stage_new(1, 2, 1, 1);
    (void)state;
    s->ready[0] = 1;
    add_work(s, 0, 0, 0.2);
    size_t op = add_op(s, 0, 0, 0);
    s->ops[op].delay = 0.1;
    s->ops[op].network[0] = 0.3;
    add_work(s, 0, 1, 0.1); /* after all groups */
    cli_forecast f = run(s);
    NEAR(f.step, 1.7);
    NEAR(f.exposed, 0.7);
    NEAR(f.work, 0.3);
    NEAR(f.wire, 0.4);
}

/* Ready at 0.5, encoded until 0.7, sent until 1.1. On one core, encoding and computing have half of it each: encoded at 0.9 and sent
 * until 1.3, computed at 1.2. */
static void test_overlap(void **state)
{
    (void)state;
    for (int cores = 1; cores <= 2; cores++) {
        stage *s = stage_new(1, cores, 1, 1);
        s->ready[0] = 0.5;
        add_work(s, 0, 0, 0.2);
        s->ops[add_op(s, 0, 0, 0)].network[0] = 0.4;
        cli_forecast f = run(s);
        NEAR(f.step, cores == 1 ? 1.3 : 1.1);
        NEAR(f.compute, cores == 1 ? 1.2 : 1.0);
    }
}

/* Two operations of 0.2 share a link: both take 0.4. One after the other, they end at 0.2 and 0.4, so that the work after the first is
 * hidden. */
static void test_shared_link(void **state)
{
    (void)state;
    for (int is_serial = 0; is_serial <= 1; is_serial++) {
        stage *s = stage_new(0, 2, 1, 2);
        for (size_t g = 0; g < 2; g++) {
            s->ops[add_op(s, 0, g, g)].network[0] = 0.2;
            add_work(s, 0, g, 0.1);
        }
        s->scene.is_serial = is_serial;
        NEAR(run(s).step, 0.6);
    }
    stage *s = stage_new(0, 2, 1, 2);
    for (size_t g = 0; g < 2; g++) { /* latencies overlap */
        s->ops[add_op(s, 0, g, g)].delay = 0.2;
    }
    NEAR(run(s).step, 0.2);
}

/* An operation begins when the last of those that take part has come; others do not wait for it. */
static void test_meeting(void **state)
{
    stage *s = stage_new(0, 2, 2, 1);
    (void)state;
    add_work(s, 0, 0, 0.1);
    add_work(s, 1, 0, 0.3);
    add_op(s, 0, 0, 0);
    s->ops[add_op(s, 1, 0, 0)].delay = 0.1;
    NEAR(run(s).step, 0.4);
    s = stage_new(0, 2, 2, 1);
    s->ops[add_op(s, 0, 0, 0)].delay = 0.5;
    add_op(s, 1, 0, 0);
    s->ops[0].actors = 1;
    add_work(s, 1, 0, 0.1);
    NEAR(run(s).step, 0.5);
}

/* Computing on a device leaves the core to the codec: as on two cores. */
static void test_computing_on_a_device(void **state)
{
    stage *s = stage_new(1, 1, 1, 1);
    (void)state;
    s->scene.computes_on_device = 1;
    s->ready[0] = 0.5;
    add_work(s, 0, 0, 0.2);
    s->ops[add_op(s, 0, 0, 0)].network[0] = 0.4;
    s->ops[0].slowdown = 3; /* beside computing on cores */
    cli_forecast f = run(s);
    NEAR(f.step, 1.1);
    NEAR(f.compute, 1.0);
}

/* A codec shares the device with computing, at half speed each, and needs no core. */
static void test_encoding_on_a_device(void **state)
{
    stage *s = stage_new(1, 0.001, 1, 1);
    (void)state;
    s->scene.computes_on_device = s->scene.encodes_on_device = 1;
    s->ready[0] = 0.5;
    add_work(s, 0, 0, 0.2);
    s->ops[add_op(s, 0, 0, 0)].network[0] = 0.4;
    cli_forecast f = run(s);
    NEAR(f.step, 1.3);
    NEAR(f.compute, 1.2);
    NEAR(f.work, 0.4);
}

/* Ranks of a host share its cores: four that compute for 1 on two cores take 2. */
static void test_crowded_host(void **state)
{
    stage *s = stage_new(1, 2, 1, 0);
    (void)state;
    s->scene.actors[0].count = 4;
    NEAR(run(s).step, 2);
    s = stage_new(1, 0.25, 1, 0); /* a quarter of a core */
    NEAR(run(s).step, 4);
}

/* The network needs half a core. On one core, it gets that, and computing slows down meanwhile: 0.3 s at two thirds of the speed. */
static void test_load_of_the_network(void **state)
{
    stage *s = stage_new(1, 1, 1, 1);
    (void)state;
    s->ops[add_op(s, 0, 0, 0)].network[0] = 0.3;
    s->ops[0].load[0] = 0.5;
    NEAR(run(s).step, 1.1);
}

/* A link may be faster for a while, but not on average. */
static void test_lasting_rate(void **state)
{
    static const double lasting[] = {0.5, 0.7};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        stage *s = stage_new(0, 1, 1, 1);
        s->scene.lasting = lasting[i];
        s->ops[add_op(s, 0, 0, 0)].network[0] = 0.3;
        s->ops[add_op(s, 0, 0, 1)].network[0] = 0.3;
        NEAR(run(s).step, fmax(0.6, lasting[i]));
    }
}

static void test_threads(void **state)
{
    stage *s = stage_new(1, 2, 1, 1);
    (void)state;
    s->scene.threads = 2; /* beside computing: three threads on two cores */
    add_work(s, 0, 0, 0.2);
    NEAR(run(s).step, 0.3 + 0.8);
}

/* ---- drafts ---------------------------------------------------------------------------------------------------------- */

/* Three hosts; the first has a server, to which the others send 100 bytes each, and which sends 50 to each. Its link carries 200 bytes
 * in, and theirs 100 out. */
static void test_draft(void **state)
{
    cli_draft d = {.op_n = 0};
    const cli_cast cast = {.n = 2, .host = {0, 1}, .count = {1, 1}, .hosts = {1, 2}};
    const cli_wire wire = {.rate = 100, .latency = 0.5, .message = 0.1, .op = 0.01};
    cli_transfer server = {.actor = 0, .bytes = {{0, 0}, {100, 0}}, .messages = 2};
    cli_transfer other = {.actor = 1, .bytes = {{100, 0}, {0, 0}}, .messages = 1};
    double most = 0;
    (void)state;
    assert_int_equal(cli_draft_work(&d, 0, 0, 0.25), 0);
    assert_int_equal(cli_draft_work(&d, 0, 0, 0.25), 0);
    assert_int_equal(cli_draft_carry(&d, 0, 0, 0, &server), 0);
    assert_int_equal(cli_draft_carry(&d, 0, 0, 0, &other), 0);
    assert_int_equal(d.op_n, 1);
    assert_int_equal(d.items[0][0].n, 2);
    cli_scene scene = {.actor_n = 2, .group_n = 1, .actors = {{0, 1, NULL}, {1, 1, NULL}}};
    assert_int_equal(cli_draft_stage(&scene, &most, &d, &cast, &wire), 0);
    NEAR(scene.ops[0].network[0], 2);
    NEAR(scene.ops[0].network[1], 1);
    NEAR(scene.ops[0].delay, 0.01 + 0.5 + 0.1);
    assert_int_equal(scene.ops[0].actors, 3);
    NEAR(most, 100);
    NEAR(scene.actors[0].groups[0].of[0].work, 0.5);
    cli_scene_free(&scene);
    cli_draft_free(&d);
}

/* TCP on one core moves no more bytes than that core can. */
static void test_network_time(void **state)
{
    const cli_wire wire = {.rate = 1000, .tcp = 0.01};
    double load = 0;
    (void)state;
    NEAR(cli_network_time(&load, 100, 1, &wire), 1);
    NEAR(load, 1);
    NEAR(cli_network_time(&load, 100, 20, &wire), 0.1);
    NEAR(load, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_after_the_backward_pass),
                                       cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_computing_on_a_device),
                                       cmocka_unit_test(test_encoding_on_a_device),
                                       cmocka_unit_test(test_shared_link),
                                       cmocka_unit_test(test_meeting),
                                       cmocka_unit_test(test_crowded_host),
                                       cmocka_unit_test(test_load_of_the_network),
                                       cmocka_unit_test(test_lasting_rate),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_draft),
                                       cmocka_unit_test(test_network_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
