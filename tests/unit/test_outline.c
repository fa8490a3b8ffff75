/* Outlines of a step: what they say that ranks send is what ranks send in lockstep, message by message. */
#include "world.h"

#include "exchange/exchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 16, MESSAGES = 128, TENSORS = 7, PASSES = 1 << 10 };

static const uint64_t lens[TENSORS] = {1000, 2000, 5, 3000, 0, 700, 9000};
static const uint32_t groups[TENSORS] = {2, 2, 1, 1, 1, 0, 0};

/* Lengths of messages from rank to rank, in the order in which they were sent. */
typedef struct mail {
    uint64_t frames[RANKS][RANKS][MESSAGES], votes[RANKS][RANKS];
    size_t frame_n[RANKS][RANKS];
    uint64_t lengths; /* bytes of announced lengths of all ranks */
} mail;

static void add_frame(mail *l, uint32_t from, uint32_t to, uint64_t len)
{
    assert_true(l->frame_n[from][to] < MESSAGES);
    l->frames[from][to][l->frame_n[from][to]++] = len;
}

/* ---- as it is ------------------------------------------------------------------------------------------------------------ */

static tg_status tap(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    mail *l = context;
    (void)kind;
    if (len >= 4 && memcmp(data, "TGFR", 4) == 0) {
        add_frame(l, from, to, len);
    } else if (len >= 4 && memcmp(data, "TGVO", 4) == 0) {
        l->votes[from][to] += len;
    } else {
        l->lengths += len;
    }
    return TG_OK;
}

/* ---- as the outline says --------------------------------------------------------------------------------------------------- */

typedef struct visit {
    mail *log;
    uint32_t rank;
    size_t groups;
    tg_work passes[PASSES];
    size_t group_of[PASSES], pass_n;
    size_t last_group;
} visit;

static void on_work(void *context, size_t group, const tg_work *work)
{
    visit *v = context;
    assert_true(v->pass_n < PASSES);
    assert_true(group >= v->last_group);
    v->last_group = group;
    v->group_of[v->pass_n] = group;
    v->passes[v->pass_n++] = *work;
}

static void on_carry(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    visit *v = context;
    assert_int_equal(op->rank, v->rank);
    assert_true(group >= v->last_group);
    for (uint32_t p = 0; p < op->world; p++) {
        uint64_t len = op->sends[p].len;
        if (len > 0 && talk == TG_TALK_MESSAGES) {
            add_frame(v->log, v->rank, p, len);
        } else if (talk == TG_TALK_CLOSING) {
            v->log->votes[v->rank][p] += len;
        } else {
            v->log->lengths += len;
        }
    }
}

static tg_outline outline(visit *v, const test_setup *setup, const test_model *m, uint32_t world, uint32_t host_size,
                          const double *bits)
{
    const tg_outline_visitor visitor = {on_work, on_carry, v};
    tg_options opt = test_setup_options(setup);
    tg_outline out = {.groups = 0};
    opt.group_of = groups;
    opt.host_size = host_size;
    MUST(tg_exchange_outline(&out, &visitor, setup->recipe, m->tensors, m->tensor_n, v->rank, world, &opt, bits, why));
    v->groups = out.groups;
    return out;
}

/* ---- both -------------------------------------------------------------------------------------------------------------- */

static int by_len(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Groups may be in another order; so lengths are compared in order of size. */
static void compare(mail *real, mail *told, uint32_t world, const char *recipe)
{
    for (uint32_t from = 0; from < world; from++) {
        for (uint32_t to = 0; to < world; to++) {
            size_t n = real->frame_n[from][to];
            if (n != told->frame_n[from][to]) {
                fail_msg("%s: rank %u sends %zu frames to rank %u of %u, not %zu", recipe, from, n, to, world,
                         told->frame_n[from][to]);
            }
            qsort(real->frames[from][to], n, sizeof(uint64_t), by_len);
            qsort(told->frames[from][to], n, sizeof(uint64_t), by_len);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(real->frames[from][to][i], told->frames[from][to][i]);
            }
            assert_int_equal(real->votes[from][to],
                             2 * told->votes[from][to]); /* the opening vote, and the closing one */
        }
    }
}

