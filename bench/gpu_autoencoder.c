/* LGC's autoencoder on a GPU beside the CPU's, one core: encoding, decoding, and training steps of both forms. Codes, decoded values, weights
 * and moments must have the same bits first.
 *
 *     cmake --build build/cuda --target bench_gpu_autoencoder && build/cuda/bench_gpu_autoencoder [VALUES [WORKERS]] */
#include "exec/cuda/learner.h"
#include "tersegrad/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS_MAX = 64, STEPS = 3 /* that are compared */, ROUNDS = 50 };

static tg_device *device;
static float *sequences[WORKERS_MAX], *innovations[WORKERS_MAX]; /* on the host */
static float *there, *innovations_there;                         /* on the device */

static void die(const char *what)
{
    fprintf(stderr, "bench_gpu_autoencoder: %s\n", what);
    exit(1);
}

static void must(tg_status status, const tg_detail *why)
{
    if (status != TG_OK) {
        die(why->text);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void settle(void)
{
    tg_detail why = {""};
    must(tg_cuda_wait(device, &why), &why);
}

/* Sequences that have something in common, as sorted gradients have. */
static void fill(size_t n, uint32_t workers)
{
    tg_detail why = {""};
    void *blocks[2] = {NULL, NULL};
    uint32_t state = 1;
    for (int i = 0; i < 2; i++) {
        must(tg_cuda_acquire(&blocks[i], device, workers * n * sizeof(float), &why), &why);
    }
    there = blocks[0];
    innovations_there = blocks[1];
    for (uint32_t w = 0; w < workers; w++) {
        sequences[w] = malloc(n * sizeof(float));
        innovations[w] = malloc(n * sizeof(float));
        for (size_t i = 0; i < n; i++) {
            state = state * 1664525u + 1013904223u;
            float noise = (float)(state >> 8) * 0x1p-23f - 1;
            sequences[w][i] = 4 * (float)i / (float)n - 2 + noise / 4;
            innovations[w][i] = i % 10 == 0 ? sequences[w][i] : 0;
        }
        must(tg_cuda_copy(device, there + w * n, sequences[w], n * sizeof(float), &why), &why);
        must(tg_cuda_copy(device, innovations_there + w * n, innovations[w], n * sizeof(float), &why), &why);
    }
    settle();
}

static void compare(const float *on_device, const float *on_host, size_t n, const char *what)
{
    tg_detail why = {""};
    float *copy = malloc(n * sizeof *copy);
    must(tg_cuda_copy(device, copy, on_device, n * sizeof *copy, &why), &why);
    settle();
    if (memcmp(copy, on_host, n * sizeof *copy) != 0) {
        die(what);
    }
    free(copy);
}

static void train_host(tg_autoencoder *ae, uint32_t workers, bool is_server)
{
    double loss = 0;
    tg_detail why = {""};
    const float *const *s = (const float *const *)sequences, *const *i = (const float *const *)innovations;
    must(is_server ? tg_autoencoder_train_common(&loss, ae, s, i, 0, &why)
                   : tg_autoencoder_train_mean(&loss, ae, s, workers, &why),
         &why);
}

static void train_device(tg_gpu_learner *l, uint64_t step, bool is_server)
{
    double error = 0;
    tg_detail why = {""};
    must(is_server ? tg_gpu_learner_train_common(&error, l, there, innovations_there, 0, step, &why)
                   : tg_gpu_learner_train_mean(&error, l, there, step, &why),
         &why);
}

static void measure(size_t n, uint32_t workers, bool is_server)
{
    tg_autoencoder_config config = tg_autoencoder_standard(n);
    const tg_allocator a = tg_allocator_or_standard(NULL);
    tg_autoencoder *host = NULL;
    tg_gpu_learner gpu;
    tg_detail why = {""};
    config.decoder_n = is_server ? workers : 1;
    must(tg_autoencoder_new(&host, &config, 1, NULL, &why), &why);
    must(tg_gpu_learner_open(&gpu, (const tg_gpu *)(const void *)device, &config, workers, 1, (uint64_t)1 << 28, &a,
                             &why),
         &why);
    double begin = seconds();
    for (uint64_t step = 1; step <= STEPS; step++) {
        train_host(host, workers, is_server);
    }
    double on_host = (seconds() - begin) / STEPS;
    for (uint64_t step = 1; step <= STEPS; step++) {
        train_device(&gpu, step, is_server);
    }
    compare(gpu.weights, tg_autoencoder_weights(host), gpu.weight_n, "weights differ from the CPU's");
    compare(gpu.moments, tg_autoencoder_optimizer_state(host).moments, 2 * gpu.weight_n,
            "moments differ from the CPU's");
    float *code = malloc(gpu.code_n * sizeof *code), *values = malloc(n * sizeof *values);
    begin = seconds();
    tg_autoencoder_encode(code, host, sequences[0]);
    double encode_host = seconds() - begin;
    begin = seconds();
    tg_autoencoder_decode(values, host, 0, code, is_server ? innovations[0] : NULL);
    double decode_host = seconds() - begin;
    tg_gpu_learner_encode(gpu.mean_code, &gpu, there);
    tg_gpu_learner_decode(gpu.decoded, &gpu, 0, gpu.mean_code, is_server ? innovations_there : NULL);
    compare(gpu.mean_code, code, gpu.code_n, "a code differs from the CPU's");
    compare(gpu.decoded, values, n, "decoded values differ from the CPU's");
    settle();
    begin = seconds();
    for (int i = 0; i < ROUNDS; i++) {
        tg_gpu_learner_encode(gpu.mean_code, &gpu, there);
    }
    settle();
    double encode = (seconds() - begin) / ROUNDS;
    begin = seconds();
    for (int i = 0; i < ROUNDS; i++) {
        tg_gpu_learner_decode(gpu.decoded, &gpu, 0, gpu.mean_code, is_server ? innovations_there : NULL);
    }
    settle();
    double decode = (seconds() - begin) / ROUNDS;
    begin = seconds();
    for (uint64_t i = 0; i < ROUNDS; i++) {
        train_device(&gpu, STEPS + 1 + i, is_server);
    }
    double train = (seconds() - begin) / ROUNDS;
    printf("%s, %zu values, %u workers: bits as on the CPU; ms: encode %.3f (CPU %.1f), decode %.3f (%.1f), training "
           "step %.3f (%.1f)\n",
           is_server ? "server" : "ring", n, workers, 1e3 * encode, 1e3 * encode_host, 1e3 * decode, 1e3 * decode_host,
           1e3 * train, 1e3 * on_host);
    fflush(stdout);
    free(values);
    free(code);
    tg_gpu_learner_close(&gpu);
    tg_autoencoder_free(host);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 11200;
    uint32_t workers = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 4;
    tg_detail why = {""};
    if (n == 0 || workers == 0 || workers > WORKERS_MAX) {
        die("usage: bench_gpu_autoencoder [VALUES [WORKERS]]");
    }
    must(tg_cuda_open(&device, 0, NULL, &why), &why);
    fill(n, workers);
    measure(n, workers, false);
    measure(n, workers, true);
    return 0;
}
