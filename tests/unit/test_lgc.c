/* LGC's two exchanges: phases, replicas, what is remembered, what is learned, state, damage. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 6, RANK_MAX = 8, LONGEST = 900, TOTAL = 60 + 9 + 900 + 700 + 0 + 300 };

static const uint64_t dims[TENSOR_N] = {60, 9, 900, 700, 0, 300}; /* first, norm, coded, coded, coded and empty, last */
static const tg_kind kinds[TENSOR_N] = {TG_CONV, TG_NORM, TG_CONV, TG_DENSE, TG_DENSE, TG_DENSE};

#define SMALL ",e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
#define QUICK ",dense=3,learn=6,enough=1e9" SMALL
#define RING "ef+topk@0.05,coords=shared+autoencoder@ring" QUICK
#define SERVER "ef+topk@0.05,coords=shared+autoencoder@server" QUICK

static const char *const recipes[] = {
    RING,
    RING ",order=index",
    RING ",code=fp16",
    RING ",code=bf16,own=yes",
    RING ",refresh=3,again=2",
    "momentum+topk@0.05,coords=shared+autoencoder@ring" QUICK,
    "topk@0.05,coords=shared+autoencoder@ring" QUICK,
    SERVER,
    SERVER ",order=index,code=fp16,share=0.3",
};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

typedef struct world {
    uint32_t n;
    tg_tensor tensors[TENSOR_N];
    tg_exchange *ranks[RANK_MAX];
    float grads[RANK_MAX][TENSOR_N][LONGEST];
} world;

static tg_options options(void)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 5;
    opt.verify_every = 1;
    return opt;
}

static void name_tensors(world *w)
{
    static const char *const names[TENSOR_N] = {"first", "norm", "second", "third", "empty", "last"};
    for (size_t t = 0; t < TENSOR_N; t++) {
        w->tensors[t] = (tg_tensor){names[t], &dims[t], 1, kinds[t], TG_FP32};
    }
}

static world *world_open(uint32_t n, const char *recipe)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->n = n;
    name_tensors(w);
    for (uint32_t r = 0; r < n; r++) {
        tg_options opt = options();
        MUST(tg_exchange_new(&w->ranks[r], recipe, w->tensors, TENSOR_N, r, n, &opt, why));
    }
    return w;
}

static void world_close(world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_exchange_free(w->ranks[r]);
    }
    free(w);
}

/* Gradients that share most of what they are. */
static void world_fill(world *w, uint64_t step)
{
    for (uint32_t r = 0; r < w->n; r++) {
        test_random common = {1000 * step + 17}, own = {1000 * step + r};
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (size_t i = 0; i < dims[t]; i++) {
                w->grads[r][t][i] = (float)(t + 1) * (test_gaussian(&common) + 0.3f * test_gaussian(&own));
            }
        }
    }
}

static tg_status world_reduce(world *w, uint64_t step, const tg_tap *tap, tg_detail *why)
{
    void *grads[RANK_MAX][TENSOR_N];
    void *const *all[RANK_MAX];
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            grads[r][t] = w->grads[r][t];
        }
        all[r] = grads[r];
    }
    return tg_lockstep_reduce(NULL, w->ranks, w->n, step, all, tap, why);
}

static void world_step(world *w, uint64_t step)
{
    world_fill(w, step);
    MUST(world_reduce(w, step, NULL, why));
    for (uint32_t r = 1; r < w->n; r++) {
        assert_memory_equal(w->grads[r], w->grads[0], sizeof w->grads[0]);
    }
}

static uint32_t phase_of(const world *w)
{
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[0]);
    return now.phase;
}

/* ---- phases ------------------------------------------------------------------------------------------------------------ */

static void phases_follow_each_other(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8};
    for (size_t k = 0; k < RECIPE_N * 4; k++) {
        world *w = world_open(worlds[k % 4], recipes[k / 4]);
        bool refreshes = strstr(recipes[k / 4], "refresh") != NULL;
        for (uint64_t step = 0; step < 17; step++) {
            uint32_t since = step < 9 ? 0 : (uint32_t)(step - 9) % 5;
            uint32_t expected = step < 3 ? 1 : step < 9 || (refreshes && since >= 3) ? 2 : 3;
            assert_int_equal(phase_of(w), expected);
            world_step(w, step);
        }
        world_close(w);
    }
}