/* Each element of the model is encoded once by every rank that uses the recipe, all ranks together. */
static uint64_t encoded(const visit *v)
{
    uint64_t n = 0;
    for (size_t i = 0; i < v->pass_n; i++) {
        n += v->passes[i].pass == TG_PASS_ENCODE ? v->passes[i].elements + v->passes[i].dense_elements : 0;
    }
    return n;
}

static void check_setup(const test_setup *setup, uint32_t world, uint32_t host_size, bool is_exact)
{
    mail *real = calloc(1, sizeof *real), *told = calloc(1, sizeof *told);
    const tg_tap on = {tap, real};
    test_world w = test_world_new_hosted(world, setup, groups, host_size);
    visit *v = calloc(1, sizeof *v);
    if (test_world_exists(&w)) {
        test_world_fill(&w, 0);
        MUST(test_world_reduce(&w, 0, &on, why));
        for (uint32_t r = 0; r < world; r++) {
            *v = (visit){.log = told, .rank = r};
            tg_outline o = outline(v, setup, &w.models[r], world, host_size, NULL);
            assert_string_equal(o.exchange, tg_exchange_name(w.ranks[r]));
            assert_int_equal(o.groups, tg_exchange_groups(w.ranks[r]));
            assert_int_equal(o.is_exact, is_exact);
            assert_true(encoded(v) >= 15705 || world == 1);
        }
        if (is_exact) {
            compare(real, told, world, setup->recipe);
            assert_int_equal(told->lengths, 0);
            assert_int_equal(real->lengths, 0);
        } else {
            assert_true(told->lengths > 0);
        }
    }
    free(v);
    test_world_free(&w);
    free(told);
    free(real);
}

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 8, 11, 16};

static void test_exact_lengths(void **state)
{
    static const struct {
        const char *recipe, *exchange;
    } rows[] = {{"dense", NULL},
                {"fp16", NULL},
                {"bf16", "gather"},
                {"terngrad", NULL},
                {"orq@9", NULL},
                {"fp8", "shard"},
                {"ef-signsgd", NULL},
                {"random-block@0.1", NULL},
                {"random-k@0.05", NULL},
                {"signsgd", NULL},
                {"powersgd@2", NULL},
                {"qsgd@16", "server"},
                {"ef@again=fp16+sign", "shard"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_setup setup = {.recipe = rows[i].recipe, .exchange = rows[i].exchange, .lens = lens, .tensor_n = TENSORS};
        for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
            check_setup(&setup, worlds[k], 0, true);
        }
    }
}

static void test_hosts(void **state)
{
    static const char *const recipes[] = {"fp16", "terngrad", "random-block@0.1", "powersgd@2"};
    static const uint32_t sizes[][2] = {{4, 2}, {6, 3}, {8, 4}, {12, 2}, {16, 2}, {4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        test_setup setup = {.recipe = recipes[i], .lens = lens, .tensor_n = TENSORS};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            check_setup(&setup, sizes[k][0], sizes[k][1], true);
        }
    }
}

static void test_announced_lengths(void **state)
{
    static const char *const recipes[] = {"ef+topk@0.01", "adacomp", "co3", "fp8+rans", "topk@0.01,coords=shared"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        test_setup setup = {.recipe = recipes[i], .lens = lens, .tensor_n = TENSORS};
        for (uint32_t world = 2; world <= 16; world *= 2) {
            check_setup(&setup, world, 0, false);
        }
    }
}

