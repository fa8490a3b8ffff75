/* Reduce-scatter of ranks on a device: the same slices and residuals, to the bit, as those of ranks on the CPU. */
#include "support.h"
#include "tersegrad/cuda.h"
#include "tersegrad/scatter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 20, N = 5003, STEPS = 3 };

typedef struct side {
    uint32_t world;
    size_t len; /* of the tensor, in bytes */
    tg_exchange *ranks[MANY];
    void *in[MANY], *out[MANY]; /* in the memory of the device, if there is one */
    tg_op ops[MANY];
} side;

static void open_side(side *s, const char *recipe, uint32_t world, tg_nonfinite policy, const test_model *m,
                      tg_device *device)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.nonfinite = policy;
    opt.device = device;
    s->world = world;
    s->len = N * (m->tensors[0].dtype == TG_FP32 ? sizeof(float) : sizeof(uint16_t));
    for (uint32_t r = 0; r < world; r++) {
        MUST(tg_scatter_new(&s->ranks[r], recipe, m->tensors, 1, r, world, &opt, why));
        s->in[r] = s->out[r] = NULL;
        if (device != NULL) {
            MUST(tg_cuda_acquire(&s->in[r], device, s->len, why));
            MUST(tg_cuda_acquire(&s->out[r], device, s->len, why));
        } else {
            s->in[r] = test_room(s->len);
            s->out[r] = test_room(s->len);
        }
    }
}

static void copy(tg_device *device, void *to, const void *from, uint64_t len)
{
    if (device == NULL) {
        memcpy(to, from, len);
    } else {
        MUST(tg_cuda_copy(device, to, from, len, why));
    }
}

static void step_side(side *s, tg_device *device, const test_model *inputs, uint64_t step, float divisor)
{
    for (uint32_t r = 0; r < s->world; r++) {
        copy(device, s->in[r], inputs[r].grads[0], s->len);
        const void *in = s->in[r];
        MUST(tg_scatter_begin(&s->ops[r], s->ranks[r], step, &in, why));
    }
    for (uint32_t from = 0; from < s->world; from++) {
        for (uint32_t to = 0; to < s->world; to++) {
            const tg_span sent = s->ops[from].sends[to];
            if (sent.len > 0) {
                copy(device, s->ops[to].recvs[from].data, sent.data, sent.len);
            }
        }
    }
    for (uint32_t r = 0; r < s->world; r++) {
        MUST(tg_scatter_end(s->ranks[r], &s->out[r], divisor, why));
    }
}

static void close_side(side *s, tg_device *device)
{
    for (uint32_t r = 0; r < s->world; r++) {
        tg_exchange_free(s->ranks[r]);
        if (device != NULL) {
            tg_cuda_release(device, s->in[r]);
            tg_cuda_release(device, s->out[r]);
        } else {
            free(s->in[r]);
            free(s->out[r]);
        }
    }
}

static void compare(tg_device *device, const side *host, const side *gpu, const char *recipe)
{
    for (uint32_t r = 0; r < host->world; r++) {
        float got[N], of_host[N], of_gpu[N];
        uint64_t n = 0;
        tg_slice(NULL, &n, N, r, host->world);
        copy(device, got, gpu->out[r], n * (host->len / N));
        if (memcmp(got, host->out[r], n * (host->len / N)) != 0) {
            fail_msg("%s, %u ranks: the sum of rank %u", recipe, host->world, r);
        }
        MUST(tg_exchange_residual(host->ranks[r], of_host, 0, why));
        MUST(tg_exchange_residual(gpu->ranks[r], of_gpu, 0, why));
        assert_memory_equal(of_gpu, of_host, sizeof of_host);
    }
}

/* Gradients; some of them NaN of either sign or Inf, at places that differ by rank; or -0 on all ranks, so that the sum is; or all of
 * these, and some as small as fp32 has. */
typedef enum values { ORDINARY, NOT_FINITE, ZEROS, ALL_KINDS } values;

static void fill(test_model *m, uint32_t rank, values which)
{
    static const uint32_t bits[] = {0x7fc00000, 0xff800000, 0x80000000, 0x7f800000, 0xffc12000};
    test_random random = {rank + 1};
    test_model_fill(m, &random);
    for (uint64_t i = rank; (which == NOT_FINITE || which == ALL_KINDS) && i < N; i += 97) {
        float value;
        memcpy(&value, &bits[i % 5], sizeof value);
        test_model_set(m, 0, i, value);
    }
    for (uint64_t i = 0; (which == ZEROS || which == ALL_KINDS) && i < N; i += 89) {
        test_model_set(m, 0, i, i % 2 == 0 || which == ZEROS ? -0.0f : 1e-44f);
    }
}

