/* The hash of frames, states, messages and descriptions: XXH3 over leaves of 4 KiB, then over their hashes (docs/format.md, H). */
#ifndef TG_KERNELS_HASH_H
#define TG_KERNELS_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TG_HASH_LEAF 4096                                /* bytes */
#define TG_HASH_LEAVES (TG_HASH_LEAF / sizeof(uint64_t)) /* whose hashes fill a leaf */

uint64_t tg_hash(const void *data, size_t len);

/* The hash of a list of hashes: of n words, each little-endian, which they are made on machines of the other byte order. */
uint64_t tg_hash_words(uint64_t *words, size_t n);

/* Bytes that are hashed leaf by leaf as they are written, at most TG_HASH_LEAVES leaves. Starts with leaf_n = 0. */
typedef struct tg_hashing {
    size_t leaf_n;
    uint64_t leaves[TG_HASH_LEAVES];
} tg_hashing;

/* Adds bytes; all calls but the last add whole leaves. Meanwhile prefetches prefetch_len bytes from `prefetch` on, which may
 * point past the end. */
void tg_hashing_add(tg_hashing *h, const uint8_t *bytes, size_t len, const void *prefetch, size_t prefetch_len);

/* As tg_hash of all bytes gives it. At least one leaf was added. */
uint64_t tg_hashing_end(tg_hashing *h);

#endif
