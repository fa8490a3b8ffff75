/* The exchanges in lockstep, from 1 to 16 ranks: averages, replicas equal to the bit, true byte counts, conservation of
 * gradients in the residuals. */
#include "world.h"

#include "base/half.h"
#include "exchange/exchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const protocols[] = {"allreduce", "gather", "shard", "server"};
static const uint32_t worlds[] = {1, 2, 3, 8, 11, 16};
/* More ranks than elements among them. */
static const uint64_t lens[] = {1000, 7, 0, 1, 129};
enum { PROTOCOL_N = 4, WORLD_N = sizeof worlds / sizeof *worlds, TENSOR_N = 5 };

static const char *const recipes[] = {
    "dense",
    "fp16",
    "ef+bf16",
    "ef+topk@0.05+fp16",
    "topk@0.1,scope=model+bitmap",
    "ef+topk@0.05,coords=shared",
    "ef+threshold@1,coords=shared,scope=model+fp16",
    "ef+threshold@1.5",
    "ef+randomk@0.1",
    "ef+randomk@0.1,coords=own",
    "randomk@0.1,unbiased=yes",
    "ef+randomblock@0.1+bf16",
    "ef+randomblock@0.1,scope=model,coords=own",
    "ef+adabins@50+fp16",
    "ef+adabins@50,coords=shared",
    "ef+adabins@20,scope=model+sign@scale=meanmax",
    "ef+adabins@7+sign@scale=meanmax+adacomp8",
    "ef+sign",
    "ef+orq@5,bucket=100",
    "ef+topk@0.1+ternary",
    "bingrad@b",
    "signsgd",
    "dgc@0.05",
    "ef+fp4+huffman",
    "ef+topk@0.1+fp8+rans",
    "ef+topk@0.05,coords=shared+fp16+rans",
    "ef+randomblock@0.2+orq@9+rans",
    "fp16+lossless",
    "ef+natural+zstd",
    "ef@again=fp32+adabins@50+sign@scale=meanmax",
    "ef@again=fp16+topk@0.05+rans",
    "ef@again=bf16+topk@0.1,scope=model+fp16",
    "ef@again=fp16+randomk@0.1,coords=own",
    "momentum@again=fp16+topk@0.05",
    "ef@again=fp32+fp4+huffman",
};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

/* The sum in rank order, in fp32, over the number of ranks. */
static float mean_of(const float *values, uint32_t n)
{
    float sum = values[0];
    for (uint32_t r = 1; r < n; r++) {
        sum += values[r];
    }
    return sum / (float)n;
}

static float as_fp16(float value)
{
    return tg_fp16_to_float(tg_float_to_fp16(value));
}

/* Without a selection the result is known: the mean, rounded to the type on the wire. */
static void dense_averages_are_exact(void **state)
{
    (void)state;
    for (size_t k = 0; k < (size_t)2 * PROTOCOL_N * WORLD_N; k++) {
        bool half = k % 2 == 1;
        const char *protocol = protocols[k / 2 % PROTOCOL_N];
        test_setup setup = {.recipe = half ? "fp16" : "dense",
                            .exchange = protocol,
                            .lens = lens,
                            .tensor_n = TENSOR_N,
                            .verify_every = 1};
        test_world w = test_world_new(worlds[k / 2 / PROTOCOL_N], &setup);
        test_world_fill(&w, 3);
        float *expected = test_room(1137 * sizeof *expected), *at = expected;
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (uint64_t i = 0; i < lens[t]; i++) {
                float values[16] = {0};
                for (uint32_t r = 0; r < w.n; r++) {
                    float value = test_model_get(&w.models[r], t, i);
                    values[r] = half ? as_fp16(value) : value;
                }
                float mean = mean_of(values, w.n);
                *at++ = half && strcmp(protocol, "gather") != 0 ? as_fp16(mean) : mean;
            }
        }
        MUST(test_world_reduce(&w, 3, NULL, why));
        at = expected;
        for (size_t t = 0; t < TENSOR_N; t++) {
            assert_memory_equal(w.models[0].grads[t], at, lens[t] * sizeof *at);
            at += lens[t];
        }
        assert_true(test_world_identical(&w));
        free(expected);
        test_world_free(&w);
    }
}

typedef tg_status decode_add(tg_codec *c, float *const *sums, float weight, const void *src, size_t src_len,
                             tg_detail *why);

