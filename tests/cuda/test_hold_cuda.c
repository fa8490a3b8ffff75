/* Rounding of whole tensors to fp8 and fp4 over several steps: the frames of the CPU, of chunks of one part and of many, by the kernel that
 * holds parts in shared memory and by the one that does not. */
#include "support.h"

#include "tersegrad/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_N = 3, LEN_N = 5, MOST = 312297 };

/* The fourth has two chunks, the second of two parts; vectors can be loaded from where the first, third and fourth begin. */
static const uint64_t lens[LEN_N] = {7, 16385, 16388, 262144 + 16389, 984};

static const char *const recipes[] = {"fp8",
                                      "fp8@e4m3",
                                      "ef+fp8",
                                      "ef+fp4",
                                      "momentum+fp8",
                                      "fp8+rans",
                                      "ef+fp8+rans",
                                      "ef+fp8+huffman",
                                      "ef+fp4+rans",
                                      "ef+fp4+huffman",
                                      "fp4@refit=2",
                                      "ef@decay=0.9+fp8@refit=2",
                                      "ef+fp4@refit=2+huffman"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

typedef struct both {
    tg_device *device;
    tg_codec *host, *gpu;
    void *grads, *device_grads;
    uint8_t *frame, *device_frame, *back;
    size_t cap, len; /* bytes of frames; of gradients */
    const void *of_host[LEN_N], *of_device[LEN_N];
} both;

static void begin(both *b, const char *recipe, tg_dtype dtype, tg_nonfinite policy)
{
    static const char *const names[LEN_N] = {"a", "b", "c", "d", "e"};
    size_t each = dtype == TG_FP32 ? 4 : 2;
    tg_tensor tensors[LEN_N];
    tg_options opt = TG_OPTIONS_INIT;
    *b = (both){.len = MOST * each};
    for (size_t t = 0; t < LEN_N; t++) {
        tensors[t] = (tg_tensor){.name = names[t], .dtype = dtype, .dims = &lens[t], .dim_n = 1};
    }
    opt.nonfinite = policy;
    MUST(tg_cuda_open(&b->device, 0, NULL, why));
    MUST(tg_codec_new(&b->host, recipe, tensors, LEN_N, &opt, why));
    opt.device = b->device;
    MUST(tg_codec_new(&b->gpu, recipe, tensors, LEN_N, &opt, why));
    b->cap = tg_encode_bound(b->host);
    b->grads = malloc(b->len);
    b->frame = malloc(b->cap);
    b->back = malloc(b->cap);
    assert_true(b->grads != NULL && b->frame != NULL && b->back != NULL);
    MUST(tg_cuda_acquire(&b->device_grads, b->device, b->len, why));
    MUST(tg_cuda_acquire((void **)&b->device_frame, b->device, b->cap, why));
    for (size_t t = 0, at = 0; t < LEN_N; at += lens[t++] * each) {
        b->of_host[t] = (const char *)b->grads + at;
        b->of_device[t] = (const char *)b->device_grads + at;
    }
}

static void end(both *b)
{
    tg_codec_free(b->gpu);
    tg_codec_free(b->host);
    tg_cuda_release(b->device, b->device_frame);
    tg_cuda_release(b->device, b->device_grads);
    tg_cuda_close(b->device);
    free(b->back);
    free(b->frame);
    free(b->grads);
}

/* Gradients of a step: of many sizes, some 0, and with NaN and Inf at the ends of tiles and parts if `has_bad`. */
static void set_step(both *b, tg_dtype dtype, uint64_t step, bool has_bad)
{
    static const size_t bad[] = {3, 4098, 16391, 16392, 32768, 100000, MOST - 1};
    uint32_t state = 12345u + (uint32_t)step;
    for (size_t i = 0; i < MOST; i++) {
        state = state * 1664525u + 1013904223u;
        float size = ldexpf((float)(state >> 12) - 524288.0f, -(int)(20 + (state & 7)));
        float value = (state >> 3 & 15) == 0 ? 0.0f : size;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == TG_FP32) {
            ((float *)b->grads)[i] = value;
        } else {
            ((uint16_t *)b->grads)[i] = (uint16_t)(bits >> 16); /* bf16 */
        }
    }
    for (size_t i = 0; has_bad && i < sizeof bad / sizeof *bad; i++) {
        uint32_t bits = i % 2 == 0 ? 0x7fc00000u : 0xff800000u;
        if (dtype == TG_FP32) {
            memcpy((float *)b->grads + bad[i] + step, &bits, bad[i] + step < MOST ? sizeof bits : 0);
        } else if (bad[i] + step < MOST) {
            ((uint16_t *)b->grads)[bad[i] + step] = (uint16_t)(bits >> 16);
        }
    }
    MUST(tg_cuda_copy(b->device, b->device_grads, b->grads, b->len, why));
}

