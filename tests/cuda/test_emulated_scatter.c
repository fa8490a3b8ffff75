/* Reduce-scatters of ranks with a device: the bits of ranks on the CPU, and no wait where lengths are known and nothing is refused. A
 * damaged message is reported by a later step. */
#include "exec/cuda/emulate/calls.h"
#include "mixed.h"
#include "tersegrad/scatter.h"

#include <string.h>

enum {
    WORLD = 3,
    SHORT = WORLD * 70,
    LONG = WORLD * (262144 + 5), /* of several chunks */
    FEW = 2,
    MANY = 520 /* chunks, whose hashes are more than a leaf */
};

static uint64_t lens[MANY] = {WORLD * 1001, SHORT};
static size_t tensor_n = FEW;

/* Tensor 1 and the number of tensors; those after it are short. */
static void set_tensors(uint64_t second, size_t n)
{
    lens[1] = second;
    tensor_n = n;
    for (size_t t = FEW; t < n; t++) {
        lens[t] = WORLD * (1 + t % 5);
    }
}

/* The same ranks on the device and on the CPU. */
typedef struct both {
    tg_device *device;
    tg_exchange *ranks[WORLD], *twins[WORLD];
    test_model models[WORLD], outs[WORLD], twin_outs[WORLD];
    void *inputs[WORLD][MANY], *sums[WORLD][MANY]; /* in device memory */
    tg_op ops[WORLD], twin_ops[WORLD];
} both;

static uint64_t len_of(size_t t)
{
    return lens[t] * sizeof(float);
}

/* In two blocks: the second one has all tensors but the first. */
static void acquire_tensors(void **out, tg_device *device)
{
    uint64_t len = 0;
    for (size_t t = 1; t < tensor_n; t++) {
        len += len_of(t);
    }
    MUST(tg_cuda_acquire(&out[0], device, len_of(0), why));
    MUST(tg_cuda_acquire(&out[1], device, len, why));
    for (size_t t = 2; t < tensor_n; t++) {
        out[t] = (uint8_t *)out[t - 1] + len_of(t - 1);
    }
}

static void open_both(both *b, const char *recipe, tg_nonfinite policy)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.nonfinite = policy;
    MUST(tg_cuda_open(&b->device, 0, NULL, why));
    for (uint32_t r = 0; r < WORLD; r++) {
        b->models[r] = test_model_new(lens, tensor_n, TG_FP32);
        b->outs[r] = test_model_new(lens, tensor_n, TG_FP32);
        b->twin_outs[r] = test_model_new(lens, tensor_n, TG_FP32);
        opt.device = NULL;
        MUST(tg_scatter_new(&b->twins[r], recipe, b->models[r].tensors, tensor_n, r, WORLD, &opt, why));
        opt.device = b->device;
        MUST(tg_scatter_new(&b->ranks[r], recipe, b->models[r].tensors, tensor_n, r, WORLD, &opt, why));
        acquire_tensors(b->inputs[r], b->device);
        acquire_tensors(b->sums[r], b->device);
    }
}

static void close_both(both *b)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        tg_exchange_free(b->ranks[r]);
        tg_exchange_free(b->twins[r]);
        for (size_t t = 0; t < FEW; t++) {
            tg_cuda_release(b->device, b->inputs[r][t]);
            tg_cuda_release(b->device, b->sums[r][t]);
        }
        test_model_free(&b->models[r]);
        test_model_free(&b->outs[r]);
        test_model_free(&b->twin_outs[r]);
    }
    tg_cuda_close(b->device);
}

static void fill(both *b, uint64_t step)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        test_random random = {100 * step + r + 1};
        test_model_fill(&b->models[r], &random);
        for (size_t t = 0; t < tensor_n; t++) {
            MUST(tg_cuda_copy(b->device, b->inputs[r][t], b->models[r].grads[t], len_of(t), why));
        }
    }
    MUST(tg_cuda_wait(b->device, why));
}

static void begin(both *b, uint64_t step)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        MUST(tg_scatter_begin(&b->twin_ops[r], b->twins[r], step, (const void *const *)b->models[r].grads, why));
        MUST(tg_scatter_begin(&b->ops[r], b->ranks[r], step, (const void *const *)b->inputs[r], why));
    }
}

static void carry(both *b)
{
    for (uint32_t from = 0; from < WORLD; from++) {
        for (uint32_t to = 0; to < WORLD; to++) {
            tg_span sent = b->ops[from].sends[to], received = b->ops[to].recvs[from];
            tg_span twin_sent = b->twin_ops[from].sends[to], twin_received = b->twin_ops[to].recvs[from];
            assert_int_equal(sent.len, twin_sent.len);
            if (sent.len > 0) {
                MUST(tg_cuda_copy(b->device, received.data, sent.data, sent.len, why));
                memcpy(twin_received.data, twin_sent.data, twin_sent.len);
            }
        }
    }
}

