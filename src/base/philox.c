/* See philox.h; docs/format.md section 5 is the definition. */
#include "base/philox.h"

void tg_philox(uint32_t out[4], uint64_t key, const uint32_t counter[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < TG_PHILOX_ROUNDS; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0;
        uint64_t p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static uint64_t first64(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    const uint32_t counter[4] = {c0, c1, c2, c3};
    uint32_t out[4];
    tg_philox(out, key, counter);
    return out[0] | (uint64_t)out[1] << 32;
}

tg_stream tg_stream_of(uint64_t seed, uint64_t step, uint32_t unit, uint32_t who)
{
    return (tg_stream){first64(seed, (uint32_t)step, (uint32_t)(step >> 32), unit, who)};
}

uint64_t tg_stream_bits(const tg_stream *s, uint64_t index)
{
    uint64_t block = index / 2;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t out[4];
    tg_philox(out, s->key, counter);
    return index % 2 == 0 ? out[0] | (uint64_t)out[1] << 32 : out[2] | (uint64_t)out[3] << 32;
}

uint64_t tg_stream_below(const tg_stream *s, uint64_t index, uint64_t limit)
{
    /* The high half of a 64x64-bit product, computed from 32-bit halves. */
    uint64_t x = tg_stream_bits(s, index);
    uint64_t x0 = (uint32_t)x, x1 = x >> 32, y0 = (uint32_t)limit, y1 = limit >> 32;
    uint64_t middle = x1 * y0 + ((x0 * y0) >> 32);
    uint64_t carry = x0 * y1 + (uint32_t)middle;
    return x1 * y1 + (middle >> 32) + (carry >> 32);
}

void tg_stream_words(uint32_t *out, const tg_stream *s, uint64_t at, size_t n, uint32_t other)
{
    for (size_t i = 0; i < n;) {
        uint64_t block = (at + i) / 4;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 1, other};
        uint32_t words[4];
        tg_philox(words, s->key, counter);
        for (size_t w = (size_t)((at + i) % 4); w < 4 && i < n; w++) {
            out[i++] = words[w];
        }
    }
}

void tg_stream_halves(uint16_t *out, const tg_stream *s, uint64_t at, size_t n, uint32_t half, uint32_t other)
{
    for (size_t i = 0; i < n;) {
        uint64_t block = (at + i) / TG_HALVES;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), half, other};
        uint32_t words[4];
        tg_philox(words, s->key, counter);
        for (size_t h = (size_t)((at + i) % TG_HALVES); h < TG_HALVES && i < n; h++) {
            out[i++] = (uint16_t)(words[h / 2] >> h % 2 * 16);
        }
    }
}
