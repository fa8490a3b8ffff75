/* See hash.h. XXH3 is inlined from the library's header, so that no name of it is exported. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "kernels/hash.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

uint64_t tg_scalar_hash_leaf(const uint8_t *bytes, const tg_prefetch *next)
{
    (void)next;
    return XXH3_64bits(bytes, TG_HASH_LEAF);
}

static const tg_prefetch no_prefetch = {NULL, 0, 0, 0};

static uint64_t hash_leaf(const uint8_t *bytes, size_t len, const tg_prefetch *next)
{
    return len == TG_HASH_LEAF ? tg_kernels_best()->passes.hash_leaf(bytes, next)
                               : XXH3_64bits(len > 0 ? bytes : (const uint8_t *)"", len);
}

/* The hash of bytes whose leaves are `height` levels below: each node is the hash of the hashes of its children. */
static uint64_t hash_node(const uint8_t *bytes, size_t len, unsigned height)
{
    uint64_t children[TG_HASH_LEAVES];
    size_t span = TG_HASH_LEAF, n = 0;
    if (height == 0) {
        return hash_leaf(bytes, len, &no_prefetch);
    }
    for (unsigned h = 1; h < height; h++) {
        span *= TG_HASH_LEAVES;
    }
    for (size_t at = 0; at < len; at += span) {
        children[n++] = TG_LITTLE64(hash_node(bytes + at, len - at < span ? len - at : span, height - 1));
    }
    return hash_leaf((const uint8_t *)children, n * sizeof *children, &no_prefetch);
}

uint64_t tg_hash(const void *data, size_t len)
{
    unsigned height = 0;
    for (size_t left = len; left > TG_HASH_LEAF; height++) {
        left = (left + TG_HASH_LEAF - 1) / TG_HASH_LEAF * sizeof(uint64_t);
    }
    return hash_node(data, len, height);
}

uint64_t tg_hash_words(uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        words[i] = TG_LITTLE64(words[i]);
    }
    return tg_hash(words, n * sizeof *words);
}

void tg_hashing_add(tg_hashing *h, const uint8_t *bytes, size_t len, const void *prefetch, size_t prefetch_len)
{
    size_t leaves = (len + TG_HASH_LEAF - 1) / TG_HASH_LEAF;
    tg_prefetch next = {.from = prefetch, .quarter = prefetch_len / 4, .each = prefetch_len / TG_HASH_LEAF};
    next.each = leaves > 0 ? next.each / leaves : 0;
    for (size_t at = 0; at < len; at += TG_HASH_LEAF) {
        h->leaves[h->leaf_n++] = hash_leaf(bytes + at, len - at < TG_HASH_LEAF ? len - at : TG_HASH_LEAF, &next);
        next.first += TG_HASH_LEAF / 64 * next.each;
    }
}

uint64_t tg_hashing_end(tg_hashing *h)
{
    return h->leaf_n == 1 ? h->leaves[0] : tg_hash_words(h->leaves, h->leaf_n);
}
