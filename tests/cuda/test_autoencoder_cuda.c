/* The autoencoder on a device beside the host's: codes, decoded values, errors, weights and moments have the same bits, for sizes that do
 * not fill tiles, in both forms, and however many tapes are kept. */
#include "exec/cuda/learner.h"
#include "support.h"
#include "tersegrad/cuda.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 5 };

typedef struct pairing {
    tg_device *device;
    tg_autoencoder_config config;
    uint32_t workers;
    bool is_server;
    tg_autoencoder *host;
    tg_gpu_learner gpu;
    float *sequences[WORKERS], *innovations[WORKERS]; /* on the host */
    float *there, *innovations_there;                 /* on the device, one after the other */
} pairing;

/* With ALIKE codes of different workers should be similar; without, other codes than the chosen one are not needed. */
typedef enum form { RING, SERVER, SERVER_ALIKE } form;

static tg_autoencoder_config config_of(size_t value_n, uint32_t scale, form how, uint32_t workers)
{
    tg_autoencoder_config config = tg_autoencoder_standard(value_n);
    for (int i = 0; i < TG_AUTOENCODER_HALVINGS; i++) {
        config.encoder_channels[i] = config.encoder_channels[i] / scale + (uint32_t)i;
        config.decoder_channels[i] = config.decoder_channels[i] / scale + 3 - (uint32_t)i;
    }
    config.decoder_n = how == RING ? 1 : workers;
    config.code_weight = how == SERVER_ALIKE ? 0.5 : 0;
    return config;
}

static void put(const pairing *p, float *to, const float *from, size_t n)
{
    MUST(tg_cuda_copy(p->device, to, from, n * sizeof *to, why));
    MUST(tg_cuda_wait(p->device, why));
}

static void must_equal(const pairing *p, const float *there, const float *here, size_t n, const char *what)
{
    float *copy = test_room((n + 1) * sizeof *copy);
    MUST(tg_cuda_copy(p->device, copy, there, n * sizeof *copy, why));
    MUST(tg_cuda_wait(p->device, why));
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&copy[i], &here[i], sizeof *copy) != 0) {
            fail_msg("%s %zu of %zu is %a, not %a (%zu values, %u workers)", what, i, n, (double)copy[i],
                     (double)here[i], p->config.value_n, p->workers);
        }
    }
    free(copy);
}

static void open(pairing *p, size_t value_n, uint32_t scale, form how, uint32_t workers, uint64_t kept)
{
    const tg_allocator a = tg_allocator_or_standard(NULL);
    memset(p, 0, sizeof *p);
    p->config = config_of(value_n, scale, how, workers);
    p->workers = workers;
    p->is_server = how != RING;
    MUST(tg_cuda_open(&p->device, 0, NULL, why));
    MUST(tg_autoencoder_new(&p->host, &p->config, 3, NULL, why));
    MUST(tg_gpu_learner_open(&p->gpu, (const tg_gpu *)(const void *)p->device, &p->config, workers, 3, kept, &a, why));
    void *there = NULL;
    MUST(tg_cuda_acquire(&there, p->device, workers * value_n * sizeof(float), why));
    p->there = there;
    MUST(tg_cuda_acquire(&there, p->device, workers * value_n * sizeof(float), why));
    p->innovations_there = there;
    for (uint32_t w = 0; w < workers; w++) {
        p->sequences[w] = test_room(value_n * sizeof(float));
        p->innovations[w] = test_room(value_n * sizeof(float));
    }
}

static void close(pairing *p)
{
    for (uint32_t w = 0; w < p->workers; w++) {
        free(p->innovations[w]);
        free(p->sequences[w]);
    }
    tg_cuda_release(p->device, p->innovations_there);
    tg_cuda_release(p->device, p->there);
    tg_gpu_learner_close(&p->gpu);
    tg_autoencoder_free(p->host);
    tg_cuda_close(p->device);
}

/* Sequences that have something in common. */
static void fill(pairing *p, uint64_t seed)
{
    size_t n = p->config.value_n;
    for (uint32_t w = 0; w < p->workers; w++) {
        test_random common = {seed}, own = {seed * 100 + w + 1};
        for (size_t i = 0; i < n; i++) {
            p->sequences[w][i] = test_gaussian(&common) + 0.3f * test_gaussian(&own);
            p->innovations[w][i] = fabsf(p->sequences[w][i]) > 1.5f ? p->sequences[w][i] : 0.0f;
        }
        put(p, p->there + w * n, p->sequences[w], n);
        put(p, p->innovations_there + w * n, p->innovations[w], n);
    }
}

