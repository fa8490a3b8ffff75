/* Signs of whole tensors, step by step: frames and residuals of the CPU. The scale of a step is subtracted from residuals when the next
 * step reads them; so they are read and refused between steps, too. */
#include "support.h"

#include "tersegrad/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_MAX = 5, STEP_N = 5 };

typedef struct layout {
    size_t tensor_n;
    uint64_t lens[TENSOR_MAX];
} layout;

/* One chunk after another; tensors at any place, some of them sent as they are. */
static const layout layouts[] = {{1, {300001}}, {5, {40000, 1027, 9000, 4096, 5}}};
static const tg_rule plain = {.pattern = "t2", .recipe = "fp16"};

static const char *const recipes[] = {"ef+sign", "ef@decay=0.5+sign", "momentum+sign", "sign"};

typedef struct bench {
    const layout *layout;
    tg_device *device;
    tg_codec *host, *gpu;
    test_model model;
    test_random random;
    char *device_grads;
    uint8_t *frame, *back, *device_frame;
    float *residual, *device_residual;
    size_t cap;
    const void *of_device[TENSOR_MAX];
} bench;

static void open_bench(bench *b, const char *recipe, const layout *l, tg_dtype dtype, tg_nonfinite policy)
{
    size_t each = dtype == TG_FP32 ? 4 : 2, n = 0;
    *b = (bench){.layout = l, .model = test_model_new(l->lens, l->tensor_n, dtype), .random = {.state = 7}};
    for (size_t t = 0; t < l->tensor_n; t++) {
        n += (size_t)l->lens[t];
    }
    tg_options opt = TG_OPTIONS_INIT;
    opt.nonfinite = policy;
    opt.rules = &plain;
    opt.rule_n = 1;
    MUST(tg_codec_new(&b->host, recipe, b->model.tensors, l->tensor_n, &opt, why));
    MUST(tg_cuda_open(&b->device, 0, NULL, why));
    opt.device = b->device;
    MUST(tg_codec_new(&b->gpu, recipe, b->model.tensors, l->tensor_n, &opt, why));
    b->cap = tg_encode_bound(b->host);
    b->frame = test_room(b->cap);
    b->back = test_room(b->cap);
    b->residual = test_room(n * sizeof(float));
    b->device_residual = test_room(n * sizeof(float));
    MUST(tg_cuda_acquire((void **)&b->device_grads, b->device, n * each, why));
    MUST(tg_cuda_acquire((void **)&b->device_frame, b->device, b->cap, why));
    for (size_t t = 0, at = 0; t < l->tensor_n; at += (size_t)l->lens[t++] * each) {
        b->of_device[t] = b->device_grads + at;
    }
}

static void close_bench(bench *b)
{
    tg_codec_free(b->gpu);
    tg_codec_free(b->host);
    tg_cuda_release(b->device, b->device_frame);
    tg_cuda_release(b->device, b->device_grads);
    tg_cuda_close(b->device);
    free(b->device_residual);
    free(b->residual);
    free(b->back);
    free(b->frame);
    test_model_free(&b->model);
}

static void put_grads(bench *b)
{
    size_t each = b->model.tensors[0].dtype == TG_FP32 ? 4 : 2;
    for (size_t t = 0; t < b->layout->tensor_n; t++) {
        MUST(tg_cuda_copy(b->device, (void *)(uintptr_t)b->of_device[t], b->model.grads[t],
                          (size_t)b->layout->lens[t] * each, why));
    }
    MUST(tg_cuda_wait(b->device, why));
}

/* The same frame of both. */
static void step_both(bench *b, uint64_t step)
{
    size_t len = 0, device_len = 0;
    MUST(tg_encode(&len, b->host, b->frame, b->cap, step, (const void *const *)b->model.grads, why));
    MUST(tg_encode(&device_len, b->gpu, b->device_frame, b->cap, step, b->of_device, why));
    assert_int_equal(len, device_len);
    MUST(tg_cuda_copy(b->device, b->back, b->device_frame, len, why));
    MUST(tg_cuda_wait(b->device, why));
    assert_memory_equal(b->frame, b->back, len);
}

static void must_have_residuals(bench *b)
{
    for (size_t t = 0; t < b->layout->tensor_n; t++) {
        MUST(tg_codec_residual(b->host, b->residual, t, why));
        MUST(tg_codec_residual(b->gpu, b->device_residual, t, why));
        assert_memory_equal(b->residual, b->device_residual, (size_t)b->layout->lens[t] * sizeof(float));
    }
}

/* Values that are not finite, or whose sign is all that they have, in some steps. */
static void set_special(bench *b, uint64_t step)
{
    static const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
    for (size_t t = 0; step % 2 == 1 && t < b->layout->tensor_n; t++) {
        for (uint64_t i = 3 * step; i < b->layout->lens[t]; i += 5003) {
            test_model_set(&b->model, t, i, values[(i + step) % 5]);
        }
    }
}

static void fly(const char *recipe, const layout *l, tg_dtype dtype, tg_nonfinite policy)
{
    bench b;
    open_bench(&b, recipe, l, dtype, policy);
    for (uint64_t step = 0; step < STEP_N; step++) {
        test_model_fill(&b.model, &b.random);
        if (policy != TG_NONFINITE_ERROR) {
            set_special(&b, step);
        }
        put_grads(&b);
        step_both(&b, step);
        if (step >= 2) { /* and again, when there is nothing to subtract any more */
            must_have_residuals(&b);
            must_have_residuals(&b);
        }
    }
    close_bench(&b);
}

static void steps_are_those_of_the_cpu(void **state)
{
    static const tg_dtype dtypes[] = {TG_FP32, TG_FP16, TG_BF16};
    static const tg_nonfinite policies[] = {TG_NONFINITE_ERROR, TG_NONFINITE_ZERO, TG_NONFINITE_PASS};
    (void)state;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        for (size_t i = 0; i < 6; i++) {
            fly(recipes[r], &layouts[i % 2], dtypes[(r + i) % 3], policies[i / 2]);
        }
    }
}

/* A step with a NaN is refused, and the next one goes on from the residuals before it. */
static void a_refused_step_changes_nothing(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        for (uint64_t i = 0; i < 2; i++) { /* residuals are read first, or not */
            bench b;
            size_t len = 0;
            open_bench(&b, recipes[r], &layouts[1], TG_FP32, TG_NONFINITE_ERROR);
            test_model_fill(&b.model, &b.random);
            put_grads(&b);
            step_both(&b, 0);
            test_model_fill(&b.model, &b.random);
            test_model_set(&b.model, 1, 1000, NAN);
            put_grads(&b);
            MUST_FAIL(TG_E_NONFINITE, "'t1'",
                      tg_encode(&len, b.host, b.frame, b.cap, 1, (const void *const *)b.model.grads, why));
            MUST_FAIL(TG_E_NONFINITE, "'t1'", tg_encode(&len, b.gpu, b.device_frame, b.cap, 1, b.of_device, why));
            if (i == 0) {
                must_have_residuals(&b);
            }
            test_model_fill(&b.model, &b.random);
            put_grads(&b);
            step_both(&b, 1);
            must_have_residuals(&b);
            close_bench(&b);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_cpu),
        cmocka_unit_test(a_refused_step_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
