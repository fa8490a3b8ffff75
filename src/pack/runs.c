/* Runs of consecutive indices, for selections that are blocks. Each run is two numbers: the gap before it and its length
 * less 1. Numbers are stored seven bits a byte, lowest first; the top bit says that another byte follows. */
#include "base/bits.h"
#include "pack/index_codes.h"

static unsigned number_len(uint64_t value)
{
    return 1 + (63u - (unsigned)__builtin_clzll(value | 1)) / 7;
}

uint64_t tg_runs_len(const tg_marks *m)
{
    uint32_t piece[TG_MARKS_PIECE + TG_LIST_MORE];
    uint64_t len = 0, next = 0, run_start = 0;
    for (size_t at = 0, count = 0; at < m->n; at += tg_marks_piece_n(m)) {
        const uint32_t *list = tg_marks_piece(&count, piece, m, at);
        for (size_t i = 0; i < count; i++) {
            uint64_t gap = list[i] - next;
            if (gap > 0 || list[i] == 0) { /* a run begins */
                if (next > run_start) {
                    len += number_len(next - run_start - 1);
                }
                len += number_len(gap);
                run_start = list[i];
            }
            next = (uint64_t)list[i] + 1;
        }
    }
    return len + number_len(next - run_start - 1);
}

static uint8_t *put_number(uint8_t *out, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        *out++ = (uint8_t)(value | 128);
    }
    *out++ = (uint8_t)value;
    return out;
}

size_t tg_runs_write(uint8_t *out, const uint64_t *mask, size_t n)
{
    uint8_t *at = out;
    uint64_t run_start = 0, run_end = 0;
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            uint64_t index = w * 64 + tg_lowest(word);
            if (index > run_end || index == 0) {
                if (run_end > run_start) {
                    at = put_number(at, run_end - run_start - 1);
                }
                at = put_number(at, index - run_end);
                run_start = index;
            }
            run_end = index + 1;
        }
    }
    at = put_number(at, run_end - run_start - 1);
    return (size_t)(at - out);
}

/* Reads a number of at most three bytes; a chunk's length never needs more. */
static bool get_number(uint64_t *value, const uint8_t **at, const uint8_t *end)
{
    *value = 0;
    for (unsigned shift = 0; shift < 21; shift += 7) {
        if (*at == end) {
            return false;
        }
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return byte != 0 || shift == 0; /* a last byte of 0 would be a longer form than needed */
        }
    }
    return false;
}

bool tg_runs_read(uint64_t *mask, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    const uint8_t *at = bytes, *end = bytes + len;
    uint64_t position = 0, total = 0;
    for (bool first = true; at < end; first = false) {
        uint64_t gap = 0, run = 0;
        if (!get_number(&gap, &at, end) || !get_number(&run, &at, end)) {
            return false;
        }
        run++;
        if ((gap == 0 && !first) || gap > n - position || run > n - position - gap) {
            return false;
        }
        tg_mask_fill(mask, position + gap, position + gap + run);
        position += gap + run;
        total += run;
    }
    return total == count;
}