/* Gather against codecs and plain sums; false: gather does not carry the recipe. */
static bool compare_gather(const char *recipe, const uint64_t *tensor_lens, size_t tensor_n, uint64_t steps,
                           decode_add *add)
{
    test_setup setup = {.recipe = recipe, .exchange = "gather", .lens = tensor_lens, .tensor_n = tensor_n};
    test_world w = test_world_new(3, &setup);
    tg_codec *codecs[3] = {NULL};
    bool exists = test_world_exists(&w);
    for (uint32_t r = 0; r < 3 && exists; r++) {
        tg_options opt = test_setup_options(&setup);
        opt.rank = r;
        MUST(tg_codec_new(&codecs[r], recipe, w.models[r].tensors, tensor_n, &opt, why));
    }
    for (uint64_t step = 0; step < steps && exists; step++) {
        test_model sums = test_model_new(tensor_lens, tensor_n, TG_FP32);
        test_world_fill(&w, step);
        for (uint32_t r = 0; r < 3; r++) {
            size_t cap = tg_encode_bound(codecs[r]), len = 0;
            uint8_t *frame = test_room(cap);
            MUST(tg_encode(&len, codecs[r], frame, cap, step, (const void *const *)w.grads[r], why));
            MUST(add(codecs[r], (float *const *)sums.grads, 1.0f, frame, len, why));
            free(frame);
        }
        MUST(test_world_reduce(&w, step, NULL, why));
        for (size_t t = 0; t < tensor_n; t++) {
            for (uint64_t i = 0; i < tensor_lens[t]; i++) {
                assert_true(test_model_get(&w.models[0], t, i) == test_model_get(&sums, t, i) / 3.0f);
            }
        }
        test_model_free(&sums);
    }
    for (uint32_t r = 0; r < 3; r++) {
        tg_codec_free(codecs[r]);
    }
    test_world_free(&w);
    return exists;
}

static void gather_is_the_mean_of_what_frames_say(void **state)
{
    (void)state;
    for (size_t k = 0; k < RECIPE_N; k++) {
        (void)compare_gather(recipes[k], lens, TENSOR_N, 5, tg_decode_add);
    }
}

/* Coordinates that are kept from the check to the sum, as lists and as masks, against those that are read twice. */
static void kept_coordinates_are_those_of_frames(void **state)
{
    (void)state;
    static const uint64_t long_lens[] = {300000, 31, 4097};
    static const char *const some[] = {"ef+topk@0.01",
                                       "ef+topk@0.03+fp16",
                                       "ef+topk@0.05",
                                       "topk@0.3+ternary",
                                       "adacomp",
                                       "ef+adabins@50+sign@scale=meanmax+bitmap",
                                       "threshold@0.5+sign",
                                       "ef+topk@0.05+gaps+rans"};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        assert_true(compare_gather(some[k], long_lens, 3, 2, tg_decode_add_private));
    }
}

/* ---- promises, for every recipe by every protocol in every world ------------------------------------------------------ */

/* The total residual of element i of tensor t: the mean of the ranks' residuals plus that of the element's owner. */
static double total_residual(const test_world *w, size_t t, uint64_t i)
{
    double sum = 0;
    const tg_layout *l = w->ranks[0]->codec->layout;
    uint32_t u = (uint32_t)l->tensor_unit[t];
    const tg_piece *piece = l->units[u].pieces;
    while (piece->tensor != t) {
        piece++;
    }
    uint64_t at = piece->at + i;
    for (uint32_t r = 0; r < w->n; r++) {
        const tg_codec *codecs[] = {w->ranks[r]->codec, test_answer_of(w->ranks[r])};
        for (int k = 0; k < 2; k++) {
            const tg_unit_plan *plan = codecs[k] == NULL ? NULL : &codecs[k]->plan->units[u];
            if (plan != NULL && plan->planes > 0 && at >= plan->lo && at < plan->hi) {
                float residual = 0;
                codecs[k]->executor->save(&residual, codecs[k]->run, plan->residual_at + (at - plan->lo), 1);
                sum += (double)residual / (k == 0 ? w->n : 1);
            }
        }
    }
    return sum;
}

static void check_meter(const test_world *w)
{
    uint64_t sent = 0, received = 0;
    for (uint32_t r = 0; r < w->n; r++) {
        tg_meter last, total;
        tg_exchange_meter(w->ranks[r], &last, &total);
        assert_int_equal(total.payload + total.header, w->sent[r]);
        assert_true(w->n == 1 || last.header > 0);
        assert_int_equal(last.logical, 1137 * 4);
        assert_int_equal(last.dense, 2 * (uint64_t)(w->n - 1) * 1137 * 4 / w->n);
        sent += total.payload + total.header;
        received += total.received;
    }
    assert_int_equal(received, sent);
}

