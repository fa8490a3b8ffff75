/* LGC's two exchanges: phases, replicas, residuals, learning. */
#include "lgc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- phases ------------------------------------------------------------------------------------------------------------ */

static void phases_follow_each_other(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8};
    for (size_t k = 0; k < TEST_LGC_RECIPES * 4; k++) {
        test_lgc *w = test_lgc_open(worlds[k % 4], test_lgc_recipes[k / 4]);
        bool refreshes = strstr(test_lgc_recipes[k / 4], "refresh") != NULL;
        for (uint64_t step = 0; step < 17; step++) {
            uint32_t since = step < 9 ? 0 : (uint32_t)(step - 9) % 5;
            uint32_t expected = step < 3 ? 1 : step < 9 || (refreshes && since >= 3) ? 2 : 3;
            assert_int_equal(test_lgc_phase(w), expected);
            test_lgc_step(w, step);
        }
        test_lgc_close(w);
    }
}

/* Traffic shrinks from phase to phase; indices and their order are near their bound. */
static void each_phase_sends_less(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        test_lgc *w = test_lgc_open(4, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER);
        uint64_t bytes[3] = {0};
        for (uint64_t step = 0; step < 13; step++) {
            uint32_t phase = test_lgc_phase(w);
            test_lgc_step(w, step);
            for (uint32_t r = 0; r < 4; r++) {
                tg_meter last;
                tg_exchange_meter(w->ranks[r], &last, NULL);
                bytes[phase - 1] += last.payload / (phase == 1 ? 3 : phase == 2 ? 6 : 4);
            }
        }
        print_message("payload bytes a step, all ranks: %d, %d, %d\n", (int)bytes[0], (int)bytes[1], (int)bytes[2]);
        assert_true(bytes[1] < bytes[0] && bytes[2] < bytes[1]);
        test_lgc_close(w);
    }
}

/* The traffic of all tensors is what this rank has sent, without headers; a rank does not send its own slice. */
static void traffic_is_what_was_sent(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        test_lgc *w = test_lgc_open(4, form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER);
        for (uint64_t step = 0; step < 13; step++) {
            uint32_t phase = test_lgc_phase(w), leader = (uint32_t)(step % 4);
            test_lgc_step(w, step);
            uint64_t said = 0;
            for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
                tg_traffic traffic;
                MUST(tg_exchange_traffic(&traffic, w->ranks[3], t, why));
                said += traffic.len;
            }
            tg_meter last;
            tg_exchange_meter(w->ranks[3], &last, NULL);
            if (phase == 1) {
                assert_int_equal(said, 4 * TEST_LGC_TOTAL);
            } else if (leader != 3 && phase == 2) { /* to three others */
                assert_in_range(said, last.payload / 3 - 3, last.payload / 3 + 3);
            } else if (leader != 3 && form == 1) { /* to the server */
                assert_in_range(said, last.payload - 3, last.payload + 3);
            } else if (leader != 3) { /* three quarters to owners, and a quarter to three others */
                assert_in_range(said, last.payload * 2 / 3 - 16, last.payload * 2 / 3 + 16);
            }
        }
        test_lgc_close(w);
    }
}

static float to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* With whole=bf16 dense steps take half of the bytes, and give the mean of rounded values, rounded. */
static void whole_values_may_be_short(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        const char *recipe = form == 0 ? TEST_LGC_RING : TEST_LGC_SERVER;
        char shorter[256];
        (void)snprintf(shorter, sizeof shorter, "%s,whole=bf16", recipe);
        test_lgc *w = test_lgc_open(3, shorter), *twin = test_lgc_open(3, recipe);
        for (uint64_t step = 0; step < 13; step++) {
            float expected[TEST_LGC_TENSORS][TEST_LGC_LONGEST];
            uint32_t phase = test_lgc_phase(w);
            test_lgc_fill(w, step);
            for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
                for (uint64_t i = 0; i < test_lgc_dims[t]; i++) {
                    float sum = to_bf16(w->grads[0][t][i]);
                    sum += to_bf16(w->grads[1][t][i]);
                    sum += to_bf16(w->grads[2][t][i]);
                    expected[t][i] = to_bf16(sum / 3.0f);
                }
            }
            test_lgc_step(w, step);
            test_lgc_step(twin, step);
            for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
                if (phase == 1 || t < 2) {                       /* the first layer and the norm are always whole */
                    bool is_averaged_once = phase == 2 && t < 2; /* each rank has all vectors */
                    for (uint64_t i = 0; i < test_lgc_dims[t]; i++) {
                        float found = w->grads[0][t][i];
                        assert_true((is_averaged_once ? to_bf16(found) : found) == expected[t][i]);
                    }
                }
            }
            tg_meter own, of_twin;
            tg_exchange_meter(w->ranks[1], &own, NULL);
            tg_exchange_meter(twin->ranks[1], &of_twin, NULL);
            assert_true(phase == 1 ? 2 * own.payload == of_twin.payload : own.payload < of_twin.payload);
        }
        test_lgc_close(twin);
        test_lgc_close(w);
    }
}

