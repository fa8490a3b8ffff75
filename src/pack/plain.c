/* Symbols and words at their plain length; and coded packs, which fall back to it where coding does not make them shorter. */
#include "pack/pack.h"

#include <string.h>

uint64_t tg_plain_len(uint64_t count, const tg_coding *c)
{
    return c->base == 0 ? count * c->word_len : tg_bits_len(count, c->base);
}

void tg_plain_write(uint8_t *out, const void *symbols, size_t count, const tg_coding *c)
{
    if (c->base != 0) {
        tg_bits_write(out, symbols, count, c->base);
    } else {
        memcpy(out, symbols, count * c->word_len);
    }
}

bool tg_plain_read(void *symbols, const uint8_t *bytes, size_t count, const tg_coding *c)
{
    if (c->base != 0) {
        return tg_bits_read(symbols, bytes, count, c->base);
    }
    memcpy(symbols, bytes, count * c->word_len);
    return true;
}

size_t tg_coded_write(uint8_t *out, const void *symbols, size_t count, const tg_symbol_part *part, const tg_coding *c)
{
    size_t plain_len = (size_t)tg_plain_len(count, c);
    size_t len = part->encode(out, plain_len, symbols, count, c);
    if (len == 0) {
        out[0] = 0;
        tg_plain_write(out + 1, symbols, count, c);
        len = 1 + plain_len;
    }
    return len;
}

bool tg_coded_read(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_symbol_part *part,
                   const tg_coding *c)
{
    if (len == 0) {
        return false;
    }
    if (bytes[0] != 0) {
        return part->decode(symbols, bytes, len, count, c);
    }
    return len == 1 + tg_plain_len(count, c) && tg_plain_read(symbols, bytes + 1, count, c);
}

bool tg_coded_check(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_symbol_part *part,
                    const tg_coding *c)
{
    bool is_coded = len > 0 && bytes[0] != 0;
    return is_coded && part->check != NULL ? part->check(bytes, len, count, c)
                                           : tg_coded_read(symbols, bytes, len, count, part, c);
}
