/* Any bytes as the body of a frame between ranks, for codecs of every kind: slices, values without indices, indices without values.
 * There is no header and no checksum, so that a fuzzer reaches the body at once.
 *
 * The input: case, what the body holds, slice, step (a byte each); the length of the leader's message (two bytes), the message; the
 * body. */
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

/* Elements [lo, hi) of the piece's unit are the same in both; its other elements are unchanged. */
static void check_piece(const fuzz_body_case *with, const tg_piece *piece, uint64_t lo, uint64_t hi)
{
    size_t element_len = tg_dtype_len(with->both->layout->tensors[piece->tensor].dtype);
    const uint8_t *a = with->zeros[piece->tensor], *b = with->ones[piece->tensor];
    size_t from = (size_t)within(lo, piece) * element_len, to = (size_t)within(hi, piece) * element_len;
    size_t end = (size_t)piece->n * element_len;
    PROMISE(memcmp(a + from, b + from, to - from) == 0, "a slice is written whole and always alike");
    PROMISE(is_all(a, from, 0x00) && is_all(b, from, 0xff), "nothing before a slice is written");
    PROMISE(is_all(a + to, end - to, 0x00) && is_all(b + to, end - to, 0xff), "nothing behind a slice is written");
}

/* Sums the body twice, into buffers of different content, to detect elements that are not written. */
static void check_values(const fuzz_body_case *with, tg_codec *c, uint32_t slice, const tg_body_view *view)
{
    refill(c, with->zeros, 0x00);
    refill(c, with->ones, 0xff);
    c->executor->sum(c->run, slice, view, 1, &(tg_sink){.averages = with->zeros, .divisor = 1.0f});
    c->executor->sum(c->run, slice, view, 1, &(tg_sink){.averages = with->ones, .divisor = 1.0f});
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

/* Reads a leader's indices and uses them; whether they were valid. */
static bool follow(const fuzz_body_case *with, const uint8_t *bytes, size_t len)
{
    tg_codec *c = with->values;
    tg_body_view view = {.bytes = bytes, .chunks = c->views};
    if (c->executor->check(&view, c->hashes, c->run, with->leader, 0, len, NULL) != TG_OK) {
        return false;
    }
    c->executor->follow(c->run, with->leader, 0, &view);
    return true;
}

/* ---- the body ------------------------------------------------------------------------------------------------------- */

/* Bytes of a body that its views account for. */
static size_t viewed_len(const tg_codec *c, uint32_t slice)
{
    size_t len = (size_t)c->plan->headers_len[slice];
    for (size_t i = 0; i < c->grid->first[slice + 1] - c->grid->first[slice]; i++) {
        len += c->views[i].len;
    }
    return len;
}

/* Sums a body that was not checked; whether it was accepted. */
static bool sum_unchecked(const fuzz_body_case *with, tg_codec *c, uint32_t slice, const uint8_t *bytes, size_t len)
{
    tg_body_view view = {.bytes = bytes, .chunks = c->views, .hashes = c->hashes};
    return c->executor->find(&view, c->run, c->plan, slice, len, NULL) == TG_OK &&
           c->executor->sum_unchecked(c->run, slice, &view, 1, &(tg_sink){.averages = with->zeros, .divisor = 1.0f});
}

static void check_body(const fuzz_body_case *with, tg_codec *c, uint32_t slice, const uint8_t *bytes, size_t len)
{
    tg_body_view view = {.bytes = bytes, .chunks = c->views, .keeps = len % 2};
    tg_detail why;
    memset(&why, 'x', sizeof why);
    if (c->executor->check(&view, c->hashes, c->run, c->plan, slice, len, &why) == TG_OK) {
        PROMISE(viewed_len(c, slice) == len, "every byte of a body has its meaning");
        check_values(with, c, slice, &view);
        PROMISE(sum_unchecked(with, c, slice, bytes, len), "what was checked is summed without a check before");
    } else {
        fuzz_check_sentence(why.text, sizeof why.text);
        PROMISE(!sum_unchecked(with, c, slice, bytes, len), "what is refused is refused by the sum, too");
    }
}

/* Whether the reader knows all indices, given the leader's. */
static bool knows_all(const tg_codec *c)
{
    for (uint32_t u = 0; u < c->layout->unit_n; u++) {
        if (c->plan->units[u].coordinates == TG_AT_INDICES) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    const fuzz_body_case *with = fuzz_body_case_at(fuzz_take8(&input) % fuzz_body_case_n);
    bool has_values_alone = fuzz_take8(&input) % 2 != 0;
    tg_codec *c = has_values_alone ? with->values : with->both;
    uint32_t slice = fuzz_take8(&input) % c->grid->slices;
    c->executor->draw(c->run, 0, fuzz_take8(&input));
    size_t said_len = fuzz_take16(&input);
    uint8_t *said = fuzz_take_bytes(&input, &said_len);
    size_t body_len = input.left;
    uint8_t *body = fuzz_take_bytes(&input, &body_len);
    bool follows = follow(with, said, said_len);
    if (!has_values_alone || (follows && knows_all(c))) { /* values without indices cannot be read otherwise */
        check_body(with, c, slice, body, body_len);
    }
    free(body);
    free(said);
    return 0;
}
