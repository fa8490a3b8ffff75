/* Codes index gaps with rANS under the assumption that they are geometrically distributed, as those of a random set are. The
 * distribution follows from n and count, so no table is sent.
 *
 * A gap is split into its k low bits, which are nearly uniform, and a number. Letter j < 63 stands for the number j. Letter
 * 63 stands for 63 or more; the rest of the number follows in the same way, because a geometric distribution has no memory.
 * Letters and low bits go through one rANS state (rans_coder.h). */
#include "pack/geometric.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "pack/rans_coder.h"

#include <string.h>

enum { LETTERS = 64, BITS = 12, TOTAL = 1 << BITS, START = 1 << 15 /* the lower bound of the state */ };

typedef struct model {
    uint32_t k;
    uint32_t start[LETTERS + 1]; /* cumulative frequency of each letter, out of 2^12 */
} model;

/* In integers, so that every machine gets the same model. */
static model model_of(size_t n, size_t count)
{
    model m = {0};
    uint64_t tail = ((uint64_t)(n - count) << 32) / n; /* 2^32 times the probability of a gap of at least 1 */
    for (; (uint64_t)count << (m.k + 4) <= n; m.k++) {
        tail = (tail * tail) >> 32; /* after k squarings: of at least 2^k */
    }
    uint64_t left = TOTAL; /* frequency of this letter and all later ones, at least 1 each */
    for (uint32_t j = 0; j < LETTERS; j++) {
        m.start[j] = TOTAL - (uint32_t)left;
        uint64_t next = (left * tail) >> 32, least = LETTERS - 1 - j;
        next = next < least ? least : next;
        left = next < left ? next : left - 1;
    }
    m.start[LETTERS] = TOTAL;
    return m;
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* A stream that is written backwards, from the end of its buffer. */
typedef struct backward_stream {
    uint32_t x;
    uint8_t *at;
    const uint8_t *floor;
    bool full;
} backward_stream;

static void push(backward_stream *s, uint32_t start, uint32_t frequency, uint32_t bits)
{
    if (s->x >= (uint64_t)frequency << (31 - bits)) {
        if (s->at - s->floor < 2) {
            s->full = true;
            return;
        }
        s->at -= 2;
        tg_put16(s->at, (uint16_t)s->x);
        s->x >>= 16;
    }
    s->x = ((s->x / frequency) << bits) + s->x % frequency + start;
}

static void push_letter(backward_stream *s, const model *m, uint32_t letter)
{
    push(s, m->start[letter], m->start[letter + 1] - m->start[letter], BITS);
}

static void push_gap(backward_stream *s, const model *m, uint64_t gap)
{
    uint64_t number = gap >> m->k;
    push(s, (uint32_t)(gap & ((UINT64_C(1) << m->k) - 1)), 1, m->k);
    push_letter(s, m, (uint32_t)(number % (LETTERS - 1)));
    for (number /= LETTERS - 1; number > 0 && !s->full; number--) {
        push_letter(s, m, LETTERS - 1);
    }
}

size_t tg_geometric_write(uint8_t *out, size_t cap, const uint64_t *mask, size_t n, size_t count)
{
    if (cap < 4) {
        return 0;
    }
    model m = model_of(n, count);
    backward_stream s = {.x = START, .at = out + cap, .floor = out + 4};
    uint64_t following = n; /* the index after the current gap; n: none yet */
    for (size_t w = tg_words(n); w-- > 0 && !s.full;) {
        for (uint64_t word = mask[w]; word != 0;) {
            unsigned bit = 63 - (unsigned)__builtin_clzll(word);
            word ^= UINT64_C(1) << bit;
            uint64_t index = w * 64 + bit;
            if (following < n) {
                push_gap(&s, &m, following - index - 1);
            }
            following = index;
        }
    }
    push_gap(&s, &m, following);
    if (s.full) {
        return 0;
    }
    size_t words_len = (size_t)(out + cap - s.at);
    tg_put32(out, s.x);
    memmove(out + 4, s.at, words_len);
    return 4 + words_len;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

typedef struct forward_stream {
    uint32_t x;
    const uint8_t *at, *end;
} forward_stream;

static bool refill(forward_stream *s)
{
    if (s->x < START) {
        if (s->at == s->end) {
            return false;
        }
        s->x = s->x << 16 | tg_get16(s->at);
        s->at += 2;
    }
    return true;
}

/* Reads a gap; false if the stream is exhausted, or if the gap is not below `left`, the number of elements left. */
static bool pull_gap(uint64_t *gap, forward_stream *s, const model *m, const uint8_t *letters, uint64_t left)
{
    uint64_t number = 0;
    uint32_t letter = LETTERS - 1;
    while (letter == LETTERS - 1) {
        uint32_t slot = s->x & (TOTAL - 1);
        letter = letters[slot];
        s->x = (m->start[letter + 1] - m->start[letter]) * (s->x >> BITS) + slot - m->start[letter];
        number += letter;
        if (!refill(s) || number << m->k >= left) {
            return false;
        }
    }
    *gap = number << m->k | (s->x & ((UINT64_C(1) << m->k) - 1));
    s->x >>= m->k;
    return refill(s) && *gap < left;
}

bool tg_geometric_read(uint64_t *mask, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    if (count == 0 || len < 4 || len % 2 != 0) {
        return false;
    }
    forward_stream s = {tg_get32(bytes), bytes + 4, bytes + len};
    if (s.x < START || s.x >> 31 != 0) {
        return false;
    }
    model m = model_of(n, count);
    uint8_t letters[TOTAL];
    for (uint32_t j = 0; j < LETTERS; j++) {
        memset(letters + m.start[j], (int)j, m.start[j + 1] - m.start[j]);
    }
    uint64_t next = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t gap = 0;
        if (!pull_gap(&gap, &s, &m, letters, n - next)) {
            return false;
        }
        next += gap;
        mask[next / 64] |= UINT64_C(1) << next % 64;
        next++;
    }
    return s.at == s.end && s.x == START;
}
