/* Ranks of small worlds that have done some steps. */
#include "worlds.h"

#include "support.h"
#include "tersegrad/experimental.h"

enum { TENSOR_N = 3, WORLD_MAX = 2, STEP_N = 3, CASE_N = 8 };

typedef struct world_case {
    const char *recipe, *exchange;
    uint32_t world;
} world_case;

static const world_case cases[CASE_N] = {
    {"ef+topk@0.2+fp16", "gather", 1},       {"ef+topk@0.2+fp16", "gather", 2},       /* each rank's own indices */
    {"ef+topk@0.2+fp16", "shard", 1},        {"ef+topk@0.2+fp16", "shard", 2},        /* owners have residuals too */
    {"ef+topk@0.2+fp16", "server", 1},       {"ef+topk@0.2+fp16", "server", 2},       /* one owner of all */
    {"ef+randomk@0.2+bf16", "allreduce", 1}, {"ef+randomk@0.2+bf16", "allreduce", 2}, /* owners have no residuals */
};

static const uint64_t dims[TENSOR_N] = {23, 4, 9};
static const tg_tensor tensors[TENSOR_N] = {
    {.name = "weights", .dims = &dims[0], .dim_n = 1, .kind = TG_DENSE, .dtype = TG_FP32},
    {.name = "bias", .dims = &dims[1], .dim_n = 1, .kind = TG_BIAS, .dtype = TG_FP32},
    {.name = "filter", .dims = &dims[2], .dim_n = 1, .kind = TG_CONV, .dtype = TG_FP32},
};

/* Gradients of one rank: all different, and no powers of two, so that fp16 leaves residuals. */
typedef struct gradients {
    float elements[64];
    void *tensors[TENSOR_N];
} gradients;

static void fill(gradients *g, uint32_t rank, uint64_t step)
{
    float *at = g->elements;
    for (size_t t = 0; t < TENSOR_N; t++) {
        g->tensors[t] = at;
        for (uint64_t i = 0; i < dims[t]; i++) {
            *at++ = (float)((i * 37 + t * 11 + rank * 5 + step * 17) % 101) / 101.0f - 0.5f;
        }
    }
}

static void make_ranks(fuzz_rank *ranks, const world_case *of)
{
    tg_options options = TG_OPTIONS_INIT;
    options.exchange = of->exchange;
    options.has_seed = 1;
    options.seed = 99;
    for (uint32_t r = 0; r < of->world; r++) {
        ranks[r] = (fuzz_rank){.rank = r, .world = of->world};
        PROMISE(tg_exchange_new(&ranks[r].exchange, of->recipe, tensors, TENSOR_N, r, of->world, &options, NULL) ==
                    TG_OK,
                "an exchange of the table can be made");
    }
}

static tg_status take_step(const fuzz_rank *ranks, uint64_t step, tg_detail *why)
{
    gradients grads[WORLD_MAX];
    tg_exchange *exchanges[WORLD_MAX];
    void *const *tensors_of[WORLD_MAX];
    for (uint32_t r = 0; r < ranks->world; r++) {
        fill(&grads[r], r, step);
        exchanges[r] = ranks[r].exchange;
        tensors_of[r] = grads[r].tensors;
    }
    return tg_lockstep_reduce(NULL, exchanges, ranks->world, step, tensors_of, NULL, why);
}

tg_status fuzz_step_alone(const fuzz_rank *rank, uint64_t step, tg_detail *why)
{
    return take_step(rank, step, why);
}

static void save(fuzz_rank *rank)
{
    rank->saved_len = tg_state_len(rank->exchange);
    rank->saved = fuzz_room(rank->saved_len, 0);
    PROMISE(tg_state_save(rank->exchange, rank->saved, rank->saved_len, NULL) == TG_OK, "a state can be saved");
}

const fuzz_rank *fuzz_ranks(void)
{
    static fuzz_rank ranks[FUZZ_RANK_N];
    if (ranks[0].exchange != NULL) {
        return ranks;
    }
    fuzz_rank *first = ranks;
    for (size_t i = 0; i < CASE_N; first += cases[i].world, i++) {
        make_ranks(first, &cases[i]);
        for (uint64_t step = 0; step < STEP_N; step++) {
            PROMISE(take_step(first, step, NULL) == TG_OK, "a world of the table can take a step");
        }
        for (uint32_t r = 0; r < cases[i].world; r++) {
            save(&first[r]);
        }
    }
    return ranks;
}
