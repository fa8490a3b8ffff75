/* A text file. Its symbols are the bytes that occur in it, in the order of their values; the first nine tenths of it are for
 * training, the rest is for testing. */
#include "data/file.h"
#include "data/refuse.h"
#include "data/sets.h"
#include "hash.h"

#include <stdlib.h>
#include <string.h>

enum { LEN_MIN = 10 * TR_TEXT_SEQUENCE, TEST_FRACTION = 10 };

/* Replaces each byte by its index among the byte values that occur. Returns the number of these values. */
static uint32_t number_symbols(tr_bytes text)
{
    uint8_t numbers[256] = {0};
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        numbers[text.at[i]] = 1;
    }
    for (size_t b = 0; b < 256; b++) {
        if (numbers[b]) {
            numbers[b] = (uint8_t)n++;
        }
    }
    for (size_t i = 0; i < text.len; i++) {
        text.at[i] = numbers[text.at[i]];
    }
    return n;
}

/* The windows of an epoch start after an offset below the sequence length; one target symbol follows the last window. */
static void split_text(tr_data *d, tr_bytes text)
{
    tr_part *train = &d->parts[TR_TRAIN], *test = &d->parts[TR_TEST];
    test->symbol_n = text.len / TEST_FRACTION + 1; /* the shortest text has one test window and its target */
    train->symbol_n = text.len - test->symbol_n;
    train->symbols = text.at;
    test->symbols = text.at + train->symbol_n;
    train->n = (train->symbol_n - TR_TEXT_SEQUENCE) / TR_TEXT_SEQUENCE;
    test->n = (test->symbol_n - 1) / TR_TEXT_SEQUENCE;
}

int tr_set_text(tr_data *d, const char *place, char why[TR_WHY])
{
    tr_bytes text;
    if (place == NULL) {
        return tr_data_refuse(why,
                              "'text' alone does not say which file; give it as 'text:FILE', any text of %d bytes "
                              "or more will do",
                              LEN_MIN);
    }
    if (tr_file_read(&text, place, why) != 0) {
        return -1;
    }
    if (text.len < LEN_MIN) {
        free(text.at);
        return tr_data_refuse(why, "'%s' is too short to learn from: it has %zu bytes, and 10 sequences have %d", place,
                              text.len, LEN_MIN);
    }
    split_text(d, text);
    for (int split = TR_TRAIN; split <= TR_TEST;
         split++) { /* hash the bytes, not the symbols, which depend on the alphabet */
        tr_part *part = &d->parts[split];
        part->hash = tr_hash(0, part->symbols, part->symbol_n);
    }
    uint32_t symbol_n = number_symbols(text);
    if (symbol_n < 2) {
        return tr_data_refuse(why, "'%s' has nothing to learn: all its bytes are alike", place);
    }
    d->shape = (tr_shape){TR_TEXT, 0, 0, 0, symbol_n, TR_TEXT_SEQUENCE};
    return 0;
}
