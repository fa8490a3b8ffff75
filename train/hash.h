/* The hash of saved runs, weights and data sets. */
#ifndef TR_HASH_H
#define TR_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 of `len` bytes. `seed` is 0, or the hash of the preceding bytes, to continue it. */
uint64_t tr_hash(uint64_t seed, const void *bytes, size_t len);

#endif