/* ---- lengths by bits ------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const mail *l, uint32_t world)
{
    uint64_t sum = 0;
    for (uint32_t from = 0; from < world; from++) {
        for (uint32_t to = 0; to < world; to++) {
            for (size_t i = 0; i < l->frame_n[from][to]; i++) {
                sum += l->frames[from][to][i];
            }
        }
    }
    return sum;
}

/* With the bits that a codec takes, bytes are those of a step. Recipes that send as many values of a mean as of a gradient. */
static void check_bits(const char *recipe, uint32_t world, double tolerance)
{
    mail *real = calloc(1, sizeof *real), *told = calloc(1, sizeof *told);
    const tg_tap on = {tap, real};
    test_setup setup = {.recipe = recipe, .lens = lens, .tensor_n = TENSORS};
    test_world w = test_world_new_grouped(world, &setup, groups);
    visit *v = calloc(1, sizeof *v);
    double bits[TENSORS] = {0};
    test_world_fill(&w, 0);
    MUST(test_world_reduce(&w, 0, &on, why));
    for (size_t t = 0; t < TENSORS; t++) {
        tg_traffic traffic;
        MUST(tg_exchange_traffic(&traffic, w.ranks[0], t, why));
        bits[t] = lens[t] == 0 ? 0 : 8.0 * (double)traffic.len / (double)lens[t];
    }
    for (uint32_t r = 0; r < world; r++) {
        *v = (visit){.log = told, .rank = r};
        (void)outline(v, &setup, &w.models[r], world, 0, bits);
    }
    double ratio = (double)bytes_of(told, world) / (double)bytes_of(real, world);
    if (!(fabs(ratio - 1) < tolerance)) {
        fail_msg("%s by %u ranks: %.4f of the bytes", recipe, world, ratio);
    }
    free(v);
    test_world_free(&w);
    free(told);
    free(real);
}

static void test_lengths_by_bits(void **state)
{
    (void)state;
    for (uint32_t world = 2; world <= 16; world *= 2) {
        check_bits("ef+topk@0.01", world, 0.06);
        check_bits("ef+fp4+rans", world, 0.06);
        check_bits("fp8+huffman", world, 0.06);
        check_bits("topk@0.01,coords=shared", world, 0.12);
    }
}

/* ---- LGC ------------------------------------------------------------------------------------------------------------------- */

static const tg_work *find(const visit *v, tg_pass pass, size_t group)
{
    for (size_t i = 0; i < v->pass_n; i++) {
        if (v->passes[i].pass == pass && v->group_of[i] == group) {
            return &v->passes[i];
        }
    }
    return NULL;
}

#define SMALL ",e1=4,e2=4,e3=4,e4=4,z=1,d1=4,d2=4,d3=4,d4=4"

static tg_status tap_learned(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    (void)kind;
    if (from != to && len >= 4 && memcmp(data, "TGLG", 4) == 0) {
        add_frame(context, from, to, len);
    }
    return TG_OK;
}

/* The second step of a run that learns in the first. Lengths are exact but for the leader's indices, and innovations. */
static void check_learned(const char *form, uint32_t world)
{
    char recipe[200];
    (void)snprintf(recipe, sizeof recipe, "ef+topk@0.05,coords=shared+autoencoder@%s,dense=0,learn=1,enough=1e9" SMALL,
                   form);
    mail *real = calloc(1, sizeof *real), *told = calloc(1, sizeof *told);
    visit *v = calloc(1, sizeof *v);
    const tg_tap on = {tap_learned, real};
    test_setup setup = {.recipe = recipe, .lens = lens, .tensor_n = TENSORS};
    test_world w = test_world_new(world, &setup);
    double bits[TENSORS];
    uint64_t sparse_n = 0, slack = strcmp(form, "server") == 0 ? 100 : 0;
    test_world_step(&w, 0);
    test_world_fill(&w, world); /* led by rank 0, too */
    MUST(test_world_reduce(&w, world, &on, why));
    for (size_t t = 1; t < TENSORS; t++) { /* the first is sent whole */
        sparse_n += lens[t];
    }
    for (uint32_t pass = 0; pass < 2; pass++) { /* with no bits for indices, and with those that they take */
        uint64_t rest = pass == 0 ? 0 : real->frames[0][1][0] - told->frames[0][1][0];
        memset(told, 0, sizeof *told);
        for (size_t t = 0; t < TENSORS; t++) {
            bits[t] = 8.0 * (double)rest / (double)sparse_n;
        }
        for (uint32_t r = 0; r < world; r++) {
            *v = (visit){.log = told, .rank = r};
            tg_outline o = outline(v, &setup, &w.models[r], world, 0, bits);
            assert_int_equal(o.phase, 3);
            assert_int_equal(o.groups, 1);
            assert_int_equal(o.residual_len, 2 * 4 * 15705);
            assert_true(r > 0 || !o.is_exact);
        }
    }
    for (uint32_t from = 0; from < world; from++) {
        for (uint32_t to = 0; to < world; to++) {
            size_t n = from == to ? 0 : real->frame_n[from][to];
            assert_true(from == to || n == told->frame_n[from][to]);
            for (size_t i = 0; i < n; i++) {
                uint64_t is = real->frames[from][to][i], was = told->frames[from][to][i];
                assert_true(was + (from == 0 && i == 0) >= is && was <= is + slack + (from == 0 && i == 0));
            }
        }
    }
    free(v);
    test_world_free(&w);
    free(told);
    free(real);
}

