/* A permutation of [0, n) that depends on seed and epoch alone. */
#ifndef TR_DATA_ORDER_H
#define TR_DATA_ORDER_H

#include <stddef.h>
#include <stdint.h>

typedef struct tr_order {
    uint64_t key, n;
    unsigned half_bits;
} tr_order;

tr_order tr_order_of(size_t n, uint64_t seed, uint64_t epoch);

/* The element at `position`, which must be below n. */
size_t tr_order_at(const tr_order *o, size_t position);

#endif
