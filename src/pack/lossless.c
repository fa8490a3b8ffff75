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
    uint16_t *uppers = c->room;
    size_t lower_len = count * (c->word_len - 1);
    if (lower_len + 1 > cap) {
        return 0;
    }
    uint8_t *lowers = out + 1;
    tg_kernels_best()->coders.split_words(uppers, lowers, symbols, c->word_len, count);
    size_t len = tg_rans_encode(lowers + lower_len, out, cap - 1 - lower_len, uppers, count, 256, coder_room(c));
    return len == 0 ? 0 : 1 + lower_len + len;
}

static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    uint16_t *uppers = c->room;
    size_t lower_len = count * (c->word_len - 1);
    const uint8_t *lowers = bytes + 1;
    if (len - 1 < lower_len ||
        !tg_rans_decode(uppers, lowers + lower_len, len - 1 - lower_len, bytes[0], count, 256, coder_room(c))) {
        return false;
    }
    tg_kernels_best()->coders.join_words(symbols, uppers, lowers, c->word_len, count);
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
