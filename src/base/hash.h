/* XXH64 by the xxHash library: the checksum of frames and states, the fingerprint of models. */
#ifndef TG_BASE_HASH_H
#define TG_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 with seed 0. */
uint64_t tg_hash(const void *data, size_t len);

/* The hash of a list of hashes, fed one at a time. */
typedef struct tg_hash_list {
    uint64_t opaque[12];
} tg_hash_list;

void tg_hash_list_start(tg_hash_list *list);
void tg_hash_list_append(tg_hash_list *list, uint64_t hash);
uint64_t tg_hash_list_end(const tg_hash_list *list);

#endif
