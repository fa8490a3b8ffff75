/* Forged indices and code tables, docs/format.md section 4. */
#include "forge.h"

#include "frame_mutate.h"

#include <string.h>

enum { BYTES_MAX = 4096, MODE_BITMAP = 32, MODE_RUNS, MODE_ALL, MODE_BYTES, MODE_PAIRS, MODE_GEOMETRIC };

/* Writes bits, lowest first; bits that do not fit are dropped. */
typedef struct bit_writer {
    uint8_t bytes[BYTES_MAX];
    size_t bit_n;
} bit_writer;

static void put_bit(bit_writer *w, unsigned bit)
{
    if (w->bit_n < (size_t)8 * BYTES_MAX) {
        w->bytes[w->bit_n / 8] |= (uint8_t)((bit & 1) << w->bit_n % 8);
        w->bit_n++;
    }
}

static void put_bits(bit_writer *w, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        put_bit(w, (unsigned)(value >> i));
    }
}

static void put_ones(bit_writer *w, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        put_bit(w, 1);
    }
    put_bit(w, 0);
}

/* Appends random bytes, from the next whole byte on. */
static void put_stream(bit_writer *w, fuzz_input *input, size_t n)
{
    w->bit_n = (w->bit_n + 7) / 8 * 8;
    uint32_t state = fuzz_take32(input);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        put_bits(w, state >> 24, 8);
    }
}

static size_t written_len(const bit_writer *w)
{
    return (w->bit_n + 7) / 8;
}

/* ---- indices --------------------------------------------------------------------------------------------------------- */

uint8_t fuzz_forge_mode(fuzz_input *input)
{
    switch (fuzz_pick(input, 4)) {
    case 0: return (uint8_t)fuzz_pick(input, 20);
    case 1: return fuzz_take8(input);
    default: return (uint8_t)(MODE_BITMAP + fuzz_pick(input, 7));
    }
}

/* Gaps that end inside the n elements, or whose last may exceed them. */
static void forge_rice(bit_writer *w, fuzz_input *input, unsigned k, uint32_t count, uint32_t n)
{
    uint32_t wrong = fuzz_pick(input, 2 * count + 1), most = 1 + (count > 0 ? n / count : 0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t gap = i == wrong ? (uint64_t)n + fuzz_pick(input, 4) - 2 : fuzz_pick(input, most);
        put_ones(w, gap >> k);
        put_bits(w, gap, k);
    }
}

/* In groups of seven bits; `long` with one group more than it needs. */
static void put_grouped(bit_writer *w, uint32_t value, bool is_long)
{
    while (value >= 0x80) {
        put_bits(w, (value & 0x7f) | 0x80, 8);
        value >>= 7;
    }
    put_bits(w, value | (is_long ? 0x80 : 0), 8);
    if (is_long) {
        put_bits(w, 0, 8);
    }
}

static void forge_runs(bit_writer *w, fuzz_input *input, uint32_t count, uint32_t n)
{
    bool is_long = fuzz_once_in(input, 8), touches = fuzz_once_in(input, 8), leads_out = fuzz_once_in(input, 8);
    uint32_t position = 0;
    for (uint32_t left = count, run = 0; left > 0 && written_len(w) < 200; run++) {
        uint32_t len = 1 + fuzz_pick(input, left < 40 ? left : 40), gap = 1 + fuzz_pick(input, 3);
        gap = run > 0 && touches ? 0 : gap;
        if (leads_out && len >= left && n >= position + len) {
            gap = n - position - len + 1 + fuzz_pick(input, 3);
        }
        put_grouped(w, gap, is_long && run == 1);
        put_grouped(w, len - 1, false);
        position += gap + len;
        left -= len < left ? len : left;
    }
}

static void forge_bitmap(bit_writer *w, fuzz_input *input, uint32_t count, uint32_t n)
{
    uint32_t more = fuzz_once_in(input, 8) ? fuzz_pick(input, 16) : 0;
    size_t len = ((size_t)n + more + 7) / 8;
    w->bit_n = 8 * (len < BYTES_MAX ? len : BYTES_MAX);
    for (uint32_t i = 0; i < count && w->bit_n > 0; i++) { /* some of them twice, or beyond the last element */
        uint32_t at = fuzz_once_in(input, 2) ? i : fuzz_pick(input, (uint32_t)w->bit_n);
        w->bytes[at % w->bit_n / 8] |= (uint8_t)(1u << at % 8);
    }
}

static void forge_places(bit_writer *w, fuzz_input *input, unsigned place_bits, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < 200; i++) {
        uint32_t drawn = fuzz_pick(input, 32), code = drawn == 31 ? 3 : drawn < 4 ? 0 : 1 + drawn % 2;
        uint32_t place = fuzz_pick(input, 1u << place_bits);
        put_bits(w, fuzz_once_in(input, 2) ? place % 16 : place, place_bits);
        put_bits(w, code, 2);
    }
}

static void forge_geometric(bit_writer *w, fuzz_input *input)
{
    put_bits(w, fuzz_once_in(input, 2) ? UINT64_C(1) << (fuzz_pick(input, 2) == 0 ? 15 : 31) : fuzz_take32(input), 32);
    put_stream(w, input, fuzz_pick(input, 20));
}