static void run_world(const char *recipe, const char *protocol, uint32_t n, int *carried)
{
    enum { STEPS = 6 };
    test_setup setup = {.recipe = recipe, .exchange = protocol, .lens = lens, .tensor_n = TENSOR_N, .verify_every = 2};
    test_world w = test_world_new(n, &setup);
    if (!test_world_exists(&w)) {
        test_world_free(&w);
        return;
    }
    (*carried)++;
    bool remembers = strncmp(recipe, "ef", 2) == 0;
    double *given = calloc(1137, sizeof *given), *got = calloc(1137, sizeof *got);
    for (uint64_t step = 0; step < STEPS; step++) {
        test_world_fill(&w, step);
        size_t e = 0;
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (uint64_t i = 0; i < lens[t]; i++, e++) {
                for (uint32_t r = 0; r < n; r++) {
                    given[e] += (double)test_model_get(&w.models[r], t, i) / n;
                }
            }
        }
        tg_detail reason = {""};
        if (test_world_reduce(&w, step, NULL, &reason) != TG_OK) {
            fail_msg("%s by %s, %u ranks, step %d: %s", recipe, tg_exchange_name(w.ranks[0]), n, (int)step,
                     reason.text);
        }
        assert_true(test_world_identical(&w));
        e = 0;
        for (size_t t = 0; t < TENSOR_N; t++) {
            for (uint64_t i = 0; i < lens[t]; i++, e++) {
                got[e] += (double)test_model_get(&w.models[0], t, i);
            }
        }
    }
    check_meter(&w);
    /* Conservation: the sum of the mean gradients is the sum of the averages and the residuals. Allreduce rounds the mean
     * to the type on the wire and has no residual for it, so it is held to this only where that type is fp32. */
    bool rounds_mean = strcmp(tg_exchange_name(w.ranks[0]), "allreduce") == 0 && strstr(recipe, "16") != NULL;
    size_t e = 0;
    for (size_t t = 0; remembers && !rounds_mean && t < TENSOR_N; t++) {
        for (uint64_t i = 0; i < lens[t]; i++, e++) {
            double lost = given[e] - got[e] - total_residual(&w, t, i);
            if (fabs(lost) > STEPS * 16 * 0x1p-23) {
                fail_msg("%s by %s, %u ranks: %g of %g is lost", recipe, tg_exchange_name(w.ranks[0]), n, lost,
                         given[e]);
            }
        }
    }
    free(given);
    free(got);
    test_world_free(&w);
}

static void promises_hold_everywhere(void **state)
{
    (void)state;
    int carried = 0;
    for (size_t k = 0; k < RECIPE_N; k++) {
        for (int p = 0; p < PROTOCOL_N; p++) {
            for (size_t n = 0; n < WORLD_N; n++) {
                run_world(recipes[k], protocols[p], worlds[n], &carried);
            }
        }
    }
    /* Recipes by number of protocols: 4 dense by four; 13 with own indices by three; 4 with the leader's indices by one; 3 with
     * shared random indices by four; 2 with own random indices by gather alone, and one by three, as owners answer with all values;
     * 6 dense and a random one that cannot be added by three; votes by two. */
    assert_int_equal(carried, WORLD_N * (4 * 4 + 13 * 3 + 4 * 1 + 3 * 4 + 2 * 1 + 1 * 3 + 7 * 3 + 1 * 2));
}

/* Every question of the study of sparse communication is a recipe that runs: which entries, feedback or not, by tensor
 * or by model, the ranks' own indices or shared ones. */
static void the_whole_grid_runs(void **state)
{
    (void)state;
    static const char *const selects[] = {"topk", "randomk", "randomblock"};
    int carried = 0;
    for (unsigned k = 0; k < 3 * 8; k++) {
        char recipe[80];
        (void)snprintf(recipe, sizeof recipe, "%s+%s@0.1,scope=%s,coords=%s", k & 1 ? "ef" : "none", selects[k / 8],
                       k & 2 ? "model" : "tensor", k & 4 ? "shared" : "own");
        for (size_t n = 0; n < WORLD_N; n++) {
            run_world(recipe, NULL, worlds[n], &carried);
        }
    }
    assert_int_equal(carried, 3 * 8 * WORLD_N);
}

/* ---- halves, fewer elements than ranks, no elements -------------------------------------------------------------------- */

