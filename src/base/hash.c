/* XXH64, inlined from the library's header so that no name of it is exported. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/hash.h"

#include <string.h>

/* The library's state, after a word that is not 0 once it is in use. */
typedef struct hashing {
    uint64_t is_started;
    XXH64_state_t state;
} hashing;

_Static_assert(sizeof(hashing) <= sizeof(tg_hashing), "tg_hashing holds the library's state");

uint64_t tg_hash(const void *data, size_t len)
{
    return XXH64(len > 0 ? data : "", len, 0);
}

uint64_t tg_hash_words(const uint64_t *words, size_t n)
{
#if TG_IS_LITTLE_ENDIAN
    return XXH64(words, n * sizeof *words, 0);
#else
    tg_hashing h = {{0}};
    uint64_t hash = tg_hash(NULL, 0);
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[8];
        tg_put64(bytes, words[i]);
        hash = tg_hash_more(&h, bytes, sizeof bytes, NULL, 0);
    }
    return hash;
#endif
}

uint64_t tg_hash_more(tg_hashing *h, const uint8_t *bytes, size_t len, const void *prefetch, size_t prefetch_len)
{
    enum { TURN = 256, LINE = 64 }; /* bytes that are hashed while some cache lines are on their way */
    size_t line_n = prefetch_len / LINE, fetched = 0;
    hashing own;
    memcpy(&own, h, sizeof own);
    if (own.is_started == 0) {
        own.is_started = 1;
        XXH64_reset(&own.state, 0);
    }
    for (size_t done = 0; done < len; done += TURN) {
        size_t n = len - done < TURN ? len - done : TURN;
        /* Four places of the stretch side by side, as many lines as this turn's share. */
        size_t wanted = line_n * (done + n) / len, quarter = line_n / 4;
        for (; fetched < wanted; fetched++) {
            __builtin_prefetch((const char *)prefetch + (fetched % 4 * quarter + fetched / 4) * LINE);
        }
        XXH64_update(&own.state, bytes + done, n);
    }
    memcpy(h, &own, sizeof own);
    return XXH64_digest(&own.state);
}
