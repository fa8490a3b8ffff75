/* XXH64 by the xxHash library: the checksum of frames and states, the fingerprint of models. */
#ifndef TG_BASE_HASH_H
#define TG_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 with seed 0. */
uint64_t tg_hash(const void *data, size_t len);

/* The hash of a list of hashes: of n words, each little-endian. */
uint64_t tg_hash_words(const uint64_t *words, size_t n);

/* The hash of what is fed piece by piece: a list of hashes, or bytes. */
typedef struct tg_hash_list {
    uint64_t opaque[12];
} tg_hash_list;

void tg_hash_list_start(tg_hash_list *list);

/* Adds bytes to what is hashed; tg_hash_list_end then gives what tg_hash gives of all of them. Meanwhile `ahead_len` bytes from
 * `ahead` on, which will be read soon, are asked for; they need not be there. */
void tg_hash_list_feed(tg_hash_list *list, const uint8_t *bytes, size_t len, const void *ahead, size_t ahead_len);
void tg_hash_list_append(tg_hash_list *list, uint64_t hash);
uint64_t tg_hash_list_end(const tg_hash_list *list);

#endif
