/* XXH64 by the xxHash library: the checksum of frames and states, the fingerprint of models. */
#ifndef TG_BASE_HASH_H
#define TG_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 with seed 0. */
uint64_t tg_hash(const void *data, size_t len);

/* The hash of a list of hashes: of n words, each little-endian. */
uint64_t tg_hash_words(const uint64_t *words, size_t n);

/* Bytes that are hashed piece by piece. Starts as zeros. */
typedef struct tg_hashing {
    uint64_t opaque[12];
} tg_hashing;

/* Adds bytes, and returns the hash of all so far, as tg_hash gives it. Meanwhile prefetches prefetch_len bytes from `prefetch` on,
 * which may point past the end. */
uint64_t tg_hash_more(tg_hashing *h, const uint8_t *bytes, size_t len, const void *prefetch, size_t prefetch_len);

#endif