/* Learning is extended until its error is small enough, and the extension is reported. */
static void learning_is_extended_until_accurate(void **state)
{
    (void)state;
    test_lgc *w =
        test_lgc_open(2, "ef+topk@0.05,coords=shared+autoencoder@ring,dense=1,learn=10,enough=1e-6" TEST_LGC_SMALL);
    for (uint64_t step = 0; step < 30; step++) {
        test_lgc_step(w, step);
    }
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[1]);
    assert_int_equal(now.phase, 2);
    assert_true(now.extended >= 5 && now.error > 0);
    test_lgc_close(w);
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------------- */

/* Gradients, summed over steps, equal averages plus residuals. In the last phase this needs feedback of the autoencoder's error,
 * which only a ring can have exactly. */
static void gradients_are_conserved(void **state)
{
    (void)state;
    for (int with_own = 0; with_own < 2; with_own++) {
        uint64_t steps = with_own ? 20 : 9;
        test_lgc *w = test_lgc_open(3, with_own ? TEST_LGC_RING ",own=yes" : TEST_LGC_RING);
        static double given[TEST_LGC_TENSORS][TEST_LGC_LONGEST], got[TEST_LGC_TENSORS][TEST_LGC_LONGEST];
        memset(given, 0, sizeof given);
        memset(got, 0, sizeof got);
        for (uint64_t step = 0; step < steps; step++) {
            test_lgc_fill(w, step);
            for (size_t e = 0; e < (size_t)TEST_LGC_TENSORS * TEST_LGC_LONGEST; e++) {
                for (uint32_t r = 0; r < 3; r++) {
                    given[e / TEST_LGC_LONGEST][e % TEST_LGC_LONGEST] +=
                        (double)w->grads[r][e / TEST_LGC_LONGEST][e % TEST_LGC_LONGEST] / 3;
                }
            }
            MUST(test_lgc_reduce(w, step, NULL, why));
            for (size_t e = 0; e < (size_t)TEST_LGC_TENSORS * TEST_LGC_LONGEST; e++) {
                got[e / TEST_LGC_LONGEST][e % TEST_LGC_LONGEST] +=
                    (double)w->grads[0][e / TEST_LGC_LONGEST][e % TEST_LGC_LONGEST];
            }
        }
        for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
            for (uint32_t r = 0; r < 3; r++) {
                float residual[TEST_LGC_LONGEST] = {0};
                MUST(tg_exchange_residual(w->ranks[r], residual, t, why));
                for (size_t i = 0; i < test_lgc_dims[t]; i++) {
                    got[t][i] += (double)residual[i] / 3;
                }
            }
            for (size_t i = 0; i < test_lgc_dims[t]; i++) {
                assert_true(fabs(given[t][i] - got[t][i]) < 1e-3);
            }
        }
        test_lgc_close(w);
    }
}

/* With a clip far below the gradients' norms, averages and residuals are as small. */
static void norms_are_bounded(void **state)
{
    (void)state;
    test_lgc *w = test_lgc_open(2, "momentum@0.5,clip=0.001+topk@0.05,coords=shared+autoencoder@ring" TEST_LGC_QUICK);
    for (uint64_t step = 0; step < 7; step++) {
        test_lgc_step(w, step);
        for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
            double squares = 0;
            for (size_t i = 0; i < test_lgc_dims[t]; i++) {
                squares += (double)w->grads[0][t][i] * (double)w->grads[0][t][i];
            }
            assert_true(sqrt(squares) < 0.02);
        }
    }
    test_lgc_close(w);
}

/* ---- learning ---------------------------------------------------------------------------------------------------------- */

static double error_after(const char *recipe, uint64_t steps)
{
    test_lgc *w = test_lgc_open(3, recipe);
    for (uint64_t step = 0; step < steps; step++) {
        test_lgc_step(w, step);
    }
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[2]);
    test_lgc_close(w);
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

/* Eight ranks whose gradients have little in common. Only the leader's values are large and in order, so decoders must learn from its
 * code: from another rank's they learn nothing, and the error stays at 1. */
static void a_server_learns_of_eight_ranks(void **state)
{
    (void)state;
    enum { RANKS = 8, STEPS = 160 };
    test_lgc *w = test_lgc_open(RANKS, "ef+topk@0.05,coords=shared+autoencoder@server" MEDIUM);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            test_random common = {1000 * step + RANKS}, own = {1000 * step + r};
            for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
                for (size_t i = 0; i < test_lgc_dims[t]; i++) {
                    w->grads[r][t][i] = test_gaussian(&common) + powf(test_gaussian(&own), 3);
                }
            }
        }
        MUST(test_lgc_reduce(w, step, NULL, why));
    }
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[0]);
    print_message("relative error: %.2f\n", now.error);
    assert_true(now.error < 0.75);
    test_lgc_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_follow_each_other),
        cmocka_unit_test(each_phase_sends_less),
        cmocka_unit_test(traffic_is_what_was_sent),
        cmocka_unit_test(whole_values_may_be_short),
        cmocka_unit_test(norms_are_bounded),
        cmocka_unit_test(learning_is_extended_until_accurate),
        cmocka_unit_test(gradients_are_conserved),
        cmocka_unit_test(it_learns),
        cmocka_unit_test(a_server_learns_of_eight_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
