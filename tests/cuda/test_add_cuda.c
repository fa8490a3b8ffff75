/* Symbols that are added to sums: those of the CPU, bit for bit, for all ways in which symbols are packed. Tensors have so many elements that
 * a block takes more tiles than it finds at a time, and sums of the second one begin at no multiple of 16 bytes. */
#include "support.h"

#include "tersegrad/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 3, N = 290001 + 4100 + 5, FRAME_N = 3 };
static const uint64_t lens[TENSOR_N] = {290001, 4100, 5};

static const char *const recipes[] = {
    "fp8",
    "fp4",
    "signsgd",
    "bingrad@b",
    "terngrad",
    "natural",
    "qsgd@4",
    "qsgd@16",
    "qsgd@25",
    "qsgd@23,bucket=7",
    "orq@3,bucket=300",
    "orq@9",
    "orq@9,bucket=77",
    "orq@5,half=yes",
    "orq@17",
    "linear@24",
    "linear@255",
    "linear@11",
    "qsgd@16,bucket=1000",
    "fp8+rans",
    "natural+huffman",
};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

/* Codecs with and without a device, a frame, and sums. */
typedef struct pair {
    tg_device *device;
    tg_codec *host, *gpu;
    float *grads, *sums, *back, *device_sums;
    uint8_t *frame, *device_frame;
    size_t cap;
    const void *of_grads[TENSOR_N];
    float *of_sums[TENSOR_N], *of_device[TENSOR_N];
} pair;

static bool open_pair(pair *p, const char *recipe)
{
    static const char *const names[TENSOR_N] = {"a", "b", "c"};
    tg_tensor tensors[TENSOR_N];
    tg_detail unused;
    *p = (pair){0};
    for (size_t t = 0; t < TENSOR_N; t++) {
        tensors[t] = (tg_tensor){.name = names[t], .dtype = TG_FP32, .dims = &lens[t], .dim_n = 1};
    }
    tg_options opt = TG_OPTIONS_INIT;
    if (tg_codec_new(&p->host, recipe, tensors, TENSOR_N, &opt, &unused) != TG_OK) {
        print_error("%s: %s\n", recipe, unused.text);
        return false;
    }
    MUST(tg_cuda_open(&p->device, 0, NULL, why));
    opt.device = p->device;
    MUST(tg_codec_new(&p->gpu, recipe, tensors, TENSOR_N, &opt, why));
    p->cap = tg_encode_bound(p->host);
    p->grads = malloc(N * sizeof(float));
    p->sums = malloc(N * sizeof(float));
    p->back = malloc(N * sizeof(float));
    p->frame = malloc(p->cap);
    assert_true(p->grads != NULL && p->sums != NULL && p->back != NULL && p->frame != NULL);
    MUST(tg_cuda_acquire((void **)&p->device_sums, p->device, N * sizeof(float), why));
    MUST(tg_cuda_acquire((void **)&p->device_frame, p->device, p->cap, why));
    for (size_t t = 0, at = 0; t < TENSOR_N; at += lens[t++]) {
        p->of_grads[t] = p->grads + at;
        p->of_sums[t] = p->sums + at;
        p->of_device[t] = p->device_sums + at;
    }
    return true;
}

static void close_pair(pair *p)
{
    tg_codec_free(p->gpu);
    tg_codec_free(p->host);
    tg_cuda_release(p->device, p->device_frame);
    tg_cuda_release(p->device, p->device_sums);
    tg_cuda_close(p->device);
    free(p->frame);
    free(p->back);
    free(p->sums);
    free(p->grads);
}

static void fill(float *out, uint64_t seed)
{
    for (size_t i = 0; i < N; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        float x = (float)(int32_t)(seed >> 32) * 0x1p-31f;
        out[i] = x * x * x;
    }
}

/* One frame after the other: tiles are taken forwards and backwards in turn. */
static void add_frames(pair *p, uint64_t seed)
{
    fill(p->sums, seed);
    MUST(tg_cuda_copy(p->device, p->device_sums, p->sums, N * sizeof(float), why));
    for (uint64_t step = 0; step < FRAME_N; step++) {
        size_t len = 0;
        float weight = step == 1 ? -0.37f : 1.0f;
        fill(p->grads, seed + step + 1);
        MUST(tg_encode(&len, p->host, p->frame, p->cap, step, p->of_grads, why));
        MUST(tg_cuda_copy(p->device, p->device_frame, p->frame, len, why));
        MUST(tg_decode_add(p->host, p->of_sums, weight, p->frame, len, why));
        MUST(tg_decode_add(p->gpu, p->of_device, weight, p->device_frame, len, why));
        MUST(tg_cuda_copy(p->device, p->back, p->device_sums, N * sizeof(float), why));
        MUST(tg_cuda_wait(p->device, why));
        assert_memory_equal(p->back, p->sums, N * sizeof(float));
    }
}

static void sums_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPE_N; i++) {
        pair p;
        assert_true(open_pair(&p, recipes[i]));
        add_frames(&p, 1000 * i);
        close_pair(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
