/* A world of ranks that run LGC in one thread. The model has a whole layer, a norm, two coded layers, an empty one and a last one.
 * Gradients are highly correlated between ranks. */
#ifndef TG_TESTS_LGC_H
#define TG_TESTS_LGC_H

#include "support.h"

enum {
    TEST_LGC_TENSORS = 6,
    TEST_LGC_RANKS = 8,
    TEST_LGC_LONGEST = 900,
    TEST_LGC_TOTAL = 60 + 9 + 900 + 700 + 0 + 300,
    TEST_LGC_RECIPES = 12
};

extern const uint64_t test_lgc_dims[TEST_LGC_TENSORS];

#define TEST_LGC_SMALL ",e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
#define TEST_LGC_QUICK ",dense=3,learn=6,enough=1e9" TEST_LGC_SMALL
#define TEST_LGC_RING "ef+topk@0.05,coords=shared+autoencoder@ring" TEST_LGC_QUICK
#define TEST_LGC_SERVER "ef+topk@0.05,coords=shared+autoencoder@server" TEST_LGC_QUICK

/* Every option once, at phases of 3 and 6 steps. */
extern const char *const test_lgc_recipes[TEST_LGC_RECIPES];

typedef struct test_lgc {
    uint32_t n;
    tg_tensor tensors[TEST_LGC_TENSORS];
    tg_exchange *ranks[TEST_LGC_RANKS];
    float grads[TEST_LGC_RANKS][TEST_LGC_TENSORS][TEST_LGC_LONGEST];
} test_lgc;

tg_options test_lgc_options(void);
void test_lgc_name(test_lgc *w); /* its tensors */
test_lgc *test_lgc_open(uint32_t n, const char *recipe);
void test_lgc_close(test_lgc *w);

/* Fills in the gradients of a step; runs a step on the current gradients; or does both, which must succeed and leave all ranks with
 * the same bits. */
void test_lgc_fill(test_lgc *w, uint64_t step);
tg_status test_lgc_reduce(test_lgc *w, uint64_t step, const tg_tap *tap, tg_detail *why) TG_CHECKED;
void test_lgc_step(test_lgc *w, uint64_t step);

/* The phase of the next step. */
uint32_t test_lgc_phase(const test_lgc *w);

#endif