static void test_learned(void **state)
{
    (void)state;
    for (uint32_t world = 2; world <= 16; world *= 2) {
        check_learned("ring", world);
        check_learned("server", world);
    }
}

/* All ranks follow; one leads; codes are decoded by all in a ring, and by the server for each rank. */
static void test_learned_passes(void **state)
{
    static const struct {
        const char *form;
        uint32_t rank;
        size_t leads, decodes;
    } cases[] = {{"ring", 0, 1, 1}, {"ring", 2, 0, 1}, {"server", 0, 1, 3}, {"server", 2, 0, 0}};
    test_model m = test_model_new(lens, TENSORS, TG_FP32);
    mail *told = calloc(1, sizeof *told);
    visit *v = calloc(1, sizeof *v);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char recipe[100];
        size_t n[TG_PASS_N] = {0};
        (void)snprintf(recipe, sizeof recipe, "ef+topk@0.05,coords=shared+autoencoder@%s", cases[i].form);
        test_setup setup = {.recipe = recipe, .lens = lens, .tensor_n = TENSORS};
        *v = (visit){.log = told, .rank = cases[i].rank};
        (void)outline(v, &setup, &m, 3, 0, NULL);
        for (size_t k = 0; k < v->pass_n; k++) {
            n[v->passes[k].pass] += v->passes[k].elements > 0;
        }
        assert_int_equal(n[TG_PASS_ENCODE], 1);
        assert_int_equal(n[TG_PASS_LEAD], cases[i].leads);
        assert_int_equal(n[TG_PASS_FOLLOW], 1);
        assert_int_equal(n[TG_PASS_DECODE], cases[i].decodes);
        assert_int_equal(n[TG_PASS_COPY], 1);
        assert_int_equal(find(v, TG_PASS_FOLLOW, 0)->elements, 14705);
        assert_int_equal(find(v, TG_PASS_COPY, 1)->elements, 15705);
    }
    free(v);
    free(told);
    test_model_free(&m);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------------------- */

/* By gather a rank encodes a group, checks the frames of all, and sums them after the vote. */
static void test_passes(void **state)
{
    mail *told = calloc(1, sizeof *told);
    visit *v = calloc(1, sizeof *v);
    test_setup setup = {.recipe = "ef+topk@0.01", .exchange = "gather", .lens = lens, .tensor_n = TENSORS};
    static const uint64_t longer[TENSORS] = {1000, 2000, 5, 3000, 0, 700, 300000};
    test_model m = test_model_new(longer, TENSORS, TG_FP32);
    (void)state;
    m.tensors[5].kind = TG_BIAS; /* 700 elements of group 0, which are sent as they are */
    *v = (visit){.log = told, .rank = 1};
    tg_outline o = outline(v, &setup, &m, 3, 0, NULL);
    assert_int_equal(o.groups, 3);
    assert_int_equal(o.residual_len, 2 * 4 * 306005);
    const tg_work *encode = find(v, TG_PASS_ENCODE, 0), *sum = find(v, TG_PASS_SUM, 3);
    assert_non_null(encode);
    assert_int_equal(encode->elements, 300000);
    assert_int_equal(encode->chunks, 2);
    assert_int_equal(encode->dense_elements, 700);
    assert_int_equal(encode->dense_chunks, 1);
    assert_int_equal(find(v, TG_PASS_ENCODE, 2)->elements, 3000);
    assert_int_equal(find(v, TG_PASS_CHECK, 0)->elements, 300000);
    assert_int_equal(sum->frames, 3);
    assert_int_equal(sum->elements, 300000);
    test_model_free(&m);
    free(v);
    free(told);
}

