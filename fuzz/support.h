/* Shared by fuzz targets: buffers of exact length, an allocator with a limit, parsing of inputs, checks of error texts. */
#ifndef TG_FUZZ_SUPPORT_H
#define TG_FUZZ_SUPPORT_H

#include "check.h"
#include "tersegrad/tersegrad.h"

/* A buffer of exactly `len` bytes, filled with `fill`, so that a sanitizer detects any access past its end. Free it. */
void *fuzz_room(size_t len, int fill);

/* An allocator that refuses to hold more than `limit` bytes at a time, because an input may claim any size. */
typedef struct fuzz_budget {
    tg_allocator allocator;
    size_t held, limit;
} fuzz_budget;

void fuzz_budget_start(fuzz_budget *budget, size_t limit);

/* The rest of an input. Reads past its end give 0. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

uint8_t fuzz_take8(fuzz_input *input);
uint16_t fuzz_take16(fuzz_input *input);
uint32_t fuzz_take32(fuzz_input *input);

/* A copy of the next bytes, at most `len`, so that a sanitizer detects accesses past both ends. Free it. */
uint8_t *fuzz_take_bytes(fuzz_input *input, size_t *len);

/* Checks an error text: at most `cap` bytes, not empty, terminated, one line, and without control characters, because parts of it may
 * come from a file. */
void fuzz_check_sentence(const char *text, size_t cap);

#endif