static void compare_step(both *b, uint64_t step)
{
    size_t len = 0, host_len = 0;
    MUST(tg_encode(&host_len, b->host, b->frame, b->cap, step, b->of_host, why));
    MUST(tg_encode(&len, b->gpu, b->device_frame, b->cap, step, b->of_device, why));
    assert_int_equal(host_len, len);
    MUST(tg_cuda_copy(b->device, b->back, b->device_frame, len, why));
    MUST(tg_cuda_wait(b->device, why));
    assert_memory_equal(b->frame, b->back, len);
}

static void compare(const char *recipe, tg_dtype dtype, tg_nonfinite policy, bool has_bad)
{
    both b;
    begin(&b, recipe, dtype, policy);
    for (uint64_t step = 0; step < STEP_N; step++) {
        set_step(&b, dtype, step, has_bad);
        compare_step(&b, step);
    }
    end(&b);
}

/* "0": without shared memory; "1": with it. */
static void compare_all(const char *hold)
{
    assert_int_equal(setenv("TG_HOLD", hold, 1), 0);
    for (size_t r = 0; r < RECIPE_N; r++) {
        compare(recipes[r], TG_FP32, TG_NONFINITE_ZERO, true);
    }
    compare("ef+fp8", TG_BF16, TG_NONFINITE_ZERO, true);
    compare("ef+fp8", TG_FP32, TG_NONFINITE_ERROR, false);
    compare("fp8", TG_FP32, TG_NONFINITE_PASS, true);
    compare("fp4+rans", TG_BF16, TG_NONFINITE_PASS, true);
    compare("ef+fp4@refit=2", TG_FP32, TG_NONFINITE_PASS, true);
}

static void frames_are_those_of_the_cpu(void **state)
{
    (void)state;
    compare_all("1");
}

static void so_they_are_without_shared_memory(void **state)
{
    (void)state;
    compare_all("0");
}

/* Two steps of one tensor of n values. */
static void compare_lengths(const float *values, uint64_t n)
{
    const tg_tensor tensor = {.name = "a", .dtype = TG_FP32, .dims = &n, .dim_n = 1};
    tg_options opt = TG_OPTIONS_INIT;
    both b = {.grads = NULL};
    MUST(tg_cuda_open(&b.device, 0, NULL, why));
    MUST(tg_codec_new(&b.host, "ef+fp8", &tensor, 1, &opt, why));
    opt.device = b.device;
    MUST(tg_codec_new(&b.gpu, "ef+fp8", &tensor, 1, &opt, why));
    b.cap = tg_encode_bound(b.host);
    b.frame = malloc(b.cap);
    b.back = malloc(b.cap);
    assert_true(b.frame != NULL && b.back != NULL);
    MUST(tg_cuda_acquire(&b.device_grads, b.device, n * sizeof *values, why));
    MUST(tg_cuda_acquire((void **)&b.device_frame, b.device, b.cap, why));
    MUST(tg_cuda_copy(b.device, b.device_grads, values, n * sizeof *values, why));
    b.of_host[0] = values;
    b.of_device[0] = b.device_grads;
    for (uint64_t step = 0; step < 2; step++) {
        compare_step(&b, step);
    }
    end(&b);
}

/* Chunks that end at or beside the ends of what warps, leaves of the frame, tiles, parts and chunks have. */
static void chunks_of_any_length(void **state)
{
    static const uint64_t ends[] = {3, 2048, 4096, 6144, 16384, 20480, 32768, 262144, 262144 + 2048};
    float *values = malloc(MOST * sizeof *values);
    (void)state;
    assert_true(values != NULL);
    assert_int_equal(setenv("TG_HOLD", "1", 1), 0);
    for (size_t i = 0; i < MOST; i++) {
        values[i] = ldexpf((float)(i * 7919 % 65537) - 32768.0f, -(int)(10 + i % 9));
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        for (uint64_t n = ends[i] - 2; n <= ends[i] + 6; n += ends[i] > 32768 ? 4 : 1) {
            compare_lengths(values, n);
        }
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_those_of_the_cpu),
        cmocka_unit_test(so_they_are_without_shared_memory),
        cmocka_unit_test(chunks_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