/* What goes over the wire shrinks from phase to phase; indices and their order are near their bound. */
static void each_phase_says_less(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        world *w = world_open(4, form == 0 ? RING : SERVER);
        uint64_t bytes[3] = {0};
        for (uint64_t step = 0; step < 13; step++) {
            uint32_t phase = phase_of(w);
            world_step(w, step);
            for (uint32_t r = 0; r < 4; r++) {
                tg_meter last;
                tg_exchange_meter(w->ranks[r], &last, NULL);
                bytes[phase - 1] += last.payload / (phase == 1 ? 3 : phase == 2 ? 6 : 4);
            }
        }
        print_message("payload bytes a step, all ranks: %d, %d, %d\n", (int)bytes[0], (int)bytes[1], (int)bytes[2]);
        assert_true(bytes[1] < bytes[0] && bytes[2] < bytes[1]);
        world_close(w);
    }
}

/* Where learning is not enough it goes on, and tells so. */
static void garbage_is_never_sent(void **state)
{
    (void)state;
    world *w = world_open(2, "ef+topk@0.05,coords=shared+autoencoder@ring,dense=1,learn=10,enough=1e-6" SMALL);
    for (uint64_t step = 0; step < 30; step++) {
        world_step(w, step);
    }
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[1]);
    assert_int_equal(now.phase, 2);
    assert_true(now.extended >= 5 && now.error > 0);
    world_close(w);
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------------- */

/* Gradients, summed over steps, are averages and what ranks remember; in the last phase only with feedback of the
 * autoencoder's own error, which a ring can have exactly. */
static void what_is_not_sent_is_remembered(void **state)
{
    (void)state;
    for (int with_own = 0; with_own < 2; with_own++) {
        uint64_t steps = with_own ? 20 : 9;
        world *w = world_open(3, with_own ? RING ",own=yes" : RING);
        static double given[TENSOR_N][LONGEST], got[TENSOR_N][LONGEST];
        memset(given, 0, sizeof given);
        memset(got, 0, sizeof got);
        for (uint64_t step = 0; step < steps; step++) {
            world_fill(w, step);
            for (size_t e = 0; e < (size_t)TENSOR_N * LONGEST; e++) {
                for (uint32_t r = 0; r < 3; r++) {
                    given[e / LONGEST][e % LONGEST] += (double)w->grads[r][e / LONGEST][e % LONGEST] / 3;
                }
            }
            MUST(world_reduce(w, step, NULL, why));
            for (size_t e = 0; e < (size_t)TENSOR_N * LONGEST; e++) {
                got[e / LONGEST][e % LONGEST] += (double)w->grads[0][e / LONGEST][e % LONGEST];
            }
        }
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (uint32_t r = 0; r < 3; r++) {
                float residual[LONGEST] = {0};
                MUST(tg_exchange_residual(w->ranks[r], residual, t, why));
                for (size_t i = 0; i < dims[t]; i++) {
                    got[t][i] += (double)residual[i] / 3;
                }
            }
            for (size_t i = 0; i < dims[t]; i++) {
                assert_true(fabs(given[t][i] - got[t][i]) < 1e-3);
            }
        }
        world_close(w);
    }
}

/* ---- learning ---------------------------------------------------------------------------------------------------------- */

static double error_after(const char *recipe, uint64_t steps)
{
    world *w = world_open(3, recipe);
    for (uint64_t step = 0; step < steps; step++) {
        world_step(w, step);
    }
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[2]);
    world_close(w);
    return now.error;
}

static void it_learns(void **state)
{
    (void)state;
#define MEDIUM ",dense=0,learn=1000,e1=16,e2=32,e3=32,e4=16,d1=16,d2=32,d3=32,d4=16"
    static const char ring[] = "ef+topk@0.05,coords=shared+autoencoder@ring" MEDIUM;
    static const char server[] = "ef+topk@0.05,coords=shared+autoencoder@server" MEDIUM;
    double first = error_after(ring, 2), ring_error = error_after(ring, 150), server_error = error_after(server, 150);
    print_message("relative error: %.2f at first, then ring %.2f, server %.2f\n", first, ring_error, server_error);
    assert_true(first > 0.8 && ring_error < 0.3 && server_error < 0.4);
}

