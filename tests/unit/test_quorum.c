/* A quorum of local steps, inside: a worker that is late, and what becomes of its move. */
#include "support.h"

#include "local.h"
#include "quorum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 3, ROUNDS = 8, EVERY = 2, LATE = 1 };

static int on_step(void *context, const tr_step *step, char why[TR_WHY])
{
    uint64_t *absent = context;
    (void)why;
    *absent += step->absent;
    return 0;
}

static int on_test(void *context, const tr_test *test, char why[TR_WHY])
{
    (void)context, (void)test, (void)why;
    return 0;
}

static tr_settings settings_of(const char *recipe)
{
    tr_settings s = {.model = "mlp",
                     .recipe = recipe,
                     .workers = WORLD,
                     .batch = 4,
                     .steps = ROUNDS * EVERY,
                     .seed = 5,
                     .quorum = WORLD - 1,
                     .grace = 0.001,
                     .verify_every = 1};
    s.optimizer = tr_optimizer_standard();
    s.optimizer.steps = s.steps;
    MUST(tg_schedule_read(&s.local, "2", why));
    MUST(tg_outer_read(&s.outer, "average", why));
    return s;
}

static tr_data *data_of(void)
{
    tr_data *data = NULL;
    char why_text[TR_WHY] = "";
    assert_int_equal(tr_data_open(&data, "glyphs", why_text), 0);
    return data;
}

/* ---- one worker's rounds, beside a sum of its moves -------------------------------------------------------------------- */

typedef struct account {
    tr_worker *worker;
    double *moved; /* the sum of its moves */
    uint32_t absences;
    int failed;
} account;

static void add_move(account *a, size_t n)
{
    const float *weights = tr_model_weights(a->worker->model, &n);
    for (size_t i = 0; i < n; i++) {
        a->moved[i] += (double)a->worker->learner.begun[i] - (double)weights[i];
    }
}

static void *take_rounds(void *argument)
{
    account *a = argument;
    tr_worker *w = a->worker;
    size_t n = 0;
    (void)tr_model_weights(w->model, &n);
    for (uint64_t round = 0; round < ROUNDS && !a->failed; round++) {
        tr_members members = {0};
        tg_detail why = {""};
        tr_quorum_begin(w, round * EVERY, (round + 1) * EVERY);
        a->failed = tr_quorum_wait(&members, w, round + 1 == ROUNDS) != 0;
        if (members.is_one) {
            add_move(a, n);
        }
        a->absences += members.is_one ? 0 : 1;
        a->failed = a->failed || tr_quorum_exchange(w, &members, round, &why) != TG_OK;
    }
    return NULL;
}

static void open_team(tr_team *t, account *accounts, size_t n)
{
    char why_text[TR_WHY] = "";
    tr_gate_init(&t->gate, WORLD);
    if (tr_team_gather(t, why_text) != 0) {
        fail_msg("%s", why_text);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        accounts[r] = (account){.worker = &t->workers[r], .moved = calloc(n, sizeof *accounts[r].moved)};
    }
}

/* Every move counts once: the shared weights have moved by the mean over all workers of all their moves, and are the same on all. */
static void no_move_is_lost(void **state)
{
    (void)state;
    tr_data *data = data_of();
    tr_settings s = settings_of("dense");
    s.late_rank = LATE;
    s.late_seconds = 0.02;
    const tr_hooks hooks = {.step = on_step, .test = on_test};
    tr_team t = {.settings = &s, .data = data, .hooks = &hooks};
    account accounts[WORLD];
    size_t n = 1000000;
    open_team(&t, accounts, n);
    const float *first = tr_model_weights(t.workers[0].model, &n);
    assert_true(n <= 1000000);
    float *begun = test_room(n * sizeof *begun);
    memcpy(begun, first, n * sizeof *begun);
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_int_equal(pthread_create(&t.workers[r].thread, NULL, take_rounds, &accounts[r]), 0);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        pthread_join(t.workers[r].thread, NULL);
        assert_false(accounts[r].failed);
        assert_memory_equal(t.workers[r].start, t.workers[0].start, n * sizeof(float));
    }
    assert_true(accounts[LATE].absences > 0 && accounts[LATE].absences < ROUNDS);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < WORLD; r++) {
            sum += accounts[r].moved[i] / WORLD;
        }
        assert_true(fabs((double)begun[i] - (double)t.workers[0].start[i] - sum) < 1e-6);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        free(accounts[r].moved);
    }
    free(begun);
    tr_team_dismiss(&t);
    tr_data_free(data);
}

/* ---- whole runs ---------------------------------------------------------------------------------------------------------- */

static tr_result run(const tr_settings *s, const tr_data *data, uint64_t *absent)
{
    tr_result result = {0};
    char why_text[TR_WHY] = "";
    const tr_hooks hooks = {.context = absent, .step = on_step, .test = on_test};
    *absent = 0;
    if (tr_run(&result, s, data, &hooks, NULL, 0, why_text) != 0) {
        fail_msg("%s", why_text);
    }
    assert_int_equal(result.exchanges, ROUNDS);
    assert_int_equal(result.absences, *absent);
    return result;
}

static void a_quorum_changes_no_bits_if_nobody_is_late(void **state)
{
    (void)state;
    tr_data *data = data_of();
    uint64_t absent = 0;
    tr_settings s = settings_of("terse");
    s.grace = 600;
    uint64_t hash = run(&s, data, &absent).weights_hash;
    assert_int_equal(absent, 0);
    s.quorum = 0;
    assert_int_equal(run(&s, data, &absent).weights_hash, hash);
    tr_data_free(data);
}

/* Weights are compared after every round, absent workers' too. */
static void replicas_stay_equal_if_somebody_is_late(void **state)
{
    (void)state;
    tr_data *data = data_of();
    uint64_t absent = 0;
    static const char *const recipes[] = {"terse", "ef+randomblock@0.1", "powersgd@2", "ef+topk@0.05"};
    for (uint32_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        tr_settings s = settings_of(recipes[i]);
        s.late_rank = i % WORLD; /* worker 0, which counts the grace, too */
        s.late_seconds = 0.01;
        (void)run(&s, data, &absent);
        assert_true(absent > 0);
    }
    tr_data_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_move_is_lost),
        cmocka_unit_test(a_quorum_changes_no_bits_if_nobody_is_late),
        cmocka_unit_test(replicas_stay_equal_if_somebody_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