/* A model and a world for which there would be no memory. */
static void test_large(void **state)
{
    const uint64_t large[] = {UINT64_C(1) << 34, UINT64_C(1) << 30};
    const tg_tensor tensors[] = {{"a", &large[0], 1, TG_DENSE, TG_FP32}, {"b", &large[1], 1, TG_DENSE, TG_FP32}};
    mail *told = calloc(1, sizeof *told);
    visit *v = calloc(1, sizeof *v);
    (void)state;
    *v = (visit){.log = told, .rank = 0};
    const tg_outline_visitor visitor = {on_work, on_carry, v};
    tg_outline out;
    MUST(tg_exchange_outline(&out, &visitor, "terngrad", tensors, 2, 0, 16, NULL, NULL, why));
    assert_string_equal(out.exchange, "shard");
    assert_int_equal(told->frame_n[0][1], 2);
    free(v);
    free(told);
}

static void test_refusals(void **state)
{
    const tg_outline_visitor visitor = {on_work, on_carry, NULL};
    uint64_t n = 100;
    const tg_tensor tensor = {"a", &n, 1, TG_DENSE, TG_FP32};
    tg_outline out;
    (void)state;
    MUST_FAIL(TG_E_RECIPE, "at least three tensors",
              tg_exchange_outline(&out, &visitor, "lgc-ring", &tensor, 1, 0, 2, NULL, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "rank 2", tg_exchange_outline(&out, &visitor, "fp16", &tensor, 1, 2, 2, NULL, NULL, why));
    MUST_FAIL(TG_E_RECIPE, "nothing",
              tg_exchange_outline(&out, &visitor, "nothing", &tensor, 1, 0, 2, NULL, NULL, why));
}

static void ignore_work(void *context, size_t group, const tg_work *work)
{
    (void)context;
    (void)group;
    (void)work;
}

static void ignore_carry(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    (void)context;
    (void)group;
    (void)talk;
    (void)op;
}

/* Fails each allocation in turn. */
static void test_memory(void **state)
{
    const tg_outline_visitor visitor = {ignore_work, ignore_carry, NULL};
    test_model m = test_model_new(lens, TENSORS, TG_FP32);
    test_allocator a;
    tg_status status = TG_E_MEMORY;
    (void)state;
    for (uint64_t at = 1; status == TG_E_MEMORY; at++) {
        tg_options opt = TG_OPTIONS_INIT;
        tg_outline out;
        test_allocator_start(&a, at, false);
        opt.allocator = &a.allocator;
        opt.host_size = 2;
        opt.group_of = groups;
        status = tg_exchange_outline(&out, &visitor, "ef+topk@0.01", m.tensors, TENSORS, 0, 4, &opt, NULL, NULL);
        assert_int_equal(a.held, 0);
    }
    assert_int_equal(status, TG_OK);
    test_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_lengths),   cmocka_unit_test(test_hosts),  cmocka_unit_test(test_announced_lengths),
        cmocka_unit_test(test_lengths_by_bits), cmocka_unit_test(test_passes), cmocka_unit_test(test_large),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_memory), cmocka_unit_test(test_learned),
        cmocka_unit_test(test_learned_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