/* ---- state ------------------------------------------------------------------------------------------------------------- */

typedef struct saved {
    uint8_t *bytes[RANK_MAX];
    tg_span spans[RANK_MAX];
} saved;

static saved save(const world *w)
{
    saved s;
    for (uint32_t r = 0; r < w->n; r++) {
        size_t len = tg_state_len(w->ranks[r]);
        s.bytes[r] = test_room(len);
        MUST(tg_state_save(w->ranks[r], s.bytes[r], len, why));
        s.spans[r] = (tg_span){s.bytes[r], len};
    }
    return s;
}

static void release(saved *s, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        free(s->bytes[r]);
    }
}

static void a_resumed_run_ends_in_the_same_bits(void **state)
{
    (void)state;
    static const uint64_t stops[] = {2, 5, 8, 12};
    for (size_t k = 0; k < RECIPE_N * 4; k++) {
        world *w = world_open(3, recipes[k / 4]), *other = world_open(3, recipes[k / 4]);
        uint64_t stop = stops[k % 4];
        for (uint64_t step = 0; step < stop; step++) {
            world_step(w, step);
        }
        saved s = save(w);
        for (uint32_t r = 0; r < 3; r++) {
            MUST(tg_state_load(other->ranks[r], &s.spans[r], 1, why));
        }
        for (uint64_t step = stop; step < stop + 6; step++) {
            world_step(w, step);
            world_step(other, step);
            assert_memory_equal(w->grads[0], other->grads[0], sizeof w->grads[0]);
        }
        saved a = save(w), b = save(other);
        for (uint32_t r = 0; r < 3; r++) {
            assert_memory_equal(a.bytes[r], b.bytes[r], a.spans[r].len);
        }
        release(&a, 3);
        release(&b, 3);
        release(&s, 3);
        world_close(other);
        world_close(w);
    }
}

static void another_number_of_ranks(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        world *w = world_open(3, form == 0 ? RING : SERVER), *two = world_open(2, form == 0 ? RING : SERVER);
        for (uint64_t step = 0; step < 11; step++) {
            world_step(w, step);
        }
        saved s = save(w);
        if (form == 0) {
            for (uint32_t r = 0; r < 2; r++) {
                MUST(tg_state_load(two->ranks[r], s.spans, 3, why));
            }
            assert_int_equal(phase_of(two), 3);
            world_step(two, 11);
        } else {
            MUST_FAIL(TG_E_MISMATCH, "decoders for 3 ranks", tg_state_load(two->ranks[0], s.spans, 3, why));
        }
        release(&s, 3);
        world_close(two);
        world_close(w);
    }
}

/* ---- what can go wrong ------------------------------------------------------------------------------------------------- */

typedef struct damage {
    uint64_t left; /* messages until the one that is hit */
    uint64_t at;
    bool hit;
} damage;

static tg_status hit_message(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    damage *d = context;
    (void)kind;
    (void)from;
    (void)to;
    if (len > 40 && len != sizeof(tg_detail) && d->left-- == 0) { /* no ballot, no reason */
        ((uint8_t *)data)[d->at % len] ^= 0x10;
        d->hit = true;
    }
    return TG_OK;
}

/* A message that is damaged ends the step on all ranks, leaves no trace, and the next one succeeds. */
static void damage_ends_a_step_and_no_more(void **state)
{
    (void)state;
    int hits = 0;
    for (int form = 0; form < 2; form++) {
        world *w = world_open(3, form == 0 ? RING : SERVER), *twin = world_open(3, form == 0 ? RING : SERVER);
        test_random random = {41};
        for (uint64_t step = 0; step < 13; step++) {
            for (uint64_t left = 0; left < 12; left++) {
                damage d = {.left = left, .at = test_bits(&random)};
                tg_tap tap = {hit_message, &d};
                tg_detail why = {""};
                world_fill(w, step);
                tg_status status = world_reduce(w, step, &tap, &why);
                assert_true((status != TG_OK) == d.hit);
                if (!d.hit) { /* the step has fewer messages, and went well */
                    break;
                }
                hits++;
                saved a = save(w), b = save(twin);
                for (uint32_t r = 0; r < 3; r++) {
                    assert_memory_equal(a.bytes[r], b.bytes[r], a.spans[r].len);
                }
                release(&a, 3);
                release(&b, 3);
                if (left == 11) {
                    world_step(w, step);
                }
            }
            world_step(twin, step);
        }
        world_close(twin);
        world_close(w);
    }
    assert_true(hits > 100);
}

