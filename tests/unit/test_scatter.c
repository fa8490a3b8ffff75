/* Reduce-scatter: slices, sums in rank order, failures, over all group sizes, in lockstep and between threads. */
#include "support.h"
#include "tersegrad/scatter.h"
#include "world.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 3, WORLD_MAX = 11 };
static uint64_t lens[TENSORS] = {1, 1003, 40009};

/* A world whose ranks scatter: models, and where their slices go. */
typedef struct scattering {
    uint32_t world;
    tg_exchange *ranks[WORLD_MAX];
    test_model models[WORLD_MAX], outs[WORLD_MAX];
    tg_op ops[WORLD_MAX];
} scattering;

static void open_world(scattering *s, uint32_t world, const char *recipe, tg_dtype dtype, uint32_t threads)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.threads = threads;
    s->world = world;
    for (uint32_t r = 0; r < world; r++) {
        test_random random = {r + 1};
        s->models[r] = test_model_new(lens, TENSORS, dtype);
        s->outs[r] = test_model_new(lens, TENSORS, dtype);
        test_model_fill(&s->models[r], &random);
        MUST(tg_scatter_new(&s->ranks[r], recipe, s->models[r].tensors, TENSORS, r, world, &opt, why));
    }
}

static void close_world(scattering *s)
{
    for (uint32_t r = 0; r < s->world; r++) {
        tg_exchange_free(s->ranks[r]);
        test_model_free(&s->models[r]);
        test_model_free(&s->outs[r]);
    }
}

static void begin(scattering *s, uint64_t step)
{
    for (uint32_t r = 0; r < s->world; r++) {
        MUST(tg_scatter_begin(&s->ops[r], s->ranks[r], step, (const void *const *)s->models[r].grads, why));
        assert_int_equal(s->ops[r].kind, TG_ALLTOALLV);
    }
}

static void carry(const scattering *s)
{
    for (uint32_t from = 0; from < s->world; from++) {
        for (uint32_t to = 0; to < s->world; to++) {
            tg_span sent = s->ops[from].sends[to], received = s->ops[to].recvs[from];
            assert_int_equal(sent.len, received.len);
            assert_true((sent.len == 0) == (from == to));
            if (sent.len > 0) {
                memcpy(received.data, sent.data, sent.len);
            }
        }
    }
}

static void end(scattering *s, float divisor)
{
    for (uint32_t r = 0; r < s->world; r++) {
        MUST(tg_scatter_end(s->ranks[r], s->outs[r].grads, divisor, why));
    }
}

/* What a value becomes on a wire of this type. */
static float on_the_wire(float value, tg_dtype wire)
{
    uint16_t half[2];
    tg_narrow(wire == TG_FP32 ? (void *)&value : half, &value, wire, 1);
    if (wire != TG_FP32) {
        tg_widen(&value, half, wire, 1);
    }
    return value;
}

/* Every slice is the sum in rank order, in fp32, of what the wire makes of values, over the divisor, rounded once. */
static void check_sums(const scattering *s, tg_dtype wire, tg_dtype dtype, float divisor)
{
    for (uint32_t r = 0; r < s->world; r++) {
        for (size_t t = 0; t < TENSORS; t++) {
            uint64_t first = 0, n = 0;
            tg_slice(&first, &n, lens[t], r, s->world);
            for (uint64_t i = 0; i < n; i++) {
                float sum = on_the_wire(test_model_get(&s->models[0], t, first + i), wire);
                for (uint32_t p = 1; p < s->world; p++) {
                    sum += on_the_wire(test_model_get(&s->models[p], t, first + i), wire);
                }
                float expected = on_the_wire(sum / divisor, dtype), got = test_model_get(&s->outs[r], t, i);
                assert_memory_equal(&expected, &got, sizeof got);
            }
        }
    }
}

