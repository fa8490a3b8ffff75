/* Worlds of ranks that have done some steps. */
#include "arenas.h"

#include <string.h>

#define SMALL ",dense=3,learn=4,enough=1e9,e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
#define RING "ef+topk@0.05,coords=shared+autoencoder@ring" SMALL
#define SERVER "ef+topk@0.05,coords=shared+autoencoder@server" SMALL
#define SPARSE_SERVER SERVER ",order=index,code=fp16,share=0.3,first=sparse"

static const struct {
    const char *recipe, *exchange;
    uint32_t world;
    uint64_t steps;
} rows[] = {
    {"ef+topk@0.1+fp16", "gather", 1, 2},
    {"ef+topk@0.1+fp16", "gather", 3, 2},
    {"ef+topk@0.1+fp16", "shard", 2, 2},
    {"ef+topk@0.1+fp16", "shard", 3, 2},
    {"ef+topk@0.1+fp16", "server", 3, 2},
    {"momentum+topk@0.1,scope=model+rans", "gather", 2, 2},
    {"momentum+topk@0.1,scope=model+rans", "shard", 3, 2},
    {"fp32", "allreduce", 3, 1},
    {"ef+bf16", "allreduce", 2, 2},
    {"ef+randomk@0.2+fp16", "allreduce", 3, 2},
    {"ef+topk@0.1,coords=shared+fp16", "allreduce", 3, 2},
    {"ef+threshold@0.3,coords=shared,scope=model+fp32+rans", "allreduce", 2, 2},
    {"ef+adabins@20+sign@scale=meanmax+adacomp8", "gather", 3, 2},
    {"ef+adabins@20+sign@scale=meanmax", "shard", 4, 2},
    {"ef@decay=0.9+fp4+huffman", "shard", 3, 2},
    {"qsgd@16+rans", "gather", 2, 2},
    {"sign@scale=one", "shard", 3, 1},
    {"ef+orq@5,bucket=50+huffman", "server", 3, 2},
    {"fp16+lossless", "gather", 3, 1},
    {"ef+natural+zstd", "shard", 2, 2},
    {"ef+lowrank@1", "lowrank", 1, 2},
    {"ef+lowrank@1", "lowrank", 3, 2},
    {RING, "lgc-ring", 2, 2},
    {RING, "lgc-ring", 3, 2},
    {RING, "lgc-ring", 3, 5},
    {RING, "lgc-ring", 3, 8},
    {RING ",code=bf16,own=yes,refresh=3,again=2", "lgc-ring", 2, 8},
    {SERVER, "lgc-server", 3, 2},
    {SERVER, "lgc-server", 3, 5},
    {SERVER, "lgc-server", 3, 8},
    {SPARSE_SERVER, "lgc-server", 3, 5},
    {SPARSE_SERVER, "lgc-server", 2, 8},
};

enum { ROW_N = sizeof rows / sizeof *rows };

const size_t fuzz_arena_n = ROW_N;

static const uint64_t dims[FUZZ_ARENA_TENSORS][2] = {{6, 10}, {9, 1}, {12, 25}, {10, 20}, {0, 5}, {10, 10}};

static const tg_tensor tensors[FUZZ_ARENA_TENSORS] = {
    {.name = "first", .dims = dims[0], .dim_n = 2, .kind = TG_CONV},
    {.name = "norm", .dims = dims[1], .dim_n = 1, .kind = TG_NORM},
    {.name = "second", .dims = dims[2], .dim_n = 2, .kind = TG_DENSE},
    {.name = "third", .dims = dims[3], .dim_n = 2, .kind = TG_RECURRENT},
    {.name = "empty", .dims = dims[4], .dim_n = 2, .kind = TG_DENSE},
    {.name = "last", .dims = dims[5], .dim_n = 2, .kind = TG_DENSE},
};

static float value_at(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)(int32_t)((z ^ z >> 31) >> 32) * 0x1p-31f;
}

