/* Valid frames of every recipe, to be mutated: several tensors and dtypes, some with several chunks, of two ranks at two steps. */
#ifndef TG_FUZZ_BANK_H
#define TG_FUZZ_BANK_H

#include "frame/codec.h"

enum { FUZZ_BANK_FRAMES = 4 };

typedef struct fuzz_bank_frame {
    uint8_t *bytes;
    size_t len;
} fuzz_bank_frame;

typedef struct fuzz_bank_case {
    tg_codec *codec; /* reads them */
    fuzz_bank_frame frames[FUZZ_BANK_FRAMES];
    uint64_t decoded[FUZZ_BANK_FRAMES]; /* hash of what each decodes to */
    void **once, **again;               /* two sets of buffers for all tensors in their dtypes, with guard bytes */
    float **sums;                       /* buffers for all tensors in fp32, with guard bytes */
} fuzz_bank_case;

/* Cases below fuzz_bank_small_n have few elements; the others have several chunks. */
size_t fuzz_bank_n(void);
size_t fuzz_bank_small_n(void);

/* Case number `index`, created at its first use and kept until the program ends. */
const fuzz_bank_case *fuzz_bank_at(size_t index);

/* The first recipe of a case. */
const tg_recipe_row *fuzz_bank_recipe(size_t index);

/* Fills each set of buffers with a byte; not their guards. */
void fuzz_bank_refill(const fuzz_bank_case *of, int once, int again, int sums);

/* Whether all buffers still hold only the byte that they were filled with. */
bool fuzz_bank_untouched(const fuzz_bank_case *of, int once, int again, int sums);

/* Ends the program if a guard byte was overwritten. */
void fuzz_bank_check_guards(const fuzz_bank_case *of);

/* A hash of what was decoded. */
uint64_t fuzz_bank_hash(const fuzz_bank_case *of, void *const *room);

#endif
