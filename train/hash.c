/* XXH64; see hash.h. */
#include "hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t tr_hash(uint64_t seed, const void *bytes, size_t len)
{
    return XXH64(bytes, len, seed);
}
