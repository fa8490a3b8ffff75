/* A step that is captured in a CUDA graph and replayed: the frames and residuals of the CPU, step by step. Over the emulation, what a
 * graph cannot hold ends the program, and a replay is another call. */
#include "support.h"

#include "tersegrad/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef TG_TEST_ON_GPU
#include <cuda_runtime_api.h>
#else
#include "exec/cuda/emulate/calls.h"
#endif

enum { N = 70001, TENSOR_N = 6, STEP_N = 4 };

static const char *const recipes[] = {"fp16",       "ef+bf16",   "ef+fp8",  "terngrad",      "ef+qsgd@16",
                                      "ef-signsgd", "bingrad@b", "natural", "ef+fp8@refit=2"};

typedef struct flight {
    tg_device *device;
    void *stream;
    tg_codec *host, *gpu;
    float *grads, *device_grads;
    uint8_t *frame, *device_frame, *back;
    uint64_t *device_step;
    size_t cap;
    const void *of_host[TENSOR_N], *of_device[TENSOR_N];
} flight;

static void take_off(flight *f, const char *recipe, tg_nonfinite policy, size_t tensor_n)
{
    uint64_t dims[TENSOR_N];
    tg_tensor tensors[TENSOR_N];
    *f = (flight){0};
#ifdef TG_TEST_ON_GPU
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    f->stream = stream;
#endif
    MUST(tg_cuda_open(&f->device, 0, f->stream, why));
    for (size_t t = 0; t < tensor_n; t++) {
        static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
        dims[t] = N / tensor_n;
        tensors[t] = (tg_tensor){.name = names[t], .dtype = TG_FP32, .dims = &dims[t], .dim_n = 1};
    }
    tg_options opt = TG_OPTIONS_INIT;
    opt.nonfinite = policy;
    MUST(tg_codec_new(&f->host, recipe, tensors, tensor_n, &opt, why));
    opt.device = f->device;
    MUST(tg_codec_new(&f->gpu, recipe, tensors, tensor_n, &opt, why));
    f->cap = tg_encode_bound(f->host);
    f->grads = malloc(N * sizeof(float));
    f->frame = malloc(f->cap);
    f->back = malloc(f->cap);
    assert_true(f->grads != NULL && f->frame != NULL && f->back != NULL);
    MUST(tg_cuda_acquire((void **)&f->device_grads, f->device, N * sizeof(float), why));
    MUST(tg_cuda_acquire((void **)&f->device_frame, f->device, f->cap, why));
    MUST(tg_cuda_acquire((void **)&f->device_step, f->device, sizeof(uint64_t), why));
    for (size_t t = 0; t < tensor_n; t++) {
        f->of_host[t] = f->grads + t * (N / tensor_n);
        f->of_device[t] = f->device_grads + t * (N / tensor_n);
    }
}

static void land(flight *f)
{
    tg_codec_free(f->gpu);
    tg_codec_free(f->host);
    tg_cuda_release(f->device, f->device_step);
    tg_cuda_release(f->device, f->device_frame);
    tg_cuda_release(f->device, f->device_grads);
    tg_cuda_close(f->device);
#ifdef TG_TEST_ON_GPU
    (void)cudaStreamDestroy(f->stream);
#endif
    free(f->back);
    free(f->frame);
    free(f->grads);
}

/* Gradients of a step, with a NaN that the policy takes for 0. */
static void set_step(flight *f, uint64_t step)
{
    uint32_t state = 12345u + (uint32_t)step;
    for (size_t i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        f->grads[i] = ((float)(state >> 8) - 8388608.0f) * 1e-9f;
    }
    f->grads[step * 7 + 3] = (float)NAN;
    MUST(tg_cuda_copy(f->device, f->device_grads, f->grads, N * sizeof(float), why));
    MUST(tg_cuda_copy(f->device, f->device_step, &step, sizeof step, why));
    MUST(tg_cuda_wait(f->device, why));
}

static void must_equal_host(flight *f, uint64_t step, size_t len)
{
    size_t host_len = 0;
    MUST(tg_encode(&host_len, f->host, f->frame, f->cap, step, f->of_host, why));
    assert_int_equal(host_len, len);
    MUST(tg_cuda_copy(f->device, f->back, f->device_frame, len, why));
    MUST(tg_cuda_wait(f->device, why));
    assert_memory_equal(f->frame, f->back, len);
}

