/* Gaps between the indices of a random set, at the bound: the mode of `gaps` in recipes with `rans`. */
#ifndef TG_PACK_GEOMETRIC_H
#define TG_PACK_GEOMETRIC_H

#include "pack/pack.h"

/* Writes the marked ones of n elements in at most cap bytes; 0 if that is not enough. */
size_t tg_geometric_write(uint8_t *out, size_t cap, const uint64_t *mask, size_t n, size_t count);

/* Sets what is marked in a mask that is clear. Trusts nothing. */
bool tg_geometric_read(uint64_t *mask, const uint8_t *bytes, size_t len, size_t n, size_t count);

#endif
