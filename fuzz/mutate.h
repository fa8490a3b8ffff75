/* Structure-aware mutation: a byte string is split into fields, and each kind of field has its own mutations.
 *
 * Every decision is read from the input of a fuzz target. So an input is a list of decisions, which libFuzzer mutates by coverage and
 * trial.c draws at random. After its end all decisions are 0, which means no damage. */
#ifndef TG_FUZZ_MUTATE_H
#define TG_FUZZ_MUTATE_H

#include "support.h"

#include <stdbool.h>

typedef enum fuzz_kind {
    FUZZ_NUMBER, /* little-endian, 1 to 8 bytes */
    FUZZ_FLOATS, /* binary32, one after the other */
    FUZZ_BYTES,  /* anything else, of any length */
} fuzz_kind;

typedef struct fuzz_field {
    fuzz_kind kind;
    uint32_t role;  /* what it is; the numbers are the splitter's own */
    uint32_t chunk; /* which chunk of a frame it is part of */
    size_t at, len;
} fuzz_field;

/* Fields are in order and may be empty. Bytes outside all fields are never damaged. */
typedef struct fuzz_mutant {
    uint8_t *bytes;
    size_t len, cap;
    fuzz_field *fields;
    size_t field_n, field_cap;
} fuzz_mutant;

void fuzz_mutant_start(fuzz_mutant *m, const uint8_t *bytes, size_t len);
void fuzz_mutant_free(fuzz_mutant *m);

/* Adds the next `len` bytes as a field and returns where they end. */
size_t fuzz_mutant_add(fuzz_mutant *m, fuzz_kind kind, uint32_t role, uint32_t chunk, size_t at, size_t len);

/* Replaces `old_len` bytes at `at` of a field by others; fields after it move. */
void fuzz_mutant_replace(fuzz_mutant *m, size_t field, size_t at, size_t old_len, const uint8_t *bytes, size_t len);

/* A number below n; 0 after the end of the input. */
uint32_t fuzz_pick(fuzz_input *input, uint32_t n);

/* True once in `n` decisions, and never after the end of the input. */
bool fuzz_once_in(fuzz_input *input, uint32_t n);

/* Numbers at any address, little-endian. */
uint64_t fuzz_get_number(const uint8_t *bytes, size_t len);
void fuzz_put_number(uint8_t *bytes, size_t len, uint64_t value);

/* Damages a number, one of several floats, or one byte in place. */
void fuzz_damage_number(fuzz_input *input, uint8_t *bytes, size_t len);
void fuzz_damage_floats(fuzz_input *input, uint8_t *bytes, size_t len);
void fuzz_damage_byte(fuzz_input *input, uint8_t *bytes, size_t len);

/* Damages a field by its kind: bytes are changed, filled, moved, cut out, or put in from `other`, which may be empty. */
void fuzz_damage_field(fuzz_input *input, fuzz_mutant *m, size_t field, const uint8_t *other, size_t other_len);

#endif