static void small_models_and_halves(void **state)
{
    (void)state;
    static const uint64_t none[] = {0, 0}, one[] = {1}, two[] = {0, 2, 0};
    static const struct {
        const uint64_t *lens;
        size_t n;
    } models[] = {{none, 2}, {one, 1}, {two, 3}, {NULL, 0}};
    static const char *const few[] = {"fp32", "ef+topk@0.5+fp16", "randomblock@0.5", "ef+topk@0.5,coords=shared"};
    for (size_t k = 0; k < (size_t)4 * 4 * 4 * 3 * 2; k++) {
        size_t m = k % 4, r = k / 4 % 4, p = k / 16 % 4;
        tg_dtype dtype = (tg_dtype)(k / 64 % 3);
        test_setup setup = {.recipe = few[r],
                            .exchange = protocols[p],
                            .lens = models[m].lens,
                            .tensor_n = models[m].n,
                            .dtype = dtype,
                            .verify_every = 1};
        test_world w = test_world_new(k / 192 == 0 ? 5 : 16, &setup);
        for (uint64_t step = 0; step < 3 && test_world_exists(&w); step++) {
            test_world_step(&w, step);
        }
        test_world_free(&w);
    }
}

/* ---- compression is real, and grows or not with the world as the protocol says ----------------------------------------- */

static uint64_t bytes_a_step(const char *recipe, const char *protocol, uint32_t n)
{
    static const uint64_t large[] = {100000};
    test_setup setup = {.recipe = recipe, .exchange = protocol, .lens = large, .tensor_n = 1};
    test_world w = test_world_new(n, &setup);
    test_world_step(&w, 0);
    uint64_t sent = w.sent[1];
    test_world_free(&w);
    return sent;
}

static void bytes_are_those_of_the_recipe(void **state)
{
    (void)state;
    /* 1000 values of 100,000: 4 bytes each, and 8.1 bits for the index (test_pack holds it to the bound). */
    uint64_t gathered = bytes_a_step("topk@0.01", "gather", 2);
    assert_in_range(gathered, 5000, 5400);
    assert_in_range(bytes_a_step("topk@0.01", "gather", 11), 10 * 5000, 10 * 5400);
    assert_in_range(bytes_a_step("topk@0.01+fp16", "gather", 2), 3000, 3400);
    /* Values alone, twice 15/16 of them, and per peer a frame's header and votes. */
    assert_in_range(bytes_a_step("randomk@0.01", "allreduce", 16), 7500, 7500 + 15 * 300);
    assert_in_range(bytes_a_step("dense", "allreduce", 16), 750000, 750000 + 15 * 300);
}

/* With owners, a rank's traffic does not grow with the world. It sends all slices of its frame but its own, and the answer for its
 * slice to all others: (S - 1)/S of a frame each time, at most two frames in total. Divided by this factor, the payload is the same
 * from 2 to 16 ranks within 2%: entries are not spread evenly over slices, and buckets and entry counts are rounded per slice.
 * Headers are per message: of a frame and a length in two rounds, and two votes. */
static void shard_traffic_is_flat(void **state)
{
    (void)state;
    static const uint64_t large[] = {150000};
    static const char *const flat[] = {"fp16", "qsgd@16", "terngrad", "ef+topk@0.01", "ef+topk@0.01+fp16"};
    for (size_t k = 0; k < sizeof flat / sizeof *flat; k++) {
        double frame = 0; /* with two ranks, half of it is sent, twice */
        for (size_t i = 1; i < WORLD_N; i++) {
            uint32_t n = worlds[i];
            test_setup setup = {.recipe = flat[k], .exchange = "shard", .lens = large, .tensor_n = 1};
            test_world w = test_world_new(n, &setup);
            test_world_step(&w, 0);
            for (uint32_t r = 0; r < n; r++) {
                tg_meter last;
                tg_exchange_meter(w.ranks[r], &last, NULL);
                double whole = (double)last.payload * n / (n - 1) / 2;
                frame = n == 2 && r == 0 ? whole : frame;
                if (fabs(whole / frame - 1) > 0.02 || last.header > (n - 1) * 400) {
                    fail_msg("%s, rank %u of %u: frames of %.0f bytes instead of %.0f, headers of %.0f", flat[k], r, n,
                             whole, frame, (double)last.header);
                }
            }
            test_world_free(&w);
        }
    }
}

/* ---- choosing ---------------------------------------------------------------------------------------------------------- */

