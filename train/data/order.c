/* A Feistel network over the smallest even number of bits that holds n, iterated until the result is below n (cycle walking,
 * Black and Rogaway 2002). Any position of the permutation is computed directly: no table, and no setup when an epoch begins. */
#include "data/order.h"

#include "data/random.h"

enum { ROUNDS = 6 };

tr_order tr_order_of(size_t n, uint64_t seed, uint64_t epoch)
{
    tr_order o = {tr_random_key(TR_RANDOM_ORDER, seed, epoch), n, 1};
    while (o.half_bits < 31 && UINT64_C(1) << 2 * o.half_bits < n) {
        o.half_bits++;
    }
    return o;
}

static uint64_t permute(const tr_order *o, uint64_t x)
{
    uint64_t mask = (UINT64_C(1) << o->half_bits) - 1;
    uint64_t left = x >> o->half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (tr_random_mix(tr_random_mix(o->key, round), right) & mask);
        left = right;
        right = next;
    }
    return left << o->half_bits | right;
}

size_t tr_order_at(const tr_order *o, size_t position)
{
    uint64_t x = position;
    do {
        x = permute(o, x);
    } while (x >= o->n); /* terminates: iterating a permutation comes back to its start, which is below n */
    return (size_t)x;
}