static void slices_cover_all_elements_once(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        for (uint32_t slices = 1; slices < 12; slices++) {
            uint64_t at = 0, first = 99, slice_n = 99;
            for (uint32_t s = 0; s < slices; s++) {
                tg_slice(&first, &slice_n, n, s, slices);
                assert_int_equal(first, at);
                assert_int_equal(slice_n, n / slices + (s < n % slices ? 1 : 0));
                at += slice_n;
            }
            assert_int_equal(at, n);
            tg_slice(&first, &slice_n, n, slices, slices);
            assert_int_equal(first + slice_n, 0);
        }
    }
}

static void sums_in_rank_order(void **state)
{
    static const struct {
        const char *recipe;
        tg_dtype wire, dtype;
    } cases[] = {{"dense", TG_FP32, TG_FP32},
                 {"bf16", TG_BF16, TG_FP32},
                 {"fp16", TG_FP16, TG_FP32},
                 {"bf16", TG_BF16, TG_BF16},
                 {"fp16", TG_FP16, TG_FP16}};
    static const uint32_t worlds[] = {1, 2, 3, 8, WORLD_MAX};
    (void)state;
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            scattering s;
            lens[2] = worlds[w] == 2 && c < 2 ? 600011 : 40009; /* more than a chunk */
            float divisors[] = {(float)worlds[w], 1.0f, 0.3f};
            open_world(&s, worlds[w], cases[c].recipe, cases[c].dtype, 1 + c % 2);
            for (uint64_t step = 0; step < 3; step++) {
                begin(&s, step);
                carry(&s);
                end(&s, divisors[step]);
                check_sums(&s, cases[c].wire, cases[c].dtype, divisors[step]);
            }
            close_world(&s);
        }
    }
}

/* The same slices as the first half of shard: what a rank sends is a frame of `shard`, and the average that of its owner. */
static void every_recipe_of_fixed_length_works(void **state)
{
    static const char *const recipes[] = {"sign",
                                          "ef+qsgd@16",
                                          "ternary",
                                          "linear@16",
                                          "natural",
                                          "ef+fp8",
                                          "ef+fp4",
                                          "orq@9",
                                          "bingrad",
                                          "ef+randomk@0.1",
                                          "randomblock@0.1,unbiased=yes",
                                          "mxfp8",
                                          "ef+mxfp4@hadamard=64",
                                          "nvfp4@round=random",
                                          "momentum@0.9+bf16"};
    (void)state;
    for (size_t c = 0; c < sizeof recipes / sizeof *recipes; c++) {
        scattering one, three;
        open_world(&one, 3, recipes[c], TG_FP32, 1);
        open_world(&three, 3, recipes[c], TG_FP32, 3);
        for (uint64_t step = 0; step < 3; step++) {
            begin(&one, step);
            begin(&three, step);
            carry(&one);
            carry(&three);
            end(&one, 3.0f);
            end(&three, 3.0f);
        }
        for (uint32_t r = 0; r < 3; r++) {
            uint64_t first = 0, n = 0;
            tg_slice(&first, &n, lens[2], r, 3);
            assert_memory_equal(one.outs[r].grads[2], three.outs[r].grads[2], n * sizeof(float));
        }
        close_world(&one);
        close_world(&three);
    }
}

/* ---- threads ------------------------------------------------------------------------------------------------------------ */

typedef struct seat {
    scattering *s;
    tg_link *link;
    uint32_t rank;
    tg_status status;
    tg_detail why;
} seat;

static void *run_rank(void *context)
{
    seat *own = context;
    uint32_t r = own->rank;
    own->status = tg_handshake(own->s->ranks[r], own->link, NULL, &own->why);
    for (uint64_t step = 0; step < 2 && own->status == TG_OK; step++) {
        own->status = tg_reduce_scatter(own->s->ranks[r], own->link, step, own->s->outs[r].grads,
                                        (const void *const *)own->s->models[r].grads, (float)own->s->world, &own->why);
    }
    return NULL;
}

