/* A world of ranks some of which have a device. Tests fill gradients of its models in host memory, as in any world; they are copied to
 * devices before a step, and averages back after it. */
#ifndef TG_TESTS_CUDA_MIXED_H
#define TG_TESTS_CUDA_MIXED_H

#include "flight.h"
#include "tersegrad/cuda.h"

/* Which ranks have a device. */
typedef enum mixed_kind { MIXED_EVEN, MIXED_ODD, MIXED_ALL, MIXED_NONE } mixed_kind;

typedef struct mixed {
    tg_device *device;
    test_world world;
    mixed_kind kind;
    void ***grads; /* of ranks with a device: gradients there; NULL: none */
} mixed;

bool mixed_has_device(mixed_kind kind, uint32_t rank);

/* As test_world_new_grouped. Exchanges are NULL if the protocol does not carry the recipe. */
mixed mixed_new(uint32_t n, const test_setup *setup, const uint32_t *group_of, mixed_kind kind);
void mixed_free(mixed *m);

/* The gradients of a rank to its device, and back. */
void mixed_put(const mixed *m, uint32_t rank);
void mixed_get(const mixed *m, uint32_t rank);

/* A link for a rank; free with mixed_unlink. */
tg_link *mixed_link(const mixed *m, uint32_t rank, tg_link *inner);
void mixed_unlink(const mixed *m, uint32_t rank, tg_link *link);

/* Its ranks as reducers, over a link that performs operations in any order; see flight.h. The world is the flight's. */
typedef struct mixed_flight {
    mixed mixed;
    test_flight flight;
    tg_link **links;
} mixed_flight;

void mixed_take_off(mixed_flight *out, uint32_t n, const test_setup *setup, const uint32_t *group_of, mixed_kind kind,
                    uint64_t seed);
void mixed_land(mixed_flight *f);

/* Steps [from, to), each on gradients of its own. */
void mixed_fly(mixed_flight *f, uint64_t from, uint64_t to);

#endif
