/* XXH64, inlined from the library's header so that no name of it is exported. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/hash.h"

#include <string.h>

_Static_assert(sizeof(XXH64_state_t) <= sizeof(tg_hash_list), "tg_hash_list holds the library's state");

uint64_t tg_hash(const void *data, size_t len)
{
    return XXH64(len > 0 ? data : "", len, 0);
}

uint64_t tg_hash_words(const uint64_t *words, size_t n)
{
#if TG_IS_LITTLE_ENDIAN
    return XXH64(words, n * sizeof *words, 0);
#else
    tg_hash_list list;
    tg_hash_list_start(&list);
    for (size_t i = 0; i < n; i++) {
        tg_hash_list_append(&list, words[i]);
    }
    return tg_hash_list_end(&list);
#endif
}

void tg_hash_list_start(tg_hash_list *list)
{
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    memcpy(list, &state, sizeof state);
}

/* Not inlined: with the length in sight gcc 12 warns of a branch in the library that is never taken. */
__attribute__((noinline)) static void feed(XXH64_state_t *state, const uint8_t *bytes, size_t len)
{
    XXH64_update(state, bytes, len);
}

void tg_hash_list_feed(tg_hash_list *list, const uint8_t *bytes, size_t len, const void *ahead, size_t ahead_len)
{
    enum { TURN = 256, LINE = 64 }; /* bytes that are hashed while some lines are on their way */
    XXH64_state_t state;
    size_t asked = 0;
    memcpy(&state, list, sizeof state);
    for (size_t done = 0; done < len; done += TURN) {
        size_t n = len - done < TURN ? len - done : TURN;
        size_t wanted = len > 0 ? (size_t)((double)ahead_len * (double)(done + n) / (double)len) : 0;
        for (; asked < wanted; asked += LINE) {
            size_t line = asked / LINE, quarter = ahead_len / 4 / LINE;
            __builtin_prefetch((const char *)ahead + (line % 4 * quarter + line / 4) * LINE);
        }
        feed(&state, bytes + done, n);
    }
    memcpy(list, &state, sizeof state);
}

void tg_hash_list_append(tg_hash_list *list, uint64_t hash)
{
    XXH64_state_t state;
    uint8_t bytes[8];
    tg_put64(bytes, hash);
    memcpy(&state, list, sizeof state);
    feed(&state, bytes, sizeof bytes);
    memcpy(list, &state, sizeof state);
}

uint64_t tg_hash_list_end(const tg_hash_list *list)
{
    XXH64_state_t state;
    memcpy(&state, list, sizeof state);
    return XXH64_digest(&state);
}
