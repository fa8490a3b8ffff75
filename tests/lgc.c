/* See lgc.h. */
#include "lgc.h"

#include <stdlib.h>
#include <string.h>

const uint64_t test_lgc_dims[TEST_LGC_TENSORS] = {60, 9, 900, 700, 0, 300};
static const tg_kind kinds[TEST_LGC_TENSORS] = {TG_CONV, TG_NORM, TG_CONV, TG_DENSE, TG_DENSE, TG_DENSE};

const char *const test_lgc_recipes[TEST_LGC_RECIPES] = {
    TEST_LGC_RING,
    TEST_LGC_RING ",order=index",
    TEST_LGC_RING ",code=fp16",
    TEST_LGC_RING ",code=bf16,own=yes",
    TEST_LGC_RING ",refresh=3,again=2",
    TEST_LGC_RING ",first=sparse",
    "momentum+topk@0.05,coords=shared+autoencoder@ring" TEST_LGC_QUICK,
    "topk@0.05,coords=shared+autoencoder@ring" TEST_LGC_QUICK,
    TEST_LGC_SERVER,
    TEST_LGC_SERVER ",order=index,code=fp16,share=0.3,first=sparse",
    TEST_LGC_RING ",code=fp16,whole=bf16",
    TEST_LGC_SERVER ",whole=fp16",
};

tg_options test_lgc_options(void)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 5;
    opt.verify_every = 1;
    return opt;
}

void test_lgc_name(test_lgc *w)
{
    static const char *const names[TEST_LGC_TENSORS] = {"first", "norm", "second", "third", "empty", "last"};
    for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
        w->tensors[t] = (tg_tensor){names[t], &test_lgc_dims[t], 1, kinds[t], TG_FP32};
    }
}

test_lgc *test_lgc_open(uint32_t n, const char *recipe)
{
    test_lgc *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->n = n;
    test_lgc_name(w);
    for (uint32_t r = 0; r < n; r++) {
        tg_options opt = test_lgc_options();
        MUST(tg_exchange_new(&w->ranks[r], recipe, w->tensors, TEST_LGC_TENSORS, r, n, &opt, why));
    }
    return w;
}

void test_lgc_close(test_lgc *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_exchange_free(w->ranks[r]);
    }
    free(w);
}

/* Gradients that are highly correlated between ranks. */
void test_lgc_fill(test_lgc *w, uint64_t step)
{
    for (uint32_t r = 0; r < w->n; r++) {
        test_random common = {1000 * step + 17}, own = {1000 * step + r};
        for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
            for (size_t i = 0; i < test_lgc_dims[t]; i++) {
                w->grads[r][t][i] = (float)(t + 1) * (test_gaussian(&common) + 0.3f * test_gaussian(&own));
            }
        }
    }
}

tg_status test_lgc_reduce(test_lgc *w, uint64_t step, const tg_tap *tap, tg_detail *why)
{
    void *grads[TEST_LGC_RANKS][TEST_LGC_TENSORS];
    void *const *all[TEST_LGC_RANKS];
    for (uint32_t r = 0; r < w->n; r++) {
        for (size_t t = 0; t < TEST_LGC_TENSORS; t++) {
            grads[r][t] = w->grads[r][t];
        }
        all[r] = grads[r];
    }
    return tg_lockstep_reduce(NULL, w->ranks, w->n, step, all, tap, why);
}

void test_lgc_step(test_lgc *w, uint64_t step)
{
    test_lgc_fill(w, step);
    MUST(test_lgc_reduce(w, step, NULL, why));
    for (uint32_t r = 1; r < w->n; r++) {
        assert_memory_equal(w->grads[r], w->grads[0], sizeof w->grads[0]);
    }
}

uint32_t test_lgc_phase(const test_lgc *w)
{
    tg_learning now;
    tg_exchange_learning(&now, w->ranks[0]);
    return now.phase;
}