static void run_threads(scattering *s, seat *seats, uint64_t *sent)
{
    tg_threads *threads = NULL;
    pthread_t ids[WORLD_MAX];
    MUST(tg_threads_new(&threads, s->world, 20000, NULL, why));
    for (uint32_t r = 0; r < s->world; r++) {
        seats[r] = (seat){.s = s, .link = tg_threads_link(threads, r), .rank = r};
        assert_int_equal(pthread_create(&ids[r], NULL, run_rank, &seats[r]), 0);
    }
    *sent = 0;
    for (uint32_t r = 0; r < s->world; r++) {
        assert_int_equal(pthread_join(ids[r], NULL), 0);
        *sent += tg_threads_link(threads, r)->sent_len;
    }
    tg_threads_free(threads);
}

static void threads_give_the_same(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 8, WORLD_MAX};
    (void)state;
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        scattering s;
        seat seats[WORLD_MAX];
        uint64_t sent = 0;
        open_world(&s, worlds[w], "bf16", TG_FP32, 1);
        run_threads(&s, seats, &sent);
        for (uint32_t r = 0; r < s.world; r++) {
            assert_int_equal(seats[r].status, TG_OK);
            tg_meter total;
            tg_exchange_meter(s.ranks[r], NULL, &total);
            assert_int_equal(total.steps, 2);
            assert_true(total.payload + total.header <= sent); /* which has the handshake, too */
        }
        check_sums(&s, TG_BF16, TG_FP32, (float)s.world);
        close_world(&s);
    }
}

/* ---- failures --------------------------------------------------------------------------------------------------------------- */

static void a_rank_that_refuses_its_data_fails_all(void **state)
{
    (void)state;
    scattering s;
    seat seats[WORLD_MAX];
    uint64_t sent = 0;
    open_world(&s, 3, "ef+qsgd@16", TG_FP32, 1);
    test_model_set(&s.models[1], 1, 5, NAN);
    run_threads(&s, seats, &sent);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(seats[r].status, r == 1 ? TG_E_NONFINITE : TG_E_PEER);
        assert_non_null(strstr(seats[r].why.text, r == 1 ? "NaN" : "rank 1"));
        float residual[1003];
        MUST(tg_exchange_residual(s.ranks[r], residual, 1, why));
        for (size_t i = 0; i < 1003; i++) {
            assert_true(residual[i] == 0);
        }
    }
    test_model_set(&s.models[1], 1, 5, 1);
    begin(&s, 1); /* the next step may begin */
    carry(&s);
    end(&s, 3);
    close_world(&s);
}

static void damage_is_found(void **state)
{
    (void)state;
    scattering s;
    open_world(&s, 2, "bf16", TG_FP32, 1);
    begin(&s, 4);
    carry(&s);
    ((uint8_t *)s.ops[1].recvs[0].data)[s.ops[1].recvs[0].len / 2] ^= 1;
    MUST(tg_scatter_end(s.ranks[0], s.outs[0].grads, 2, why));
    MUST_FAIL(TG_E_FRAME, "from rank 0", tg_scatter_end(s.ranks[1], s.outs[1].grads, 2, why));
    begin(&s, 5);
    MUST_FAIL(TG_E_ARGUMENT, "has not ended",
              tg_scatter_begin(&s.ops[0], s.ranks[0], 6, (const void *const *)s.models[0].grads, why));
    tg_exchange_cancel(s.ranks[0]);
    MUST(tg_scatter_begin(&s.ops[0], s.ranks[0], 6, (const void *const *)s.models[0].grads, why));
    carry(&s);
    MUST_FAIL(TG_E_MISMATCH, "step", tg_scatter_end(s.ranks[1], s.outs[1].grads, 2, why));
    close_world(&s);
}

static tg_status make(const char *recipe, uint32_t host_size, tg_detail *why)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.host_size = host_size;
    test_model m = test_model_new(lens, TENSORS, TG_FP32);
    tg_exchange *x = NULL;
    tg_status status = tg_scatter_new(&x, recipe, m.tensors, TENSORS, 0, 4, &opt, why);
    tg_exchange_free(x);
    test_model_free(&m);
    return status;
}

