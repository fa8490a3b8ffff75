/* Writes seeds: builds an input from pieces, and groups of seeds. */
#ifndef TG_FUZZ_SEEDS_H
#define TG_FUZZ_SEEDS_H

#include "support.h"

enum { SEED_CAP = 4096, NAME_CAP = 64 };

typedef struct draft {
    uint8_t bytes[SEED_CAP];
    size_t len;
} draft;

void add_bytes(draft *d, const void *bytes, size_t len);
void add8(draft *d, unsigned value);
void add16(draft *d, size_t value);
void add32(draft *d, size_t value);

/* Where seeds go: write_seed gives DIRECTORY/TARGET/NAME. */
void set_directory(const char *path);
void write_seed(const char *target, const char *name, const void *bytes, size_t len);

/* seeds_plain.c: inputs that need no codec. */
void write_packs(void);
void write_recipes(void);
void write_arrays(void);

/* seeds_dataset.c: files of data sets. */
void write_datasets(void);

#endif
