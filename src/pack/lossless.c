/* Floats with nothing lost: exponents of gradients are few, signs and fractions are noise. A word is turned left by one
 * bit, so that the sign is its lowest; its upper byte, which then begins with the exponent, is coded near its entropy, and
 * the lower ones stand as they are, before it. */
#include "pack/rans_coder.h"

static uint64_t room_len(const double *p)
{
    (void)p;
    return TG_PACK_MAX * sizeof(uint16_t) + tg_rans_room_len();
}

static void *coder_room(const tg_coding *c)
{
    return (uint8_t *)c->room + TG_PACK_MAX * sizeof(uint16_t);
}

static size_t encode(uint8_t *out, size_t cap, const void *symbols, size_t count, const tg_coding *c)
{
    const uint32_t *words = symbols;
    uint16_t *uppers = c->room;
    uint32_t lower_n = c->word_len - 1, sign = 8 * lower_n + 7;
    size_t lower_len = count * lower_n;
    if (lower_len + 1 > cap) {
        return 0;
    }
    uint8_t *at = out + 1;
    for (size_t i = 0; i < count; i++) {
        uint32_t turned = words[i] << 1 | words[i] >> sign;
        uppers[i] = (uint16_t)(turned >> 8 * lower_n & 255);
        for (uint32_t b = 0; b < lower_n; b++) {
            *at++ = (uint8_t)(turned >> 8 * b);
        }
    }
    size_t len = tg_rans_encode(at, out, cap - 1 - lower_len, uppers, count, 256, coder_room(c));
    return len == 0 ? 0 : 1 + lower_len + len;
}

static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    uint32_t *words = symbols;
    uint16_t *uppers = c->room;
    uint32_t lower_n = c->word_len - 1, sign = 8 * lower_n + 7;
    size_t lower_len = count * lower_n;
    const uint8_t *at = bytes + 1;
    if (len - 1 < lower_len ||
        !tg_rans_decode(uppers, at + lower_len, len - 1 - lower_len, bytes[0], count, 256, coder_room(c))) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t turned = (uint32_t)uppers[i] << 8 * lower_n;
        for (uint32_t b = 0; b < lower_n; b++) {
            turned |= (uint32_t)*at++ << 8 * b;
        }
        words[i] = turned >> 1 | (turned & 1) << sign;
    }
    return true;
}

const tg_symbol_part tg_symbol_lossless = {
    .part = {.name = "lossless",
             .summary = "floats with nothing lost: exponents near their entropy, the rest as it is"},
    .codes_words = true,
    .room_len = room_len,
    .encode = encode,
    .decode = decode,
};
