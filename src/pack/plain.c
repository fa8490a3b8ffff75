/* Symbols and words at their plain length, and the rule for all coded packs: the plain form where theirs is not shorter. */
#include "base/bytes.h"
#include "pack/pack.h"

#include <string.h>

uint64_t tg_plain_len(uint64_t count, const tg_coding *c)
{
    return c->base == 0 ? count * c->word_len : tg_bits_len(count, c->base);
}

/* Words of four or of two bytes; halves pass through a few in a row, which compilers turn into vectors. */
enum { PIECE = 256 };

static void write_words(uint8_t *out, const uint32_t *words, size_t count)
{
    if (TG_IS_LITTLE_ENDIAN) {
        memcpy(out, words, 4 * count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        tg_put32(out + 4 * i, words[i]);
    }
}

static void read_words(uint32_t *words, const uint8_t *bytes, size_t count)
{
    if (TG_IS_LITTLE_ENDIAN) {
        memcpy(words, bytes, 4 * count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        words[i] = tg_get32(bytes + 4 * i);
    }
}

static void write_halves(uint8_t *out, const uint32_t *words, size_t count)
{
    size_t i = 0;
    for (uint16_t halves[PIECE]; TG_IS_LITTLE_ENDIAN && count - i >= PIECE; i += PIECE) {
        for (size_t k = 0; k < PIECE; k++) {
            halves[k] = (uint16_t)words[i + k];
        }
        memcpy(out + 2 * i, halves, sizeof halves);
    }
    for (; i < count; i++) {
        tg_put16(out + 2 * i, (uint16_t)words[i]);
    }
}

static void read_halves(uint32_t *words, const uint8_t *bytes, size_t count)
{
    size_t i = 0;
    for (uint16_t halves[PIECE]; TG_IS_LITTLE_ENDIAN && count - i >= PIECE; i += PIECE) {
        memcpy(halves, bytes + 2 * i, sizeof halves);
        for (size_t k = 0; k < PIECE; k++) {
            words[i + k] = halves[k];
        }
    }
    for (; i < count; i++) {
        words[i] = tg_get16(bytes + 2 * i);
    }
}

void tg_plain_write(uint8_t *out, const void *symbols, size_t count, const tg_coding *c)
{
    if (c->base != 0) {
        tg_bits_write(out, symbols, count, c->base);
        return;
    }
    if (c->word_len == 4) {
        write_words(out, symbols, count);
    } else {
        write_halves(out, symbols, count);
    }
}

bool tg_plain_read(void *symbols, const uint8_t *bytes, size_t count, const tg_coding *c)
{
    if (c->base != 0) {
        return tg_bits_read(symbols, bytes, count, c->base);
    }
    if (c->word_len == 4) {
        read_words(symbols, bytes, count);
    } else {
        read_halves(symbols, bytes, count);
    }
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
