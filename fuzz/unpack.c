/* Any bytes as the indices and the symbols of a chunk, for every pack part in the table. What an index part accepts is a
 * mask of the right count that survives another round; any bytes are symbols, and symbols survive a round. */
#include "base/bits.h"
#include "codec/codec.h"
#include "support.h"

#include <string.h>

typedef struct chunk {
    const uint8_t *bytes;
    size_t len;
    size_t n, count;
    uint8_t mode;
} chunk;

/* ---- indices -------------------------------------------------------------------------------------------------------- */

static void check_written_again(const tg_index_part *part, const uint64_t *mask, const chunk *c)
{
    size_t mask_len = tg_words(c->n) * sizeof *mask;
    uint8_t *bytes = fuzz_room(tg_bitmap_len(c->n), 0);
    uint64_t *back = fuzz_room(mask_len, 0xff);
    uint8_t mode = UINT8_MAX;
    size_t len = part->write(bytes, &mode, mask, c->n, c->count);
    PROMISE(len <= tg_bitmap_len(c->n), "no indices take more than a bitmap");
    PROMISE(len <= part->limit(c->n, c->count) + 1, "no indices take more than the limit");
    PROMISE(part->read(back, mode, bytes, len, c->n, c->count), "what was written can be read");
    PROMISE(memcmp(back, mask, mask_len) == 0, "a mask that was written is read back");
    free(back);
    free(bytes);
}

static void check_index(const tg_index_part *part, const chunk *c)
{
    uint64_t *mask = fuzz_room(tg_words(c->n) * sizeof *mask, 0xff);
    if (part->read(mask, c->mode, c->bytes, c->len, c->n, c->count)) {
        PROMISE(tg_mask_count(mask, c->n) == c->count, "a mask has as many bits as were announced");
        PROMISE(c->n % 64 == 0 || mask[c->n / 64] >> c->n % 64 == 0, "a mask has no bits beyond its elements");
        if (c->count > 0) { /* a chunk of none is not written by the part */
            check_written_again(part, mask, c);
        }
    }
    free(mask);
}

/* ---- symbols -------------------------------------------------------------------------------------------------------- */

static void check_symbol(const tg_symbol_part *part, const chunk *c, uint32_t symbol_len)
{
    size_t n = c->len / 4; /* what every width has bytes for, at its plain width */
    size_t len = (size_t)part->len(n, symbol_len);
    PROMISE(len <= n * 4, "symbols take no more than their plain width");
    uint8_t *bytes = fuzz_room(len, 0);
    uint8_t *written = fuzz_room(len, 0);
    uint32_t *symbols = fuzz_room(n * sizeof *symbols, 0xff);
    uint32_t *back = fuzz_room(n * sizeof *back, 0xff);
    if (len > 0) {
        memcpy(bytes, c->bytes, len);
    }
    part->read(symbols, bytes, n, symbol_len);
    for (size_t i = 0; i < n; i++) {
        PROMISE((uint64_t)symbols[i] >> 8 * symbol_len == 0, "a symbol is no wider than it says");
    }
    part->write(written, symbols, n, symbol_len);
    part->read(back, written, n, symbol_len);
    PROMISE(memcmp(back, symbols, n * sizeof *symbols) == 0, "symbols that were written are read back");
    free(back);
    free(symbols);
    free(written);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    chunk c = {.mode = fuzz_take8(&input)};
    c.n = 1 + fuzz_take32(&input) % TG_CHUNK;
    c.count = fuzz_take32(&input) % (c.n + 2); /* one more than can be, too */
    c.len = input.left;
    uint8_t *bytes = fuzz_take_bytes(&input, &c.len);
    c.bytes = bytes;
    for (size_t i = 0; i < tg_part_n; i++) {
        const void *part = tg_parts[i].part; /* the first member of what each stage has */
        if (tg_parts[i].stage == TG_STAGE_index) {
            check_index(part, &c);
        }
        for (uint32_t width = 1; tg_parts[i].stage == TG_STAGE_symbol && width <= 4; width++) {
            check_symbol(part, &c, width);
        }
    }
    free(bytes);
    return 0;
}