void fuzz_forge_indices(fuzz_input *input, fuzz_mutant *m, size_t field, uint32_t n)
{
    size_t count_at = SIZE_MAX, mode_at = SIZE_MAX;
    for (size_t i = field; i-- > 0 && m->fields[i].chunk == m->fields[field].chunk;) {
        count_at = m->fields[i].role == FUZZ_COUNT ? m->fields[i].at : count_at;
        mode_at = m->fields[i].role == FUZZ_MODE ? m->fields[i].at : mode_at;
    }
    if (count_at == SIZE_MAX) {
        return; /* its indices are not sent */
    }
    uint32_t count = (uint32_t)fuzz_get_number(m->bytes + count_at, 3);
    uint8_t mode = fuzz_once_in(input, 2) ? fuzz_forge_mode(input) : m->bytes[mode_at];
    bit_writer w = {.bit_n = 0};
    switch (mode) {
    case MODE_BITMAP: forge_bitmap(&w, input, count, n); break;
    case MODE_RUNS: forge_runs(&w, input, count, n); break;
    case MODE_ALL: break;
    case MODE_BYTES: forge_places(&w, input, 6, count); break;
    case MODE_PAIRS: forge_places(&w, input, 14, count); break;
    case MODE_GEOMETRIC: forge_geometric(&w, input); break;
    default: forge_rice(&w, input, mode % 32, count < 400 ? count : 400, n); break;
    }
    m->bytes[mode_at] = mode;
    fuzz_mutant_replace(m, field, 0, m->fields[field].len, w.bytes, written_len(&w));
}

/* ---- code tables ----------------------------------------------------------------------------------------------------- */

/* Lengths of a prefix code in four bits each: those of a full code, with one changed in half of all cases. */
static void forge_lengths(bit_writer *w, fuzz_input *input, uint32_t base)
{
    uint32_t used = 1 + fuzz_pick(input, base < 12 ? base : 12), wrong = fuzz_pick(input, 2 * base);
    for (uint32_t x = 0; x < base; x++) { /* 1, 2, ..., used - 1, used - 1: full */
        uint32_t length = x >= used ? 0 : x + 1 < used ? x + 1 : used - 1;
        put_bits(w, x == wrong ? fuzz_pick(input, 16) : length, 4);
    }
}

static unsigned low_bits_of(uint32_t number)
{
    unsigned bits = 0;
    while (number >> (bits + 1) > 0) {
        bits++;
    }
    return bits;
}

/* Frequencies of some symbols, whose sum is below, at or above 2^bits: sizes, then low bits. */
static void forge_frequencies(bit_writer *w, fuzz_input *input, uint32_t base, unsigned bits)
{
    uint32_t first = fuzz_once_in(input, 2) ? 0 : fuzz_pick(input, base), last = first + fuzz_pick(input, base - first);
    uint32_t left = 1u << bits, wrong = fuzz_pick(input, 4 * base), numbers[TG_BASE_MAX], n = last - first;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t f = left == 0 || fuzz_once_in(input, 2) ? 0 : fuzz_pick(input, left / 2 + 1);
        left -= f;
        numbers[i] = 1 + (i == wrong ? f + fuzz_pick(input, 1u << 14) : f);
    }
    unsigned end_bits = base <= 256 ? 8 : 16;
    put_bits(w, first, end_bits);
    put_bits(w, fuzz_once_in(input, 16) ? fuzz_pick(input, 1u << end_bits) : last, end_bits);
    for (uint32_t i = 0; i < n; i++) {
        put_bits(w, low_bits_of(numbers[i]), 4);
    }
    w->bit_n = (w->bit_n + 7) / 8 * 8;
    for (uint32_t i = 0; i < n; i++) {
        unsigned low = low_bits_of(numbers[i]);
        put_bits(w, numbers[i] - (1u << low), low);
    }
    w->bit_n = (w->bit_n + 7) / 8 * 8;
}

/* What follows the frequencies: the number of segments and their words, then states of the first. */
static void forge_segments(bit_writer *w, fuzz_input *input, unsigned lanes)
{
    if (lanes == 5) {
        uint32_t segment_n = 1 + fuzz_pick(input, fuzz_once_in(input, 8) ? 256 : 4);
        put_bits(w, segment_n - 1, 8);
        for (uint32_t i = 0; i + 1 < segment_n; i++) {
            put_bits(w, fuzz_once_in(input, 16) ? 65535 : fuzz_pick(input, 64), 16);
        }
    }
    for (uint32_t i = 0; i < 1u << lanes && i < 32; i++) {
        put_bits(w, fuzz_once_in(input, 16) ? 0 : UINT64_C(1) << fuzz_pick(input, 16), 16);
    }
}

void fuzz_forge_symbols(fuzz_input *input, fuzz_mutant *m, size_t field, const tg_recipe *recipe)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    uint32_t base = quantize->plain_len != 0 ? 256 : quantize->base(recipe->value[TG_STAGE_quantize]);
    bool is_rans = fuzz_once_in(input, 2);
    uint8_t form = (uint8_t)fuzz_pick(input, 4);
    if (is_rans) {
        static const uint8_t lanes[] = {0, 2, 4, 5, 1, 6, 15};
        form = (uint8_t)((7 + fuzz_pick(input, 9)) << 4 | lanes[fuzz_pick(input, sizeof lanes)]);
    }
    bit_writer w = {.bit_n = 0};
    put_bits(&w, form, 8);
    if (is_rans) {
        if (quantize->plain_len > 1) { /* lower bytes of words come before the table */
            size_t words = m->fields[field].len / quantize->plain_len;
            put_stream(&w, input, (words < 400 ? words : 400) * (quantize->plain_len - 1));
        }
        forge_frequencies(&w, input, base, form >> 4);
        forge_segments(&w, input, form & 15);
    } else if (form == 1) {
        forge_lengths(&w, input, base);
    }
    size_t old_len = m->fields[field].len, done = written_len(&w);
    put_stream(&w, input, done < old_len ? old_len - done : fuzz_pick(input, 8));
    fuzz_mutant_replace(m, field, 0, old_len, w.bytes, written_len(&w));
}