/* Encodes and decodes. */
static void compare_codes(pairing *p)
{
    size_t n = p->config.value_n, code_n = tg_autoencoder_code_n(p->host);
    float *code = test_room(code_n * sizeof *code), *values = test_room(n * sizeof *values);
    void *code_there = NULL, *values_there = NULL;
    uint32_t last = p->config.decoder_n - 1;
    MUST(tg_cuda_acquire(&code_there, p->device, code_n * sizeof *code, why));
    MUST(tg_cuda_acquire(&values_there, p->device, n * sizeof *values, why));
    tg_autoencoder_encode(code, p->host, p->sequences[last % p->workers]);
    tg_gpu_learner_encode(code_there, &p->gpu, p->there + last % p->workers * n);
    must_equal(p, code_there, code, code_n, "code");
    tg_autoencoder_decode(values, p->host, last, code, p->is_server ? p->innovations[last] : NULL);
    tg_gpu_learner_decode(values_there, &p->gpu, last, code_there,
                          p->is_server ? p->innovations_there + last * n : NULL);
    must_equal(p, values_there, values, n, "value");
    tg_cuda_release(p->device, values_there);
    tg_cuda_release(p->device, code_there);
    free(values);
    free(code);
}

static void compare_learned(const pairing *p)
{
    size_t n = tg_autoencoder_weight_n(p->host);
    assert_int_equal(n, p->gpu.weight_n);
    must_equal(p, p->gpu.weights, tg_autoencoder_weights(p->host), n, "weight");
    must_equal(p, p->gpu.moments, tg_autoencoder_optimizer_state(p->host).moments, 2 * n, "moment");
}

static tg_status train(pairing *p, uint64_t step, bool on_host)
{
    uint32_t chosen = (uint32_t)(step % p->workers);
    double loss = 0, error = 0;
    const float *const *sequences = (const float *const *)p->sequences;
    const float *const *innovations = (const float *const *)p->innovations;
    if (on_host) {
        return p->is_server ? tg_autoencoder_train_common(&loss, p->host, sequences, innovations, chosen, NULL)
                            : tg_autoencoder_train_mean(&loss, p->host, sequences, p->workers, NULL);
    }
    return p->is_server
               ? tg_gpu_learner_train_common(&error, &p->gpu, p->there, p->innovations_there, chosen, step, NULL)
               : tg_gpu_learner_train_mean(&error, &p->gpu, p->there, step, NULL);
}

static void compare(size_t value_n, uint32_t scale, form how, uint32_t workers, uint64_t kept)
{
    pairing p;
    open(&p, value_n, scale, how, workers, kept);
    compare_learned(&p);
    for (uint64_t step = 1; step <= 2; step++) {
        fill(&p, step);
        compare_codes(&p);
        assert_int_equal(train(&p, step, true), TG_OK);
        assert_int_equal(train(&p, step, false), TG_OK);
        compare_learned(&p);
    }
    compare_codes(&p);
    close(&p);
}

static void the_mean_is_learned_alike(void **state)
{
    static const size_t lens[] = {1, 15, 16, 17, 300, 1100};
    (void)state;
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        compare(lens[i], i < 4 ? 8 : 16, RING, 1 + (uint32_t)i % 4, UINT64_MAX);
    }
}

static void so_is_a_common_code(void **state)
{
    static const size_t lens[] = {5, 33, 700};
    (void)state;
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        compare(lens[i], 16, SERVER, 1 + 2 * (uint32_t)i, UINT64_MAX);
        compare(lens[i], 16, SERVER_ALIKE, 1 + 2 * (uint32_t)i, UINT64_MAX);
    }
}

static void fewer_tapes_change_no_bits(void **state)
{
    (void)state;
    compare(100, 16, RING, 5, 0);
    compare(100, 16, SERVER, 5, 2 * 2100);
    compare(100, 16, SERVER_ALIKE, 5, 2 * 2100);
}

/* Full tiles, and the channels of the paper. */
static void the_standard_channels(void **state)
{
    (void)state;
    compare(150, 1, RING, 2, UINT64_MAX);
}

/* A step that fails changes nothing. */
static void what_is_not_finite_is_refused(void **state)
{
    (void)state;
    for (form how = RING; how <= SERVER_ALIKE; how++) {
        pairing p;
        const float bad[] = {NAN, INFINITY, 3e38f};
        open(&p, 40, 16, how, 2, UINT64_MAX);
        for (int i = 0; i < 3; i++) {
            fill(&p, 1);
            p.sequences[1][7] = bad[i];
            put(&p, p.there + 40 + 7, &bad[i], 1);
            assert_int_equal(train(&p, 1, true), TG_E_NONFINITE);
            assert_int_equal(train(&p, 1, false), TG_E_NONFINITE);
            compare_learned(&p);
        }
        close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_is_learned_alike),     cmocka_unit_test(so_is_a_common_code),
        cmocka_unit_test(fewer_tapes_change_no_bits),    cmocka_unit_test(the_standard_channels),
        cmocka_unit_test(what_is_not_finite_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
