/* A world of ranks in one thread: an exchange and a model for each, run in lockstep. */
#ifndef TG_TESTS_WORLD_H
#define TG_TESTS_WORLD_H

#include "support.h"

typedef struct test_world {
    uint32_t n;
    tg_exchange **ranks;
    test_model *models;
    void *const **grads; /* grads[r] is models[r].grads */
    tg_outcome *outcomes;
    uint64_t *sent; /* bytes that each rank has sent, as the link counted them */
} test_world;

/* Recipe, exchange and options as all ranks get them. */
typedef struct test_setup {
    const char *recipe, *exchange;
    const uint64_t *lens;
    size_t tensor_n;
    tg_dtype dtype;
    uint64_t verify_every;
    uint32_t threads;
    const tg_allocator *allocator;
    const uint64_t *rows; /* of tensors that are matrices, 0 for others; NULL: none is */
    tg_nonfinite nonfinite;
    uint32_t host_size; /* of test_world_new and test_world_new_grouped */
} test_setup;

/* Options of a setup, with seed 7. */
tg_options test_setup_options(const test_setup *setup);

/* NULL exchanges if the protocol does not carry the recipe (TG_E_RECIPE); any other failure fails the test. */
test_world test_world_new(uint32_t n, const test_setup *setup);

/* The same, with tensors in groups. */
test_world test_world_new_grouped(uint32_t n, const test_setup *setup, const uint32_t *group_of);

/* The same, with ranks in hosts of so many. */
test_world test_world_new_hosted(uint32_t n, const test_setup *setup, const uint32_t *group_of, uint32_t host_size);
bool test_world_exists(const test_world *w);
void test_world_free(test_world *w);

/* Gradients of all ranks at a step, a pure function of both. */
void test_world_fill(test_world *w, uint64_t step);

/* Runs one step on the current gradients. */
tg_status test_world_reduce(test_world *w, uint64_t step, const tg_tap *tap, tg_detail *why) TG_CHECKED;

/* Fills in gradients and runs a step, which must succeed and leave all ranks with the same bits. */
void test_world_step(test_world *w, uint64_t step);

bool test_world_identical(const test_world *w);

/* Whether both worlds hold the same gradients and residuals, rank by rank, answers included. Where ranks of a host sum first,
 * residuals are those of their leaders. */
bool test_world_same(const test_world *a, const test_world *b);

/* The total residual of the model, tensors concatenated: the mean of the ranks' residuals plus those of owners. */
void test_world_owed(double *out, const test_world *w);

/* The codecs of a rank's residuals, and with which it answers as an owner; NULL if it has none. */
const tg_codec *test_codec_of(const tg_exchange *x);
const tg_codec *test_answer_of(const tg_exchange *x);

#endif
