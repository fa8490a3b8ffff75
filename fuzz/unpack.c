/* Any bytes as the indices and the symbols of a chunk, for every pack part in the table. Accepted indices are a mask of the right count
 * that survives a round trip; accepted symbols are below their base and survive a round trip. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "support.h"

#include <string.h>

typedef struct chunk {
    const uint8_t *bytes;
    size_t len;
    size_t n, count;
    uint8_t mode;
} chunk;

/* ---- indices -------------------------------------------------------------------------------------------------------- */

static void check_written_again(const tg_index_part *part, tg_index_read read, tg_index_write write,
                                const uint64_t *mask, const chunk *c)
{
    size_t mask_len = tg_words(c->n) * sizeof *mask;
    uint8_t *bytes = fuzz_room(tg_bitmap_len(c->n), 0);
    uint64_t *back = fuzz_room(mask_len, 0xff);
    uint8_t mode = UINT8_MAX;
    size_t len = write(bytes, &mode, mask, NULL, c->n, c->count);
    PROMISE(len <= tg_bitmap_len(c->n), "no indices take more than a bitmap");
    PROMISE(len <= part->limit(c->n, c->count) + 1, "no indices take more than the limit");
    PROMISE(read(back, mode, bytes, len, c->n, c->count), "what was written can be read");
    PROMISE(memcmp(back, mask, mask_len) == 0, "a mask that was written is read back");
    uint32_t *list = fuzz_room((c->count + TG_LIST_MORE) * sizeof *list, 0);
    uint8_t *again = fuzz_room(tg_bitmap_len(c->n), 0), mode_again = UINT8_MAX;
    PROMISE(tg_kernels_best()->select.list_marks(list, mask, 0, c->n) == c->count,
            "a list has as many entries as there are marks");
    PROMISE(write(again, &mode_again, mask, list, c->n, c->count) == len && mode_again == mode &&
                memcmp(again, bytes, len) == 0,
            "a list is written as the mask is");
    if (part->list != NULL && mode <= TG_MODE_RICE_MAX) {
        uint32_t *listed = fuzz_room(c->count * sizeof *listed, 0xff);
        PROMISE(part->list(listed, mode, bytes, len, c->n, c->count), "what was written can be listed");
        PROMISE(memcmp(listed, list, c->count * sizeof *list) == 0, "what is listed is what is marked");
        free(listed);
    }
    free(again);
    free(list);
    free(back);
    free(bytes);
}

static void check_index(const tg_index_part *part, tg_index_read read, tg_index_write write, const chunk *c)
{
    uint64_t *mask = fuzz_room(tg_words(c->n) * sizeof *mask, 0xff);
    if (read(mask, c->mode, c->bytes, c->len, c->n, c->count)) {
        PROMISE(tg_mask_count(mask, c->n) == c->count, "a mask has as many bits as were announced");
        PROMISE(c->n % 64 == 0 || mask[c->n / 64] >> c->n % 64 == 0, "a mask has no bits beyond its elements");
        if (c->count > 0) { /* a chunk of none is not written by the part */
            check_written_again(part, read, write, mask, c);
        }
    }
    free(mask);
}

/* Joint places and signs. */
static void check_joint(const tg_index_part *part, const chunk *c, uint32_t cell)
{
    size_t mask_len = tg_words(c->n) * sizeof(uint64_t), signs_len = c->count * sizeof(uint16_t);
    uint64_t *mask = fuzz_room(mask_len, 0xff), *back = fuzz_room(mask_len, 0xff);
    uint16_t *signs = fuzz_room(signs_len, 0xff), *signs_back = fuzz_room(signs_len, 0xff);
    if (c->count > 0 && part->read_joint(mask, signs, c->mode, c->bytes, c->len, c->n, c->count, cell)) {
        PROMISE(tg_mask_count(mask, c->n) == c->count, "a mask has as many bits as were announced");
        PROMISE(c->n % 64 == 0 || mask[c->n / 64] >> c->n % 64 == 0, "a mask has no bits beyond its elements");
        uint8_t mode = UINT8_MAX, *bytes = fuzz_room(tg_bitmap_len(c->n) + (c->count + 7) / 8, 0);
        size_t len = part->write_joint(bytes, &mode, mask, signs, c->n, c->count, cell);
        PROMISE(len <= c->len, "what is written is no longer than what was read");
        PROMISE(len == 0 || part->read_joint(back, signs_back, mode, bytes, len, c->n, c->count, cell),
                "what was written can be read");
        PROMISE(len == 0 || (memcmp(back, mask, mask_len) == 0 && memcmp(signs_back, signs, signs_len) == 0),
                "what was written is read back");
        free(bytes);
    }
    free(signs_back);
    free(signs);
    free(back);
    free(mask);
}