/* The traffic of all tensors is what was sent, except for frame headers. */
static void bytes_are_known_by_tensor(void **state)
{
    (void)state;
    static const char *const some[] = {"ef+topk@0.05+fp16", "fp16", "topk@0.1,scope=model"};
    for (size_t k = 0; k < 3; k++) {
        test_setup setup = {.recipe = some[k], .exchange = "gather", .lens = lens, .tensor_n = TENSOR_N};
        test_world w = test_world_new(2, &setup);
        test_world_step(&w, 0);
        uint64_t sum = 0;
        for (size_t t = 0; t < TENSOR_N; t++) {
            tg_traffic traffic;
            MUST(tg_exchange_traffic(&traffic, w.ranks[0], t, why));
            assert_true(k == 2 || (traffic.len > 0) == (lens[t] > 0));
            assert_true(tg_exchange_paper_len(w.ranks[0], t) == 0 && traffic.bins == 0);
            sum += traffic.len;
        }
        tg_meter last;
        tg_exchange_meter(w.ranks[0], &last, NULL);
        assert_in_range(sum, last.payload, last.payload + 6 * TENSOR_N + 1); /* with the headers of chunks */
        tg_traffic none;
        MUST_FAIL(TG_E_ARGUMENT, "no tensor number 5", tg_exchange_traffic(&none, w.ranks[0], TENSOR_N, why));
        test_world_free(&w);
    }
}

static void the_rule_picks_a_protocol(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        uint32_t world;
        const char *expected;
    } cases[] = {
        {"dense", 3, "allreduce"},
        {"dense", 2, "gather"},
        {"fp16", 2, "gather"},
        {"ef+randomblock@0.01", 2, "allreduce"},
        {"ef+randomblock@0.01", 16, "allreduce"},
        {"topk@0.01,coords=shared", 2, "allreduce"},
        {"topk@0.01", 2, "gather"},
        {"topk@0.01", 4, "gather"},
        {"topk@0.01", 16, "shard"},
        {"randomk@0.01,coords=own", 16, "gather"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_setup setup = {.recipe = cases[i].recipe, .lens = lens, .tensor_n = TENSOR_N};
        test_world w = test_world_new(cases[i].world, &setup);
        assert_string_equal(tg_exchange_name(w.ranks[0]), cases[i].expected);
        test_world_free(&w);
    }
    test_model m = test_model_new(lens, TENSOR_N, TG_FP32);
    tg_exchange *x = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    opt.exchange = "carrier-pigeon";
    MUST_FAIL(TG_E_ARGUMENT, "carrier-pigeon", tg_exchange_new(&x, "dense", m.tensors, TENSOR_N, 0, 2, &opt, why));
    opt.exchange = "allreduce";
    MUST_FAIL(TG_E_RECIPE, "each rank's own", tg_exchange_new(&x, "topk", m.tensors, TENSOR_N, 0, 2, &opt, why));
    MUST_FAIL(TG_E_ARGUMENT, "no rank 2", tg_exchange_new(&x, "dense", m.tensors, TENSOR_N, 2, 2, NULL, why));
    MUST_FAIL(TG_E_ARGUMENT, "world of 0", tg_exchange_new(&x, "dense", m.tensors, TENSOR_N, 0, 0, NULL, why));
    assert_null(x);
    tg_exchange_free(NULL);
    test_model_free(&m);
}

static void misuse_is_named(void **state)
{
    (void)state;
    test_setup setup = {.recipe = "dense", .lens = lens, .tensor_n = TENSOR_N};
    test_world w = test_world_new(2, &setup);
    tg_op op;
    uint8_t byte;
    MUST_FAIL(TG_E_ARGUMENT, "no step has begun", tg_exchange_next(w.ranks[0], &op, why));
    MUST(tg_exchange_begin(w.ranks[0], 0, w.grads[0], why));
    MUST_FAIL(TG_E_ARGUMENT, "has not ended", tg_exchange_begin(w.ranks[0], 1, w.grads[0], why));
    MUST_FAIL(TG_E_ARGUMENT, "has not ended", tg_state_save(w.ranks[0], &byte, 1, why));
    tg_exchange_cancel(w.ranks[0]);
    tg_exchange_cancel(w.ranks[0]);
    test_world_step(&w, 0);
    test_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_averages_are_exact),
        cmocka_unit_test(gather_is_the_mean_of_what_frames_say),
        cmocka_unit_test(kept_coordinates_are_those_of_frames),
        cmocka_unit_test(promises_hold_everywhere),
        cmocka_unit_test(the_whole_grid_runs),
        cmocka_unit_test(small_models_and_halves),
        cmocka_unit_test(bytes_are_those_of_the_recipe),
        cmocka_unit_test(shard_traffic_is_flat),
        cmocka_unit_test(bytes_are_known_by_tensor),
        cmocka_unit_test(the_rule_picks_a_protocol),
        cmocka_unit_test(misuse_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
