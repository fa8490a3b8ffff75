/* Index gaps of a random set, coded at the entropy bound: TG_MODE_RANS, which `gaps` uses in recipes with `rans`. */
#ifndef TG_PACK_GEOMETRIC_H
#define TG_PACK_GEOMETRIC_H

#include "pack/pack.h"

/* Writes the marked elements and returns the length; 0 if it would be more than cap bytes. */
size_t tg_geometric_write(uint8_t *out, size_t cap, const uint64_t *mask, size_t n, size_t count);

/* Sets the marked elements in a mask that is clear. False if the bytes are not valid. */
bool tg_geometric_read(uint64_t *mask, const uint8_t *bytes, size_t len, size_t n, size_t count);

#endif