static void end(both *b)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        MUST(tg_scatter_end(b->ranks[r], b->sums[r], WORLD, why));
        MUST(tg_scatter_end(b->twins[r], b->twin_outs[r].grads, WORLD, why));
    }
}

static void check_same(both *b, const char *recipe)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        for (size_t t = 0; t < tensor_n; t++) {
            uint64_t first = 0, n = 0;
            tg_slice(&first, &n, lens[t], r, WORLD);
            MUST(tg_cuda_copy(b->device, b->outs[r].grads[t], b->sums[r][t], n * sizeof(float), why));
            MUST(tg_cuda_wait(b->device, why));
            if (memcmp(b->outs[r].grads[t], b->twin_outs[r].grads[t], n * sizeof(float)) != 0) {
                fail_msg("%s: rank %u, tensor %zu", recipe, r, t);
            }
        }
    }
}

static void steps_without_a_wait(void **state)
{
    static const char *const recipes[] = {"bf16",    "fp16",  "dense",    "ef+bf16", "terngrad", "qsgd@16",
                                          "ef+sign", "mxfp8", "ef+mxfp4", "nvfp4",   "bf16",     "bf16"};
    enum { N = sizeof recipes / sizeof *recipes };
    (void)state;
    for (size_t i = 0; i < N; i++) {
        both b;
        set_tensors(i + 2 == N ? LONG : SHORT, i + 1 == N ? MANY : FEW);
        open_both(&b, recipes[i], TG_NONFINITE_PASS);
        for (uint64_t step = 0; step < 2;
             step++) { /* the second one would tell of damage that the first one has found */
            fill(&b, step);
            uint64_t waits = tg_emulated_waits(), acquired = tg_emulated_acquired();
            begin(&b, step);
            carry(&b);
            end(&b);
            if (tg_emulated_waits() != waits || tg_emulated_acquired() != acquired) {
                fail_msg("%s: %u waits and %u acquisitions in step %u", recipes[i],
                         (unsigned)(tg_emulated_waits() - waits), (unsigned)(tg_emulated_acquired() - acquired),
                         (unsigned)step);
            }
            check_same(&b, recipes[i]);
        }
        close_both(&b);
    }
    set_tensors(SHORT, FEW);
}

static void steps_that_may_be_refused(void **state)
{
    (void)state;
    both b;
    open_both(&b, "ef+bf16", TG_NONFINITE_ERROR);
    fill(&b, 0);
    begin(&b, 0);
    carry(&b);
    end(&b);
    check_same(&b, "ef+bf16");
    close_both(&b);
}

/* What is used of a message is its body; the checksum is over it and over what must stand before it. */
static void damage_is_told_later(void **state)
{
    static const uint64_t places[] = {0, 32, 48, 1500, 0, 300000};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        both b;
        tg_detail said;
        set_tensors(i == 5 ? LONG : SHORT, i == 4 ? MANY : FEW);
        open_both(&b, "bf16", TG_NONFINITE_PASS);
        fill(&b, 0);
        begin(&b, 0);
        carry(&b);
        tg_span hit = b.ops[1].recvs[2];
        uint64_t at = i == 4 ? hit.len - 1 : places[i];
        uint8_t byte = 0;
        MUST(tg_cuda_copy(b.device, &byte, (uint8_t *)hit.data + at, 1, why));
        MUST(tg_cuda_wait(b.device, why));
        byte ^= 1;
        MUST(tg_cuda_copy(b.device, (uint8_t *)hit.data + at, &byte, 1, why));
        end(&b);
        MUST(tg_cuda_wait(b.device, why));
        for (uint32_t r = 0; r < WORLD; r++) {
            tg_status status = tg_scatter_begin(&b.ops[r], b.ranks[r], 1, (const void *const *)b.inputs[r], &said);
            bool is_hit = r == 1 && at >= 48; /* bytes before the body are not read */
            assert_int_equal(status, is_hit ? TG_E_FRAME : TG_OK);
            if (is_hit) {
                assert_non_null(strstr(said.text, "from rank 2"));
            }
        }
        close_both(&b);
    }
    set_tensors(SHORT, FEW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_without_a_wait),
        cmocka_unit_test(steps_that_may_be_refused),
        cmocka_unit_test(damage_is_told_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