static void gradients_that_are_not_numbers(void **state)
{
    (void)state;
    world *w = world_open(2, RING);
    for (uint64_t step = 0; step < 12; step++) {
        world_fill(w, step);
        w->grads[1][2][5] = NAN;
        MUST_FAIL(TG_E_PEER, "rank 1: the gradient of tensor 'second'", world_reduce(w, step, NULL, why));
        world_step(w, step);
    }
    world_close(w);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *exchange, *sentence;
    } cases[] = {
        {"topk@0.1+autoencoder", NULL, "'autoencoder' goes with 'topk' by coords=shared alone"},
        {"threshold@0.1,coords=shared+autoencoder", NULL, "goes with 'topk'"},
        {"topk@0.1,coords=shared,scope=model+autoencoder", NULL, "goes with 'topk'"},
        {"topk@0.1,coords=shared+autoencoder+bitmap", NULL, "goes with 'topk'"},
        {"autoencoder@star", NULL, "form must be in ring|server"},
        {"lgc-ring", "gather", "has an exchange of its own, lgc-ring"},
        {"lgc-ring", "lgc-server", "has an exchange of its own, lgc-ring"},
        {"dense", "lgc-ring", "carry recipes with 'autoencoder' alone"},
        {"lgc-ring", "star", "there is no exchange 'star'"},
    };
    world *w = world_open(1, "dense");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_options opt = options();
        tg_exchange *x = NULL;
        tg_detail why = {""};
        opt.exchange = cases[i].exchange;
        assert_true(tg_exchange_new(&x, cases[i].recipe, w->tensors, TENSOR_N, 0, 2, &opt, &why) != TG_OK);
        if (strstr(why.text, cases[i].sentence) == NULL) {
            fail_msg("%s: %s", cases[i].recipe, why.text);
        }
    }
    tg_exchange *x = NULL;
    MUST_FAIL(TG_E_RECIPE, "at least three tensors", tg_exchange_new(&x, "lgc-ring", w->tensors, 3, 0, 2, NULL, why));
    tg_codec *c = NULL;
    MUST_FAIL(TG_E_RECIPE, "has no frame to write to", tg_codec_new(&c, "lgc-ring", w->tensors, TENSOR_N, NULL, why));
    world_close(w);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        uint64_t fail_at = 1;
        for (bool failed = true; failed; fail_at++) {
            test_allocator a;
            test_allocator_start(&a, fail_at, fail_at % 2 == 0);
            world w = {.n = 1};
            name_tensors(&w);
            tg_options opt = options();
            opt.allocator = &a.allocator;
            tg_exchange *x = NULL;
            tg_detail why = {""};
            tg_status status = tg_exchange_new(&x, form == 0 ? RING : SERVER, w.tensors, TENSOR_N, 0, 2, &opt, &why);
            assert_true(status == TG_OK || status == TG_E_MEMORY);
            failed = status != TG_OK;
            tg_exchange_free(x);
            assert_int_equal(a.held, 0);
        }
        assert_true(fail_at > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_follow_each_other),
        cmocka_unit_test(each_phase_says_less),
        cmocka_unit_test(garbage_is_never_sent),
        cmocka_unit_test(what_is_not_sent_is_remembered),
        cmocka_unit_test(it_learns),
        cmocka_unit_test(a_resumed_run_ends_in_the_same_bits),
        cmocka_unit_test(another_number_of_ranks),
        cmocka_unit_test(damage_ends_a_step_and_no_more),
        cmocka_unit_test(gradients_that_are_not_numbers),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