static void check(const char *recipe, uint32_t world, tg_dtype dtype, tg_nonfinite policy, values which)
{
    uint64_t len = N;
    tg_device *device = NULL;
    test_model m[MANY];
    side host, gpu;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    for (uint32_t r = 0; r < world; r++) {
        m[r] = test_model_new(&len, 1, dtype);
        fill(&m[r], r, which);
    }
    open_side(&host, recipe, world, policy, &m[0], NULL);
    open_side(&gpu, recipe, world, policy, &m[0], device);
    for (uint64_t step = 0; step < STEPS; step++) {
        float divisor = step == 0 ? (float)world : 1;
        step_side(&host, NULL, m, step, divisor);
        step_side(&gpu, device, m, step, divisor);
        compare(device, &host, &gpu, recipe);
    }
    close_side(&host, NULL);
    close_side(&gpu, device);
    for (uint32_t r = 0; r < world; r++) {
        test_model_free(&m[r]);
    }
    tg_cuda_close(device);
}

static void devices_change_no_bits(void **state)
{
    static const char *const recipes[] = {"dense",    "bf16",       "ef+mxfp8",          "ef+mxfp4@hadamard=64",
                                          "ef+nvfp4", "ef+qsgd@16", "mxfp4@round=random"};
    (void)state;
    for (size_t c = 0; c < sizeof recipes / sizeof *recipes; c++) {
        check(recipes[c], 3, TG_FP32, TG_NONFINITE_ERROR, ORDINARY);
        check(recipes[c], 3, TG_FP32, TG_NONFINITE_PASS, ORDINARY);
    }
}

/* More bodies than a kernel takes at once, all dtypes, and values that are added one by one. */
static void many_ranks_and_odd_values(void **state)
{
    static const char *const recipes[] = {"dense", "bf16", "fp16", "ef+bf16", "mxfp8"};
    static const tg_dtype dtypes[] = {TG_FP32, TG_BF16, TG_FP16};
    (void)state;
    for (size_t c = 0; c < sizeof recipes / sizeof *recipes; c++) {
        for (size_t d = 0; d < 3; d++) {
            check(recipes[c], 3, dtypes[d], TG_NONFINITE_PASS, NOT_FINITE);
            check(recipes[c], 3, dtypes[d], TG_NONFINITE_PASS, ZEROS);
            check(recipes[c], 3, dtypes[d], TG_NONFINITE_PASS, ALL_KINDS);
        }
        check(recipes[c], MANY, dtypes[c % 3], TG_NONFINITE_PASS, NOT_FINITE);
    }
}

/* ---- over a link that stages messages in host memory, with ranks that are threads ------------------------------------------- */

typedef struct seat {
    side *side;
    tg_device *device;
    tg_link *inner;
    const test_model *model;
    uint32_t rank;
} seat;

static void *work(void *argument)
{
    seat *own = argument;
    tg_link *link = NULL;
    const void *in = own->side->in[own->rank];
    MUST(tg_cuda_link_new(&link, own->device, own->inner, own->side->world, why));
    MUST(tg_handshake(own->side->ranks[own->rank], link, NULL, why));
    for (uint64_t step = 0; step < STEPS; step++) {
        copy(own->device, own->side->in[own->rank], own->model->grads[0], own->side->len);
        MUST(tg_reduce_scatter(own->side->ranks[own->rank], link, step, &own->side->out[own->rank], &in, 3, why));
    }
    MUST(tg_cuda_wait(own->device, why));
    tg_cuda_link_free(link);
    return NULL;
}

static void links_change_no_bits(void **state)
{
    static const char *const recipes[] = {"bf16", "ef+mxfp8", "ef+mxfp4"};
    enum { WORLD = 3 };
    uint64_t len = N;
    tg_device *device = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    for (size_t c = 0; c < sizeof recipes / sizeof *recipes; c++) {
        test_model m[WORLD];
        side host, gpu;
        seat seats[WORLD];
        pthread_t threads[WORLD];
        tg_threads *hub = NULL;
        for (uint32_t r = 0; r < WORLD; r++) {
            m[r] = test_model_new(&len, 1, TG_FP32);
            fill(&m[r], r, ORDINARY);
        }
        open_side(&host, recipes[c], WORLD, TG_NONFINITE_PASS, &m[0], NULL);
        open_side(&gpu, recipes[c], WORLD, TG_NONFINITE_PASS, &m[0], device);
        MUST(tg_threads_new(&hub, WORLD, 60000, NULL, why));
        for (uint32_t r = 0; r < WORLD; r++) {
            seats[r] = (seat){&gpu, device, tg_threads_link(hub, r), &m[r], r};
            assert_int_equal(pthread_create(&threads[r], NULL, work, &seats[r]), 0);
        }
        for (uint64_t step = 0; step < STEPS; step++) {
            step_side(&host, NULL, m, step, WORLD);
        }
        for (uint32_t r = 0; r < WORLD; r++) {
            pthread_join(threads[r], NULL);
        }
        compare(device, &host, &gpu, recipes[c]);
        tg_threads_free(hub);
        close_side(&host, NULL);
        close_side(&gpu, device);
        for (uint32_t r = 0; r < WORLD; r++) {
            test_model_free(&m[r]);
        }
    }
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices_change_no_bits),
                                       cmocka_unit_test(many_ranks_and_odd_values),
                                       cmocka_unit_test(links_change_no_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
