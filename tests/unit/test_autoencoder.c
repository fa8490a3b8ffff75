/* The autoencoder: the same bits on every code path, that it learns, and what it refuses. */
#include "support.h"

#include "autoencoder/autoencoder.h"
#include "kernels/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 5, LONGEST = 300 };

/* The values of all workers at a step. */
typedef struct batch {
    float values[WORKERS][LONGEST], innovations[WORKERS][LONGEST];
    const float *value_rows[WORKERS], *innovation_rows[WORKERS];
} batch;

static void point(batch *b)
{
    for (size_t i = 0; i < WORKERS; i++) {
        b->value_rows[i] = b->values[i];
        b->innovation_rows[i] = b->innovations[i];
    }
}

/* Uses no function whose result differs between machines. */
static void fill_plainly(batch *b, uint64_t step)
{
    test_random r = {step};
    for (size_t i = 0; i < WORKERS * LONGEST; i++) {
        b->values[i / LONGEST][i % LONGEST] = (float)(2 * test_uniform(&r) - 1);
        b->innovations[i / LONGEST][i % LONGEST] = i % 10 == 0 ? b->values[i / LONGEST][i % LONGEST] : 0;
    }
    point(b);
}

static tg_autoencoder_config config_of(bool common)
{
    tg_autoencoder_config config = tg_autoencoder_standard(LONGEST - 3);
    static const uint32_t encoder[] = {6, 9, 16, 8}, decoder[] = {8, 7, 12, 6};
    memcpy(config.encoder_channels, encoder, sizeof encoder);
    memcpy(config.decoder_channels, decoder, sizeof decoder);
    config.decoder_n = common ? WORKERS : 1;
    return config;
}

static tg_autoencoder *open_one(const tg_autoencoder_config *config, uint64_t seed)
{
    tg_autoencoder *ae = NULL;
    MUST(tg_autoencoder_new(&ae, config, seed, NULL, why));
    return ae;
}

static tg_status train(double *loss, tg_autoencoder *ae, const batch *b, bool common, uint64_t step, tg_detail *why)
{
    return common ? tg_autoencoder_train_common(loss, ae, b->value_rows, b->innovation_rows, (uint32_t)(step % WORKERS),
                                                why)
                  : tg_autoencoder_train_mean(loss, ae, b->value_rows, WORKERS, why);
}

static void train_steps(tg_autoencoder *ae, bool common, uint64_t first, uint64_t end)
{
    batch *b = test_room(sizeof *b);
    for (uint64_t step = first; step < end; step++) {
        double loss = 0;
        fill_plainly(b, step);
        MUST(train(&loss, ae, b, common, step, why));
        assert_true(loss > 0);
    }
    free(b);
}

static bool same_bits(tg_autoencoder *a, tg_autoencoder *b)
{
    tg_optimizer_state x = tg_autoencoder_optimizer_state(a), y = tg_autoencoder_optimizer_state(b);
    size_t n = tg_autoencoder_weight_n(a);
    return n == tg_autoencoder_weight_n(b) && x.moment_n == 2 * n && *x.step == *y.step &&
           memcmp(tg_autoencoder_weights(a), tg_autoencoder_weights(b), n * sizeof(float)) == 0 &&
           memcmp(x.moments, y.moments, x.moment_n * sizeof(float)) == 0;
}

static void same_seed_same_bits(void **state)
{
    (void)state;
    for (int common = 0; common < 3; common++) {
        tg_autoencoder_config config = config_of(common != 0);
        config.code_weight = common == 2 ? 0 : 0.5;
        tg_autoencoder *first = open_one(&config, 3), *other = open_one(&config, 4);
        assert_false(same_bits(first, other));
        train_steps(first, common != 0, 0, 6);
        /* Whatever the number of kept encodings. */
        for (config.kept_n = 1; config.kept_n <= WORKERS + 1; config.kept_n++) {
            tg_autoencoder *again = open_one(&config, 3);
            train_steps(again, common != 0, 0, 6);
            assert_true(same_bits(first, again));
            tg_autoencoder_free(again);
        }
        tg_autoencoder_free(other);
        tg_autoencoder_free(first);
    }
}

/* Known answers: compilers, instruction sets and machines must not change a bit. */
static void known_bits(void **state)
{
    (void)state;
    static const uint64_t known[] = {0xfecc250957abb986, 0xdb0402d856feec2a};
    for (int common = 0; common < 2; common++) {
        tg_autoencoder_config config = config_of(common != 0);
        tg_autoencoder *ae = open_one(&config, 7);
        train_steps(ae, common != 0, 0, 20);
        size_t len = tg_autoencoder_weight_n(ae) * sizeof(float);
        assert_int_equal(tg_hash(tg_autoencoder_weights(ae), len), known[common]);
        tg_autoencoder_free(ae);
    }
}