static void must_have_residuals(const flight *f, size_t tensor_n)
{
    float *host = test_room(2 * N * sizeof *host), *gpu = host + N;
    for (size_t t = 0; t < tensor_n; t++) {
        MUST(tg_codec_residual(f->host, host, t, why));
        MUST(tg_codec_residual(f->gpu, gpu, t, why));
        assert_memory_equal(host, gpu, N / tensor_n * sizeof *host);
    }
    free(host);
}

static size_t encode(flight *f, uint64_t step)
{
    size_t len = 0;
    MUST(tg_encode(&len, f->gpu, f->device_frame, f->cap, step, f->of_device, why));
    return len;
}

static void begin_capture(flight *f)
{
#ifdef TG_TEST_ON_GPU
    assert_int_equal(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
#else
    (void)f;
    tg_emulated_capture(1);
#endif
}

/* Step 0 as usual; then a graph, or calls that count as captured, with the step in device memory. Residuals are read after some of them. */
static void replay(const char *recipe, size_t tensor_n)
{
    flight f;
    take_off(&f, recipe, TG_NONFINITE_ZERO, tensor_n);
    MUST(tg_cuda_read_step(f.device, f.device_step, why));
    set_step(&f, 0);
    must_equal_host(&f, 0, encode(&f, 99));
#ifdef TG_TEST_ON_GPU
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    begin_capture(&f);
    size_t len = encode(&f, 99);
    assert_int_equal(cudaStreamEndCapture(f.stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    for (uint64_t step = 1; step < STEP_N; step++) {
        set_step(&f, step);
        assert_int_equal(cudaGraphLaunch(ready, f.stream), cudaSuccess);
        must_equal_host(&f, step, len);
        if (step == 2) {
            must_have_residuals(&f, tensor_n);
        }
    }
    (void)cudaGraphExecDestroy(ready);
    (void)cudaGraphDestroy(graph);
#else
    for (uint64_t step = 1; step < STEP_N; step++) {
        set_step(&f, step);
        begin_capture(&f);
        size_t len = encode(&f, 99);
        tg_emulated_capture(0);
        must_equal_host(&f, step, len);
        if (step == 2) {
            must_have_residuals(&f, tensor_n);
        }
    }
#endif
    set_step(&f, STEP_N); /* as usual again */
    MUST(tg_cuda_read_step(f.device, NULL, why));
    must_equal_host(&f, STEP_N, encode(&f, STEP_N));
    must_have_residuals(&f, tensor_n);
    land(&f);
}

static void replays_give_the_frames_of_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        replay(recipes[i], 1 + i % 2 * (TENSOR_N - 1));
    }
}

/* ---- decoding ---------------------------------------------------------------------------------------------------------------- */

/* Sums of a codec on the CPU and on the GPU. */
typedef struct landing {
    float *sums, *device_sums, *back;
    float *of_host[TENSOR_N], *of_device[TENSOR_N];
} landing;

static void open_sums(landing *l, flight *f, size_t tensor_n)
{
    l->sums = calloc(N, sizeof(float));
    l->back = calloc(N, sizeof(float));
    assert_true(l->sums != NULL && l->back != NULL);
    MUST(tg_cuda_acquire((void **)&l->device_sums, f->device, N * sizeof(float), why));
    MUST(tg_cuda_fill(f->device, l->device_sums, 0, N * sizeof(float), why));
    for (size_t t = 0; t < tensor_n; t++) {
        l->of_host[t] = l->sums + t * (N / tensor_n);
        l->of_device[t] = l->device_sums + t * (N / tensor_n);
    }
}

static void close_sums(landing *l, flight *f)
{
    tg_cuda_release(f->device, l->device_sums);
    free(l->back);
    free(l->sums);
}

static void must_have_sums(landing *l, flight *f)
{
    MUST(tg_cuda_copy(f->device, l->back, l->device_sums, N * sizeof(float), why));
    MUST(tg_cuda_wait(f->device, why));
    assert_memory_equal(l->sums, l->back, N * sizeof(float));
}

/* A frame of a step in its place, and in f->frame. */
static size_t encode_both(flight *f, uint64_t step)
{
    set_step(f, step);
    size_t len = encode(f, step);
    must_equal_host(f, step, len);
    return len;
}

/* Frames of several steps, then one that is damaged, from one place: first as usual, then by a graph. */
static void replay_decoding(const char *recipe, size_t tensor_n)
{
    flight f;
    landing l;
    take_off(&f, recipe, TG_NONFINITE_ZERO, tensor_n);
    open_sums(&l, &f, tensor_n);
    size_t len = encode_both(&f, 0);
    begin_capture(&f); /* too early */
    MUST_FAIL(TG_E_ARGUMENT, "decode once", tg_decode_add(f.gpu, l.of_device, 0.5f, f.device_frame, len, why));
#ifdef TG_TEST_ON_GPU
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    assert_int_equal(cudaStreamEndCapture(f.stream, &graph), cudaSuccess);
    (void)cudaGraphDestroy(graph);
#else
    tg_emulated_capture(0);
#endif
    MUST(tg_decode_add(f.gpu, l.of_device, 0.5f, f.device_frame, len, why));
    MUST(tg_decode_add(f.host, l.of_host, 0.5f, f.frame, len, why));
    must_have_sums(&l, &f);
#ifdef TG_TEST_ON_GPU
    begin_capture(&f);
    MUST(tg_decode_add(f.gpu, l.of_device, 0.5f, f.device_frame, len, why));
    assert_int_equal(cudaStreamEndCapture(f.stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
#endif
    for (uint64_t step = 1; step <= STEP_N; step++) {
        assert_int_equal(encode_both(&f, step), len);
        if (step == STEP_N) {
            f.frame[len / 2] ^= 1;
            MUST(tg_cuda_copy(f.device, f.device_frame, f.frame, len, why));
        }
#ifdef TG_TEST_ON_GPU
        assert_int_equal(cudaGraphLaunch(ready, f.stream), cudaSuccess);
#else
        tg_emulated_capture(1);
        MUST(tg_decode_add(f.gpu, l.of_device, 0.5f, f.device_frame, len, why));
        tg_emulated_capture(0);
#endif
        if (step < STEP_N) {
            MUST(tg_decode_add(f.host, l.of_host, 0.5f, f.frame, len, why));
        }
        must_have_sums(&l, &f);
        assert_int_equal(tg_cuda_refused(f.device), step == STEP_N ? 1 : 0);
    }
    MUST_FAIL(TG_E_FRAME, "damaged", tg_decode_add(f.gpu, l.of_device, 0.5f, f.device_frame, len, why));
    must_have_sums(&l, &f);
#ifdef TG_TEST_ON_GPU
    (void)cudaGraphExecDestroy(ready);
    (void)cudaGraphDestroy(graph);
#endif
    close_sums(&l, &f);
    land(&f);
}

static void replayed_decoding_adds_what_the_cpu_adds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        replay_decoding(recipes[i], 1 + i % 2 * (TENSOR_N - 1));
    }
}

static void must_be_refused(const char *recipe, tg_nonfinite policy, const char *what, bool warms_up)
{
    flight f;
    size_t len = 0;
    take_off(&f, recipe, policy, 1);
    memset(f.grads, 0, N * sizeof(float));
    MUST(tg_cuda_copy(f.device, f.device_grads, f.grads, N * sizeof(float), why));
    if (warms_up) {
        (void)encode(&f, 0);
    }
    MUST(tg_cuda_wait(f.device, why));
    begin_capture(&f);
    MUST_FAIL(TG_E_ARGUMENT, what, tg_encode(&len, f.gpu, f.device_frame, f.cap, 1, f.of_device, why));
#ifdef TG_TEST_ON_GPU
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(f.stream, &graph), cudaSuccess); /* nothing has broken the capture */
    (void)cudaGraphDestroy(graph);
#else
    tg_emulated_capture(0);
#endif
    land(&f);
}

static void what_a_graph_cannot_hold_is_refused(void **state)
{
    (void)state;
    must_be_refused("adacomp", TG_NONFINITE_ZERO, "fixed length", true);
    must_be_refused("ef+fp8+rans", TG_NONFINITE_ZERO, "fixed length", true);
    must_be_refused("ef+fp16", TG_NONFINITE_ERROR, "NaN", true);
    must_be_refused("momentum+fp16", TG_NONFINITE_ZERO, "momentum", true);
    must_be_refused("fp16", TG_NONFINITE_PASS, "encode once", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_give_the_frames_of_the_cpu),
        cmocka_unit_test(replayed_decoding_adds_what_the_cpu_adds),
        cmocka_unit_test(what_a_graph_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
