/* Lossless coding of floats. Exponents of gradients take few different values; signs and fractions are noise. A word is
 * rotated left by one bit, so that the sign becomes its lowest bit and its upper byte begins with the exponent. The upper
 * bytes are coded near their entropy. The lower bytes are stored unchanged, before them. */
#include "pack/rans_coder.h"

static uint64_t scratch_len(const double *p)
{
    (void)p;
    return TG_PACK_MAX * sizeof(uint16_t) + tg_rans_scratch_len();
}

static void *coder_scratch(const tg_coding *c)
{
    return (uint8_t *)c->scratch + TG_PACK_MAX * sizeof(uint16_t);
}

static size_t encode(uint8_t *out, size_t cap, const void *symbols, size_t count, const tg_coding *c)
{
    uint16_t *uppers = c->scratch;
    size_t lower_len = count * (c->word_len - 1);
    if (lower_len + 1 > cap) {
        return 0;
    }
    uint8_t *lowers = out + 1;
    tg_kernels_best()->coders.split_words(uppers, lowers, symbols, c->word_len, count);
    size_t len =
        tg_rans_encode(lowers + lower_len, out, cap - 1 - lower_len, lower_len, uppers, count, 256, coder_scratch(c));
    return len == 0 ? 0 : 1 + lower_len + len;
}

/* The upper bytes. The lower ones may be anything. */
static bool decode_uppers(const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    size_t lower_len = count * (c->word_len - 1);
    return len - 1 >= lower_len && tg_rans_decode(c->scratch, bytes + 1 + lower_len, len - 1 - lower_len, bytes[0],
                                                  count, 256, coder_scratch(c));
}

static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    if (!decode_uppers(bytes, len, count, c)) {
        return false;
    }
    tg_kernels_best()->coders.join_words(symbols, c->scratch, bytes + 1, c->word_len, count);
    return true;
}

const tg_symbol_part tg_symbol_lossless = {
    .part = {.name = "lossless",
             .summary = "lossless coding of floats: exponents near their entropy, all else unchanged"},
    .codes_words = true,
    .scratch_len = scratch_len,
    .encode = encode,
    .decode = decode,
    .check = decode_uppers,
};