static void saved_in_the_middle(void **state)
{
    (void)state;
    for (int common = 0; common < 2; common++) {
        tg_autoencoder_config config = config_of(common != 0);
        tg_autoencoder *ae = open_one(&config, 3), *resumed = open_one(&config, 99);
        train_steps(ae, common != 0, 0, 4);
        tg_optimizer_state from = tg_autoencoder_optimizer_state(ae), to = tg_autoencoder_optimizer_state(resumed);
        assert_int_equal(*from.step, 4);
        memcpy(tg_autoencoder_weights(resumed), tg_autoencoder_weights(ae),
               tg_autoencoder_weight_n(ae) * sizeof(float));
        memcpy(to.moments, from.moments, from.moment_n * sizeof(float));
        *to.step = *from.step;
        train_steps(ae, common != 0, 4, 9);
        train_steps(resumed, common != 0, 4, 9);
        assert_true(same_bits(ae, resumed));
        tg_autoencoder_free(resumed);
        tg_autoencoder_free(ae);
    }
}

/* ---- learning -------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Values in one worker's order: smooth, and the others differ a little. */
static void fill_smoothly(batch *b, uint64_t step, size_t n)
{
    test_random r = {step + 1000};
    for (size_t i = 0; i < n; i++) {
        b->values[0][i] = test_gaussian(&r);
    }
    qsort(b->values[0], n, sizeof(float), by_value);
    for (size_t w = WORKERS; w-- > 0;) {
        for (size_t i = 0; i < n; i++) {
            b->values[w][i] = b->values[0][i] + 0.05f * test_gaussian(&r);
            b->innovations[w][i] = i % 10 == 0 ? b->values[w][i] : 0;
        }
    }
    point(b);
}

static double relative_error(const float *got, const float *wanted, size_t n)
{
    double error = 0, energy = 0;
    for (size_t i = 0; i < n; i++) {
        error += pow((double)got[i] - (double)wanted[i], 2);
        energy += pow((double)wanted[i], 2);
    }
    return sqrt(error / energy);
}

/* The relative error on values that it was not trained on. */
static double error_of(tg_autoencoder *ae, batch *b, bool common, size_t n)
{
    float code[LONGEST] = {0}, own[LONGEST], mean[LONGEST] = {0}, decoded[LONGEST];
    size_t code_n = tg_autoencoder_code_n(ae);
    double worst = 0;
    fill_smoothly(b, 999999, n);
    for (uint32_t w = 0; w < WORKERS; w++) {
        tg_autoencoder_encode(own, ae, b->values[w]);
        for (size_t i = 0; i < code_n; i++) {
            code[i] = common ? own[i] : code[i] + own[i] / WORKERS;
        }
        for (size_t i = 0; i < n; i++) {
            mean[i] += b->values[w][i] / WORKERS;
        }
    }
    for (uint32_t w = 0; w < (common ? WORKERS : 1); w++) {
        tg_autoencoder_decode(decoded, ae, w, code, common ? b->innovations[w] : NULL);
        worst = fmax(worst, relative_error(decoded, common ? b->values[w] : mean, n));
    }
    return worst;
}

