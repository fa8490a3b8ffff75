/* Any bytes as the body of a frame between ranks, for codecs of every kind: slices, values without indices, indices
 * without values. No header and no checksum stand before it, so that a fuzzer is inside at once.
 *
 * The input: case, what the body holds, slice, step (a byte each), the length of what a leader said (two bytes), that,
 * and the body. */
#include "body_cases.h"
#include "support.h"

#include <string.h>

/* ---- values --------------------------------------------------------------------------------------------------------- */

static void refill(const tg_codec *c, void *const *room, int fill)
{
    for (size_t t = 0; t < c->layout->tensor_n; t++) {
        size_t element_len = tg_dtype_len(c->layout->tensors[t].dtype);
        memset(room[t], fill, (size_t)c->layout->tensor_elements[t] * element_len);
    }
}

static bool is_all(const uint8_t *bytes, size_t len, uint8_t fill)
{
    return len == 0 || (bytes[0] == fill && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static uint64_t within(uint64_t at, const tg_piece *piece)
{
    uint64_t from_start = at > piece->at ? at - piece->at : 0;
    return from_start < piece->n ? from_start : piece->n;
}

/* Elements [lo, hi) of the unit that the piece is of are the same in both, and its others are as they were. */
static void check_piece(const fuzz_body_case *with, const tg_piece *piece, uint64_t lo, uint64_t hi)
{
    size_t element_len = tg_dtype_len(with->codec->layout->tensors[piece->tensor].dtype);
    const uint8_t *a = with->zeros[piece->tensor], *b = with->ones[piece->tensor];
    size_t from = (size_t)within(lo, piece) * element_len, to = (size_t)within(hi, piece) * element_len;
    size_t end = (size_t)piece->n * element_len;
    PROMISE(memcmp(a + from, b + from, to - from) == 0, "a slice is written whole and always alike");
    PROMISE(is_all(a, from, 0x00) && is_all(b, from, 0xff), "nothing before a slice is written");
    PROMISE(is_all(a + to, end - to, 0x00) && is_all(b + to, end - to, 0xff), "nothing behind a slice is written");
}

/* Sums the body that was read twice, into different bits, so that an element that is not written shows. */
static void check_values(const fuzz_body_case *with, uint32_t slice)
{
    tg_codec *c = with->codec;
    refill(c, with->zeros, 0x00);
    refill(c, with->ones, 0xff);
    tg_codec_sum(c, slice, c->views, 1, &(tg_sink){.averages = with->zeros, .divisor = 1.0f});
    tg_codec_sum(c, slice, c->views, 1, &(tg_sink){.averages = with->ones, .divisor = 1.0f});
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        const tg_unit *unit = &c->layout->units[u];
        uint64_t lo = tg_slice_start(unit->n, slice, c->grid->slices);
        uint64_t hi = tg_slice_start(unit->n, slice + 1, c->grid->slices);
        for (size_t p = 0; p < unit->piece_n; p++) {
            check_piece(with, &unit->pieces[p], lo, hi);
        }
    }
}

/* ---- indices -------------------------------------------------------------------------------------------------------- */

/* Reads what a leader said and follows it; whether it was sound. */
static bool follow(const fuzz_body_case *with, const uint8_t *bytes, size_t len)
{
    tg_codec *c = with->codec;
    if (tg_body_read(c->views, c->view_hashes, c, with->whole, 0, TG_HAS_INDICES, bytes, len, NULL) != TG_OK) {
        return false;
    }
    uint64_t told = 0, known = 0;
    for (size_t i = 0; i < tg_grid_chunks(with->whole, 0); i++) {
        told += c->views[i].count;
    }
    tg_codec_take_led(c, with->whole, c->views);
    for (size_t i = 0; i < c->grid->first[c->grid->slices]; i++) {
        bool led = tg_codec_known(c, c->grid->chunks[i].unit, TG_HAS_VALUES) == TG_KNOWN_LED;
        known += led ? c->known_count[i] : 0;
    }
    PROMISE(told == known, "as many coordinates are known in all slices as the leader told");
    return true;
}

/* ---- the body ------------------------------------------------------------------------------------------------------- */

/* Bytes of a body that its views account for. */
static size_t viewed_len(const tg_codec *c, uint32_t slice)
{
    size_t len = 0;
    for (size_t i = 0; i < tg_grid_chunks(c->grid, slice); i++) {
        const tg_view *view = &c->views[i];
        len += (size_t)(view->indices - view->start) + view->index_len;
    }
    return len;
}

static void check_body(const fuzz_body_case *with, uint32_t slice, unsigned holds, const uint8_t *bytes, size_t len)
{
    tg_codec *c = with->codec;
    tg_detail why;
    memset(&why, 'x', sizeof why);
    if (tg_body_read(c->views, c->view_hashes, c, c->grid, slice, holds, bytes, len, &why) == TG_OK) {
        PROMISE(viewed_len(c, slice) == len, "every byte of a body has its meaning");
        check_values(with, slice);
    } else {
        fuzz_check_sentence(why.text, sizeof why.text);
    }
}

/* Whether the reader knows all coordinates by itself once it follows the leader. */
static bool knows_all(const tg_codec *c)
{
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        if (tg_codec_known(c, u, TG_HAS_VALUES) == TG_KNOWN_TOLD) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    const fuzz_body_case *with = fuzz_body_case_at(fuzz_take8(&input) % fuzz_body_case_n);
    tg_codec *c = with->codec;
    unsigned holds = fuzz_take8(&input) % 2 != 0 ? TG_HAS_VALUES : TG_HAS_VALUES | TG_HAS_INDICES;
    uint32_t slice = fuzz_take8(&input) % c->grid->slices;
    tg_codec_draw_shared(c, fuzz_take8(&input));
    size_t said_len = fuzz_take16(&input);
    uint8_t *said = fuzz_take_bytes(&input, &said_len);
    size_t body_len = input.left;
    uint8_t *body = fuzz_take_bytes(&input, &body_len);
    bool follows = follow(with, said, said_len);
    if (holds != TG_HAS_VALUES || (follows && knows_all(c))) { /* values alone are of no use otherwise */
        check_body(with, slice, holds, body, body_len);
    }
    free(body);
    free(said);
    return 0;
}
