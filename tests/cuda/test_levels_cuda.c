/* ORQ with greedy levels: the frames of the CPU, for values of many distributions. Which kernel quantizes a bucket depends on the number of
 * levels, on how symbols are packed and on whether residuals are kept. */
#include "support.h"

#include "tersegrad/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_N = 3, N = 4500 + 3 + 6001 };
static const uint64_t lens[TENSOR_N] = {4500, 3, 6001};

static const char *const recipes[] = {
    "orq@3",
    "orq@9",
    "orq@3,bucket=300",
    "orq@9,bucket=100",
    "orq@3,half=yes",
    "orq@9,half=yes,clip=2",
    "orq@3,bucket=77",
    "orq@9,bucket=77",
    "orq@9,bucket=7",
    "orq@3,clip=1",
    "orq@5",
    "orq@5,bucket=1536",
    "orq@17",
    "ef+orq@3",
    "ef+orq@9",
    "orq@3,bucket=3000",
    "orq@9+rans",
};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

static float uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(*state >> 40) * 0x1p-24f;
}

/* Nearly of a Gaussian distribution. */
static float bell(uint64_t *state)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += uniform(state);
    }
    return sum;
}

/* A value of distribution number `shape`. */
static float draw(uint32_t shape, uint64_t *state)
{
    float x = bell(state), u = uniform(state), other = uniform(state);
    switch (shape) {
    case 0: return x;
    case 1: return (u < 0.5f ? -1.0f : 1.0f) * logf(other + 0x1p-25f);
    case 2: return x * x * x;
    case 3: return u < 0.9f ? 0.0f : x;
    case 4: return (float)(int)(x * 1.5f);
    case 5: return 1e6f + x;
    case 6: return x * 1e-39f;
    case 7: return x * 5e37f;
    case 8: return 0.25f;
    case 9: return u < 0.3f ? -1.0f : 2.0f;
    case 10: return u < 0.001f ? 1e6f : x;
    case 11: return (u < 0.5f ? -1.0f : 1.0f) * ldexpf(1 + uniform(state), (int)(240 * other) - 120);
    case 12: return u < 0.5f ? fabsf(x) : 0.0f;
    case 13: return u < 0.5f ? 1 + x * 1e-6f : -1 + x * 1e-6f;
    case 14: return u < 0.4f ? -0.0f : u < 0.8f ? 0.0f : x * 1e-3f;
    default: return x * 3e4f;
    }
}
enum { SHAPE_N = 16 };

/* A codec on the CPU and one with a device, and gradients for both. */
typedef struct pair {
    tg_device *device;
    tg_codec *host, *gpu;
    float *grads, *device_grads;
    uint8_t *frame, *device_frame, *back;
    size_t cap;
    const void *of_host[TENSOR_N], *of_device[TENSOR_N];
} pair;

static void open_pair(pair *p, const char *recipe)
{
    static const char *const names[TENSOR_N] = {"a", "b", "c"};
    tg_tensor tensors[TENSOR_N];
    *p = (pair){0};
    MUST(tg_cuda_open(&p->device, 0, NULL, why));
    for (size_t t = 0; t < TENSOR_N; t++) {
        tensors[t] = (tg_tensor){.name = names[t], .dtype = TG_FP32, .dims = &lens[t], .dim_n = 1};
    }
    tg_options opt = TG_OPTIONS_INIT;
    MUST(tg_codec_new(&p->host, recipe, tensors, TENSOR_N, &opt, why));
    opt.device = p->device;
    MUST(tg_codec_new(&p->gpu, recipe, tensors, TENSOR_N, &opt, why));
    p->cap = tg_encode_bound(p->host);
    p->grads = malloc(N * sizeof(float));
    p->frame = malloc(p->cap);
    p->back = malloc(p->cap);
    assert_true(p->grads != NULL && p->frame != NULL && p->back != NULL);
    MUST(tg_cuda_acquire((void **)&p->device_grads, p->device, N * sizeof(float), why));
    MUST(tg_cuda_acquire((void **)&p->device_frame, p->device, p->cap, why));
    for (size_t t = 0, at = 0; t < TENSOR_N; at += lens[t++]) {
        p->of_host[t] = p->grads + at;
        p->of_device[t] = p->device_grads + at;
    }
}

static void close_pair(pair *p)
{
    tg_codec_free(p->gpu);
    tg_codec_free(p->host);
    tg_cuda_release(p->device, p->device_frame);
    tg_cuda_release(p->device, p->device_grads);
    tg_cuda_close(p->device);
    free(p->back);
    free(p->frame);
    free(p->grads);
}

static void compare(pair *p, uint64_t step)
{
    size_t len = 0, host_len = 0;
    MUST(tg_cuda_copy(p->device, p->device_grads, p->grads, N * sizeof(float), why));
    MUST(tg_encode(&len, p->gpu, p->device_frame, p->cap, step, p->of_device, why));
    MUST(tg_cuda_copy(p->device, p->back, p->device_frame, len, why));
    MUST(tg_cuda_wait(p->device, why));
    MUST(tg_encode(&host_len, p->host, p->frame, p->cap, step, p->of_host, why));
    assert_int_equal(len, host_len);
    assert_memory_equal(p->back, p->frame, len);
}

static void frames_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPE_N; i++) {
        pair p;
        open_pair(&p, recipes[i]);
        for (uint32_t shape = 0; shape < SHAPE_N; shape++) {
            uint64_t seed = 1000 * i + shape;
            for (size_t k = 0; k < N; k++) {
                p.grads[k] = draw(shape, &seed);
            }
            compare(&p, shape);
        }
        close_pair(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_are_those_of_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