/* ---- symbols -------------------------------------------------------------------------------------------------------- */

static void check_plain(const chunk *c, uint32_t base)
{
    size_t n = c->len * 8; /* until there are bytes for them in any base */
    while (tg_bits_len(n, base) > c->len) {
        n /= 2;
    }
    size_t len = (size_t)tg_bits_len(n, base);
    uint8_t *bytes = fuzz_room(len, 0);
    uint8_t *written = fuzz_room(len, 0);
    uint16_t *symbols = fuzz_room(n * sizeof *symbols, 0xff);
    if (len > 0) {
        memcpy(bytes, c->bytes, len);
    }
    if (tg_bits_read(symbols, bytes, n, base)) {
        for (size_t i = 0; i < n; i++) {
            PROMISE(symbols[i] < base, "a symbol is below the base");
        }
        tg_bits_write(written, symbols, n, base);
        PROMISE(len == 0 || memcmp(written, bytes, len) == 0, "symbols are written in one way alone");
    }
    free(symbols);
    free(written);
    free(bytes);
}

/* The workspace of a pack, allocated once, because it is large and slow to allocate and clear. */
static void *room_of(const tg_symbol_part *part, const double *params)
{
    static void *rooms[16];
    for (size_t i = 0; i < tg_part_n; i++) {
        if (tg_parts[i].part == &part->part) {
            void **room = &rooms[tg_parts[i].id % 16];
            *room = *room != NULL ? *room : fuzz_room((size_t)part->scratch_len(params), 0xff);
            return *room;
        }
    }
    return NULL;
}

/* All of the bytes as the output of a coded pack. */
static void check_coded(const tg_symbol_part *part, const chunk *c, tg_coding coding)
{
    size_t width = coding.base == 0 ? coding.word_len : sizeof(uint16_t),
           cap = (size_t)tg_plain_len(c->count, &coding) + 1;
    double params[TG_PARAM_CAP] = {part->part.param_n > 0 ? part->part.params[0].standard : 0};
    uint8_t *symbols = fuzz_room(c->count * width, 0xff), *back = fuzz_room(c->count * width, 0xff);
    uint8_t *written = fuzz_room(cap, 0);
    coding.params = params;
    coding.scratch = room_of(part, params);
    if (tg_coded_read(symbols, c->bytes, c->len, c->count, part, &coding)) {
        for (size_t i = 0; coding.base != 0 && i < c->count; i++) {
            PROMISE(((const uint16_t *)(const void *)symbols)[i] < coding.base, "a symbol is below the base");
        }
        size_t len = tg_coded_write(written, symbols, c->count, part, &coding);
        PROMISE(len <= cap, "no symbols take more than a byte and their plain form");
        PROMISE(tg_coded_read(back, written, len, c->count, part, &coding), "what was written can be read");
        PROMISE(memcmp(back, symbols, c->count * width) == 0, "symbols that were written are read back");
    }
    free(written);
    free(back);
    free(symbols);
}

static void check_symbols(const tg_symbol_part *part, const chunk *c)
{
    static const uint32_t bases[] = {2, 3, 5, 9, 16, 17, 257, 512}, coded_bases[] = {2, 9, 257};
    for (size_t b = 0; !part->codes_symbols && !part->codes_words && b < 8; b++) {
        check_plain(c, bases[b]);
    }
    if (c->count == 0 || c->count > 5000) { /* nothing that takes long */
        return;
    }
    for (size_t b = 0; part->codes_symbols && b < 3; b++) {
        check_coded(part, c, (tg_coding){.base = coded_bases[b]});
    }
    for (uint32_t len = 2; part->codes_words && len <= 4; len += 2) {
        check_coded(part, c, (tg_coding){.word_len = len});
    }
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
            const tg_index_part *index = part;
            check_index(index, index->read, index->write, &c);
            if (index->read_rans != NULL) {
                check_index(index, index->read_rans, index->write_rans, &c);
            }
            if (index->cell_max > 0) {
                check_joint(index, &c, 1 + (uint32_t)(c.len + c.n) % index->cell_max);
            }
        }
        if (tg_parts[i].stage == TG_STAGE_symbol) {
            check_symbols(part, &c);
        }
    }
    free(bytes);
    return 0;
}