static void smooth_sequences_are_learned(void **state)
{
    (void)state;
    for (int common = 0; common < 2; common++) {
        batch *b = test_room(sizeof *b);
        tg_autoencoder_config config = tg_autoencoder_standard(LONGEST - 3);
        config.decoder_n = common ? WORKERS : 1;
        tg_autoencoder *ae = open_one(&config, 1);
        double before = error_of(ae, b, common != 0, config.value_n), loss = 0;
        for (uint64_t step = 0; step < 100; step++) {
            fill_smoothly(b, step, config.value_n);
            MUST(train(&loss, ae, b, common != 0, step, why));
        }
        double after = error_of(ae, b, common != 0, config.value_n);
        print_message("relative error %.3f before, %.3f after, loss %g\n", before, after, loss);
        assert_true(before > 0.5);
        assert_true(after < 0.15);
        tg_autoencoder_free(ae);
        free(b);
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    batch *b = test_room(sizeof *b);
    fill_plainly(b, 1);
    for (int persistent = 0; persistent < 2; persistent++) {
        bool made = false;
        for (uint64_t nth = 1; !made; nth++) {
            test_allocator a;
            test_allocator_start(&a, nth, persistent != 0);
            tg_autoencoder_config config = config_of(true);
            tg_autoencoder *ae = NULL;
            tg_detail reason = {""};
            tg_status status = tg_autoencoder_new(&ae, &config, 1, &a.allocator, &reason);
            made = status == TG_OK;
            if (made) { /* and it allocates nothing from then on */
                uint64_t calls = a.calls;
                double loss = 0;
                assert_true(calls == nth - 1 && nth > 3);
                MUST(train(&loss, ae, b, true, 1, why));
                tg_autoencoder_encode(b->innovations[0], ae, b->values[0]);
                tg_autoencoder_decode(b->values[0], ae, 2, b->innovations[0], b->innovations[1]);
                assert_int_equal(a.calls, calls);
            } else {
                assert_true(status == TG_E_MEMORY && ae == NULL && reason.text[0] != '\0');
            }
            tg_autoencoder_free(ae);
            assert_int_equal(a.held, 0);
        }
    }
    free(b);
}

static void nan_leaves_no_trace(void **state)
{
    (void)state;
    for (int common = 0; common < 2; common++) {
        batch *b = test_room(sizeof *b);
        tg_autoencoder_config config = config_of(common != 0);
        tg_autoencoder *ae = open_one(&config, 3), *twin = open_one(&config, 3);
        train_steps(ae, common != 0, 0, 2);
        train_steps(twin, common != 0, 0, 2);
        fill_plainly(b, 5);
        static const float bad[] = {NAN, INFINITY, 1e30f};
        for (size_t k = 0; k < 3; k++) {
            double loss = -1;
            b->values[3][config.value_n - 1] = bad[k];
            MUST_FAIL(TG_E_NONFINITE, "not finite", train(&loss, ae, b, common != 0, 1, why));
            assert_true(loss == -1 && same_bits(ae, twin));
        }
        train_steps(ae, common != 0, 2, 4);
        train_steps(twin, common != 0, 2, 4);
        assert_true(same_bits(ae, twin));
        tg_autoencoder_free(twin);
        tg_autoencoder_free(ae);
        free(b);
    }
}

static void refuse(tg_autoencoder_config config, const char *part)
{
    tg_autoencoder *ae = NULL;
    MUST_FAIL(TG_E_ARGUMENT, part, tg_autoencoder_new(&ae, &config, 1, NULL, why));
    assert_null(ae);
}

static void misuse_is_named(void **state)
{
    (void)state;
    tg_autoencoder_config good = config_of(false), config = good;
    config.value_n = 0;
    refuse(config, "values, not 0");
    config.value_n = SIZE_MAX;
    refuse(config, "values, not");
    config = good;
    config.encoder_channels[3] = 0;
    refuse(config, "channels in a layer, not 0");
    config = good;
    config.decoder_channels[0] = UINT32_MAX;
    refuse(config, "channels in a layer");
    config = good;
    config.code_channels = 0;
    refuse(config, "channels in its code");
    config = good;
    config.decoder_n = 0;
    refuse(config, "decoders");
    config = good;
    config.kept_n = 0;
    refuse(config, "kept");
    config = good;
    config.rate = NAN;
    refuse(config, "rate");
    config = good;
    config.code_weight = -1;
    refuse(config, "weights of the loss");

    batch *b = test_room(sizeof *b);
    fill_plainly(b, 1);
    double loss = -1;
    tg_autoencoder *ring = open_one(&good, 1);
    config = config_of(true);
    tg_autoencoder *server = open_one(&config, 1);
    MUST_FAIL(TG_E_ARGUMENT, "at least one worker", tg_autoencoder_train_mean(&loss, ring, b->value_rows, 0, why));
    MUST_FAIL(TG_E_ARGUMENT, "one decoder", tg_autoencoder_train_mean(&loss, server, b->value_rows, WORKERS, why));
    MUST_FAIL(TG_E_ARGUMENT, "worker 5 is not below 5",
              tg_autoencoder_train_common(&loss, server, b->value_rows, b->innovation_rows, WORKERS, why));
    assert_true(loss == -1);
    tg_autoencoder_free(server);
    tg_autoencoder_free(ring);
    tg_autoencoder_free(NULL);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_bits),       cmocka_unit_test(known_bits),
        cmocka_unit_test(saved_in_the_middle),       cmocka_unit_test(smooth_sequences_are_learned),
        cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(nan_leaves_no_trace),
        cmocka_unit_test(misuse_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