void fuzz_arena_fill(fuzz_grads *grads, const fuzz_arena *a)
{
    for (uint32_t r = 0; r < a->n; r++) {
        float *at = grads[r].elements;
        for (size_t t = 0; t < FUZZ_ARENA_TENSORS; t++) {
            grads[r].tensors[t] = at;
            at += tensors[t].dim_n == 1 ? dims[t][0] : dims[t][0] * dims[t][1];
        }
        for (uint64_t i = 0; i < FUZZ_ARENA_ELEMENTS; i++) { /* gradients are highly correlated between ranks */
            grads[r].elements[i] = value_at(a->step * 9973 + i) + 0.3f * value_at((a->step * 4 + r + 7) * 104729 + i);
        }
    }
}

tg_status fuzz_arena_reduce(tg_outcome *outcomes, const fuzz_arena *a, fuzz_grads *grads, const tg_tap *tap)
{
    void *const *all[FUZZ_ARENA_RANKS];
    for (uint32_t r = 0; r < a->n; r++) {
        all[r] = grads[r].tensors;
        outcomes[r].status = TG_MORE; /* no step ends with this status */
        memset(&outcomes[r].why, 'x', sizeof outcomes[r].why);
    }
    return tg_lockstep_reduce(outcomes, a->ranks, a->n, a->step, all, tap, NULL);
}

static void save(fuzz_arena *a)
{
    for (uint32_t r = 0; r < a->n; r++) {
        a->saved_len[r] = tg_state_len(a->ranks[r]);
        a->saved[r] = fuzz_room(a->saved_len[r], 0);
        PROMISE(tg_state_save(a->ranks[r], a->saved[r], a->saved_len[r], NULL) == TG_OK, "a state can be saved");
    }
}

const fuzz_arena *fuzz_arena_at(size_t index)
{
    static fuzz_arena arenas[ROW_N];
    fuzz_arena *made = &arenas[index];
    if (made->n > 0) {
        return made;
    }
    *made = (fuzz_arena){.recipe = rows[index].recipe, .exchange = rows[index].exchange, .n = rows[index].world};
    for (uint32_t r = 0; r < made->n; r++) {
        tg_options options = TG_OPTIONS_INIT;
        options.exchange = made->exchange;
        options.has_seed = 1;
        options.seed = 5;
        options.verify_every = 1;
        tg_detail why = {""};
        if (tg_exchange_new(&made->ranks[r], made->recipe, tensors, FUZZ_ARENA_TENSORS, r, made->n, &options, &why) !=
            TG_OK) {
            (void)fprintf(stderr, "%s: %s\n", made->recipe, why.text);
        }
        PROMISE(made->ranks[r] != NULL, "an exchange of the table can be made");
    }
    for (; made->step < rows[index].steps; made->step++) {
        fuzz_grads grads[FUZZ_ARENA_RANKS];
        tg_outcome outcomes[FUZZ_ARENA_RANKS];
        fuzz_arena_fill(grads, made);
        PROMISE(fuzz_arena_reduce(outcomes, made, grads, NULL) == TG_OK, "a world of the table can take a step");
    }
    save(made);
    return made;
}

void fuzz_arena_reset(const fuzz_arena *a)
{
    for (uint32_t r = 0; r < a->n; r++) {
        tg_span state = {a->saved[r], a->saved_len[r]};
        PROMISE(tg_state_load(a->ranks[r], &state, 1, NULL) == TG_OK, "a state that was saved can be loaded");
        PROMISE(fuzz_arena_is_reset(a, r), "a state that was loaded is saved to the same bytes");
    }
}

bool fuzz_arena_is_reset(const fuzz_arena *a, uint32_t rank)
{
    size_t len = tg_state_len(a->ranks[rank]);
    uint8_t *state = fuzz_room(len, 0);
    PROMISE(tg_state_save(a->ranks[rank], state, len, NULL) == TG_OK, "a state can be saved between steps");
    bool same = len == a->saved_len[rank] && memcmp(state, a->saved[rank], len) == 0;
    free(state);
    return same;
}
