/* What fuzz targets share: exact room, an allocator with a limit, input cut into numbers, sentences. */
#ifndef TG_FUZZ_SUPPORT_H
#define TG_FUZZ_SUPPORT_H

#include "check.h"
#include "tersegrad/tersegrad.h"

/* Room for exactly `len` bytes, each of them `fill`, so that a sanitizer sees every byte too far. Free it. */
void *fuzz_room(size_t len, int fill);

/* An allocator that refuses to hold more than `limit` bytes at a time, because an input may claim any size. */
typedef struct fuzz_budget {
    tg_allocator allocator;
    size_t held, limit;
} fuzz_budget;

void fuzz_budget_start(fuzz_budget *budget, size_t limit);

/* The rest of an input. What is taken beyond its end is 0. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

uint8_t fuzz_take8(fuzz_input *input);
uint16_t fuzz_take16(fuzz_input *input);
uint32_t fuzz_take32(fuzz_input *input);

/* A stretch of at most `len` bytes, copied so that a sanitizer sees both its ends. Free it. */
uint8_t *fuzz_take_bytes(fuzz_input *input, size_t *len);

/* Checks what a failure says: one sentence of `cap` bytes at most, not empty, terminated, on one line, and with no
 * character that would make a terminal do something, because part of it may come from a file. */
void fuzz_check_sentence(const char *text, size_t cap);

#endif
