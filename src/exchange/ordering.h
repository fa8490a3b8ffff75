/* An order of n things as bytes, near the bound of log2(n!) bits. */
#ifndef TG_EXCHANGE_ORDERING_H
#define TG_EXCHANGE_ORDERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes, which n alone tells. */
size_t tg_ordering_len(size_t n);

/* order[i] is which thing is at place i. `room` has n + 1 numbers. */
void tg_ordering_write(uint8_t *out, const uint32_t *order, size_t n, uint32_t *room);

/* Trusts nothing: false if the bytes are no order. */
bool tg_ordering_read(uint32_t *order, const uint8_t *bytes, size_t n, uint32_t *room);

#endif
