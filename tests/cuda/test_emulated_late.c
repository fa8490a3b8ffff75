/* Ranks in lockstep on streams of their own, as Workers has them, while work on streams is done late or by chance: the averages and
 * residuals of ranks on the CPU, to the bit. What is missing of the order between streams shows. */
#include "exec/cuda/emulate/late.h"
#include "exec/cuda/gpu_calls.h"
#include "mixed.h"

#include <stdlib.h>

enum { WORKERS = 4, STREAMS = 3, STEPS = 5, TENSOR_N = 4, SEEDS = 2 };

static const test_run runs[] = {
    {"dense", NULL},           {"ef+fp16", "shard"},         {"ef+topk@0.05", "gather"}, {"ef+topk@0.05", "shard"},
    {"adacomp", "gather"},     {"adacomp", "shard"},         {"terngrad", "server"},     {"ef+fp8", "shard"},
    {"ef+fp4+rans", "gather"}, {"ef+randomblock@0.1", NULL}, {"ef+sign", "shard"},       {"powersgd@2", NULL},
};
enum { RUN_N = sizeof runs / sizeof *runs };

static const uint64_t lens[TENSOR_N] = {700, 5, 330, 64};

/* Worker r is on devices[r % STREAMS]; its gradients are written and its averages read on the caller's stream. */
typedef struct workers {
    test_world world;
    tg_device *devices[STREAMS], *caller;
    void *streams[STREAMS], *own;
    void *grads[WORKERS][TENSOR_N];
} workers;

static void open_stream(tg_device **device, void **stream)
{
    const char *reason = NULL;
    assert_int_equal(tg_gpu_call_new_stream(stream, &reason), 0);
    MUST(tg_cuda_open(device, 0, *stream, why));
}

static void close_stream(tg_device *device, void *stream)
{
    tg_cuda_close(device);
    tg_gpu_call_free_stream(stream);
}

static void begin(workers *w, const test_setup *setup)
{
    *w = (workers){.world = test_world_new(WORKERS, setup)};
    open_stream(&w->caller, &w->own);
    for (int s = 0; s < STREAMS; s++) {
        open_stream(&w->devices[s], &w->streams[s]);
    }
    for (uint32_t r = 0; r < WORKERS; r++) {
        const test_model *model = &w->world.models[r];
        tg_options opt = test_setup_options(setup);
        opt.device = w->devices[r % STREAMS];
        tg_exchange_free(w->world.ranks[r]);
        w->world.ranks[r] = NULL;
        MUST(tg_exchange_new(&w->world.ranks[r], setup->recipe, model->tensors, TENSOR_N, r, WORKERS, &opt, why));
        for (size_t t = 0; t < TENSOR_N; t++) {
            MUST(tg_cuda_acquire(&w->grads[r][t], w->caller, lens[t] * sizeof(float), why));
        }
        w->world.grads[r] = w->grads[r];
    }
}

static void end(workers *w)
{
    test_world_free(&w->world);
    for (uint32_t r = 0; r < WORKERS; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            tg_cuda_release(w->caller, w->grads[r][t]);
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        close_stream(w->devices[s], w->streams[s]);
    }
    close_stream(w->caller, w->own);
}

static void step(workers *w, uint64_t number)
{
    test_world *world = &w->world;
    test_world_fill(world, number);
    for (uint32_t r = 0; r < WORKERS; r++) {
        for (size_t t = 0; t < TENSOR_N; t++) {
            MUST(tg_cuda_copy(w->caller, w->grads[r][t], world->models[r].grads[t], lens[t] * sizeof(float), why));
        }
        if (getenv("TG_EMULATED_PAGEABLE") != NULL) { /* models are filled again before all is done */
            MUST(tg_cuda_wait(w->caller, why));
        }
        MUST(tg_cuda_follow(w->devices[r % STREAMS], w->own, why));
        MUST(tg_lockstep_begin(world->ranks[r], number, world->grads[r], r == 0, why));
    }
    MUST(tg_lockstep_end(world->outcomes, world->ranks, WORKERS, NULL, why));
    for (int s = 0; s < STREAMS; s++) {
        MUST(tg_cuda_lead(w->devices[s], w->own, why));
    }
}

/* The averages of the last step, which only the first worker has. */
static void take_averages(workers *w)
{
    test_world *world = &w->world;
    for (size_t t = 0; t < TENSOR_N; t++) {
        MUST(tg_cuda_copy(w->caller, world->models[0].grads[t], w->grads[0][t], lens[t] * sizeof(float), why));
    }
    MUST(tg_cuda_wait(w->caller, why));
    for (uint32_t r = 1; r < WORKERS; r++) {
        test_model_copy(&world->models[r], &world->models[0]);
    }
}

static void streams_change_no_bits(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        for (int64_t seed = 0; seed < SEEDS; seed++) {
            test_setup setup = {
                .recipe = runs[run].recipe, .exchange = runs[run].exchange, .lens = lens, .tensor_n = TENSOR_N};
            test_world twin = test_world_new(WORKERS, &setup);
            workers w;
            tg_emulated_set_late(seed);
            begin(&w, &setup);
            for (uint64_t number = 0; number < STEPS; number++) {
                step(&w, number);
                test_world_step(&twin, number);
            }
            take_averages(&w);
            if (!test_world_same(&w.world, &twin)) {
                fail_msg("%s by %s, seed %d", runs[run].recipe, runs[run].exchange, (int)seed);
            }
            test_world_free(&twin);
            end(&w);
        }
    }
    tg_emulated_set_late(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_change_no_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
