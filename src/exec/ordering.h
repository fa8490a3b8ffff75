/* A permutation of n elements as bytes, near the bound of log2(n!) bits. */
#ifndef TG_EXEC_ORDERING_H
#define TG_EXEC_ORDERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes; depends on n alone. */
size_t tg_ordering_len(size_t n);

/* Digits [first, first + n) of the Lehmer code, which are written as one number from bit bit_at on. The base of digit i is the number of
 * elements less i. */
typedef struct tg_ordering_group {
    uint64_t bit_at;
    uint32_t first, n, bits;
} tg_ordering_group;

/* Lists the groups and returns their number; `out` may be NULL, to count them. */
size_t tg_ordering_groups(tg_ordering_group *out, size_t n);

/* order[i] is the element at position i. `tree` is a scratch buffer of n + 1 elements. */
void tg_ordering_write(uint8_t *out, const uint32_t *order, size_t n, uint32_t *tree);

/* Validates its input: false if the bytes are not a permutation. */
bool tg_ordering_read(uint32_t *order, const uint8_t *bytes, size_t n, uint32_t *tree);

#endif