static void what_cannot_be_scattered_is_refused(void **state)
{
    (void)state;
    MUST_FAIL(TG_E_RECIPE, "'topk' has indices", make("topk@0.1", 1, why));
    MUST_FAIL(TG_E_RECIPE, "'topk' has indices", make("topk@0.1,coords=shared", 1, why));
    MUST_FAIL(TG_E_RECIPE, "'randomk' has indices", make("randomk@0.1,coords=own", 1, why));
    MUST_FAIL(TG_E_RECIPE, "scope=model", make("randomk@0.1,scope=model", 1, why));
    MUST_FAIL(TG_E_RECIPE, "'rans' depend on values", make("qsgd@16+rans", 1, why));
    MUST_FAIL(TG_E_RECIPE, "'lossless' depend on values", make("bf16+lossless", 1, why));
    MUST_FAIL(TG_E_RECIPE, "exchange of its own", make("lowrank@4", 1, why));
    MUST_FAIL(TG_E_ARGUMENT, "no hosts", make("bf16", 2, why));
    scattering s;
    open_world(&s, 1, "bf16", TG_FP32, 1);
    MUST_FAIL(TG_E_ARGUMENT, "tg_reduce_scatter", tg_exchange_begin(s.ranks[0], 0, s.models[0].grads, why));
    MUST_FAIL(TG_E_ARGUMENT, "no step", tg_scatter_end(s.ranks[0], s.outs[0].grads, 1, why));
    begin(&s, 0);
    MUST_FAIL(TG_E_ARGUMENT, "divided", tg_scatter_end(s.ranks[0], s.outs[0].grads, 0, why));
    MUST_FAIL(TG_E_ARGUMENT, "no place", tg_scatter_end(s.ranks[0], NULL, 1, why));
    end(&s, 1);
    tg_exchange *other = NULL;
    MUST(tg_exchange_new(&other, "bf16", s.models[0].tensors, TENSORS, 0, 1, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "does not scatter",
              tg_scatter_begin(&s.ops[0], other, 0, (const void *const *)s.models[0].grads, why));
    tg_exchange_free(other);
    close_world(&s);
}

static void sums_that_overflow(void **state)
{
    (void)state;
    scattering s;
    open_world(&s, 3, "dense", TG_FP32, 1);
    for (uint32_t r = 0; r < 3; r++) {
        test_model_set(&s.models[r], 0, 0, 3e38f);
    }
    begin(&s, 0);
    carry(&s);
    end(&s, 3);
    assert_true(fabsf(test_model_get(&s.outs[0], 0, 0) / 3e38f - 1) < 1e-6f);
    begin(&s, 1);
    carry(&s);
    end(&s, 1);
    assert_true(isinf(test_model_get(&s.outs[0], 0, 0)));
    begin(&s, 2);
    carry(&s);
    end(&s, 2);
    assert_true(isinf(test_model_get(&s.outs[0], 0, 0)));
    close_world(&s);
}

static void state_is_saved_and_restored(void **state)
{
    (void)state;
    scattering a, b;
    open_world(&a, 2, "ef+qsgd@4", TG_FP32, 1);
    open_world(&b, 2, "ef+qsgd@4", TG_FP32, 1);
    begin(&a, 0);
    carry(&a);
    end(&a, 2);
    for (uint32_t r = 0; r < 2; r++) {
        size_t len = tg_state_len(a.ranks[r]);
        tg_span saved = {test_room(len), len};
        MUST(tg_state_save(a.ranks[r], saved.data, len, why));
        MUST(tg_state_load(b.ranks[r], &saved, 1, why));
        free(saved.data);
    }
    begin(&a, 1);
    begin(&b, 1);
    carry(&a);
    carry(&b);
    end(&a, 2);
    end(&b, 2);
    uint64_t n = 0;
    tg_slice(NULL, &n, lens[2], 1, 2);
    assert_memory_equal(a.outs[1].grads[2], b.outs[1].grads[2], n * sizeof(float));
    close_world(&a);
    close_world(&b);
}

/* ---- golden bytes ------------------------------------------------------------------------------------------------------------ */

/* FNV-1a. */
static uint64_t hash_more(uint64_t hash, const void *data, uint64_t len)
{
    const uint8_t *bytes = data;
    for (uint64_t i = 0; i < len; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

/* Numbers as in tests/golden/README.md: any language can compute them. */
static float golden_number(uint32_t i, uint32_t seed)
{
    uint32_t x = i * 2654435761u + seed * 2246822519u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ldexpf((float)((int32_t)(x & 0xffffffu) - (1 << 23)), -23 - (int)(x >> 29));
}

/* All messages and all slices of two steps are what they were when the format was made. */
static void messages_and_sums_are_golden(void **state)
{
    static const struct {
        const char *recipe;
        uint64_t sent, got;
    } cases[] = {{"dense", 0x403999f7fda7323c, 0x3013ffe9403785a4},
                 {"bf16", 0xf71b98bee4d9c567, 0xd498a2ac9713964a},
                 {"fp16", 0xa3056c5384ff5090, 0x87c7eea3fae5554f},
                 {"mxfp8", 0x907b05cc95739b69, 0xddc48bcca9596bf3},
                 {"mxfp8@block=32", 0x3d24143e04bf9be9, 0x7794784ab810511f},
                 {"ef+mxfp8@e5m2", 0xfcf903b196185095, 0x087be639005767d0},
                 {"ef+mxfp4", 0x462b2156362bf95f, 0x58741f222cf1015b},
                 {"mxfp4@round=random,hadamard=32", 0x4dbbfd0bae771e1e, 0x040332c92ca71dfd},
                 {"ef+nvfp4", 0x8ee9fff3b60b886f, 0x96172839e0425c75},
                 {"ef+randomk@0.1", 0x3583e4ef10fb5463, 0x8628bb47fb0b2392},
                 {"ef+qsgd@16", 0xb3d1ad22f4242a2f, 0x11cb31469ea15887}};
    bool is_other = false;
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        scattering s;
        uint64_t sent = 0xcbf29ce484222325u, got = sent;
        open_world(&s, 3, cases[c].recipe, TG_FP32, 1);
        for (uint64_t step = 0; step < 2; step++) {
            for (uint32_t r = 0; r < 3; r++) {
                for (size_t t = 0; t < TENSORS; t++) {
                    for (uint32_t i = 0; i < lens[t]; i++) {
                        test_model_set(&s.models[r], t, i, golden_number(i, (uint32_t)(100 * step + 10 * t + r)));
                    }
                }
            }
            begin(&s, step);
            carry(&s);
            end(&s, 3);
            for (uint32_t r = 0; r < 3; r++) {
                for (uint32_t q = 0; q < 3; q++) {
                    sent = hash_more(sent, s.ops[r].sends[q].data, s.ops[r].sends[q].len);
                }
                for (size_t t = 0; t < TENSORS; t++) {
                    uint64_t n = 0;
                    tg_slice(NULL, &n, lens[t], r, 3);
                    got = hash_more(got, s.outs[r].grads[t], n * sizeof(float));
                }
            }
        }
        if (sent != cases[c].sent || got != cases[c].got) {
            print_error("{\"%s\", 0x%016" PRIx64 ", 0x%016" PRIx64 "},\n", cases[c].recipe, sent, got);
            is_other = true;
        }
        close_world(&s);
    }
    assert_false(is_other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices_cover_all_elements_once),
                                       cmocka_unit_test(sums_in_rank_order),
                                       cmocka_unit_test(every_recipe_of_fixed_length_works),
                                       cmocka_unit_test(threads_give_the_same),
                                       cmocka_unit_test(a_rank_that_refuses_its_data_fails_all),
                                       cmocka_unit_test(damage_is_found),
                                       cmocka_unit_test(what_cannot_be_scattered_is_refused),
                                       cmocka_unit_test(sums_that_overflow),
                                       cmocka_unit_test(state_is_saved_and_restored),
                                       cmocka_unit_test(messages_and_sums_are_golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
