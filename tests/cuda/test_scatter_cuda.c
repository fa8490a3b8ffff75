/* Reduce-scatter of ranks on a device: the same slices and residuals, to the bit, as those of ranks on the CPU. */
#include "support.h"
#include "tersegrad/cuda.h"
#include "tersegrad/scatter.h"

#include <stdlib.h>
#include <string.h>

enum { WORLD = 3, N = 5000, STEPS = 3 };

typedef struct side {
    tg_exchange *ranks[WORLD];
    void *in[WORLD], *out[WORLD]; /* in the memory of the device, if there is one */
    tg_op ops[WORLD];
} side;

static void open_side(side *s, const char *recipe, const test_model *m, tg_device *device)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.device = device;
    for (uint32_t r = 0; r < WORLD; r++) {
        MUST(tg_scatter_new(&s->ranks[r], recipe, m->tensors, 1, r, WORLD, &opt, why));
        s->in[r] = s->out[r] = NULL;
        if (device != NULL) {
            MUST(tg_cuda_acquire(&s->in[r], device, N * sizeof(float), why));
            MUST(tg_cuda_acquire(&s->out[r], device, N * sizeof(float), why));
        } else {
            s->in[r] = test_room(N * sizeof(float));
            s->out[r] = test_room(N * sizeof(float));
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

static void step_side(side *s, tg_device *device, const float *const *inputs, uint64_t step, float divisor)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        copy(device, s->in[r], inputs[r], N * sizeof(float));
        const void *in = s->in[r];
        MUST(tg_scatter_begin(&s->ops[r], s->ranks[r], step, &in, why));
    }
    for (uint32_t from = 0; from < WORLD; from++) {
        for (uint32_t to = 0; to < WORLD; to++) {
            const tg_span sent = s->ops[from].sends[to];
            if (sent.len > 0) {
                copy(device, s->ops[to].recvs[from].data, sent.data, sent.len);
            }
        }
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        MUST(tg_scatter_end(s->ranks[r], &s->out[r], divisor, why));
    }
}

static void devices_change_no_bits(void **state)
{
    static const char *const recipes[] = {"dense",    "bf16",       "ef+mxfp8",          "ef+mxfp4@hadamard=64",
                                          "ef+nvfp4", "ef+qsgd@16", "mxfp4@round=random"};
    uint64_t len = N;
    tg_device *device = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    for (size_t c = 0; c < sizeof recipes / sizeof *recipes; c++) {
        test_model m[WORLD];
        const float *inputs[WORLD];
        side host, gpu;
        for (uint32_t r = 0; r < WORLD; r++) {
            test_random random = {r + 1};
            m[r] = test_model_new(&len, 1, TG_FP32);
            test_model_fill(&m[r], &random);
            inputs[r] = m[r].grads[0];
        }
        open_side(&host, recipes[c], &m[0], NULL);
        open_side(&gpu, recipes[c], &m[0], device);
        for (uint64_t step = 0; step < STEPS; step++) {
            float divisor = step == 0 ? WORLD : 1;
            step_side(&host, NULL, inputs, step, divisor);
            step_side(&gpu, device, inputs, step, divisor);
            for (uint32_t r = 0; r < WORLD; r++) {
                float got[N], of_host[N], of_gpu[N];
                uint64_t n = 0;
                tg_slice(NULL, &n, N, r, WORLD);
                copy(device, got, gpu.out[r], n * sizeof(float));
                assert_memory_equal(got, host.out[r], n * sizeof(float));
                MUST(tg_exchange_residual(host.ranks[r], of_host, 0, why));
                MUST(tg_exchange_residual(gpu.ranks[r], of_gpu, 0, why));
                assert_memory_equal(of_gpu, of_host, sizeof of_host);
            }
        }
        for (uint32_t r = 0; r < WORLD; r++) {
            tg_exchange_free(host.ranks[r]);
            tg_exchange_free(gpu.ranks[r]);
            free(host.in[r]);
            free(host.out[r]);
            tg_cuda_release(device, gpu.in[r]);
            tg_cuda_release(device, gpu.out[r]);
            test_model_free(&m[r]);
        }
    }
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices_change_no_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
