/* Integers in headers of frames and messages: little-endian, of any length up to eight bytes. For headers, not for hot loops. */
#ifndef TG_BASE_FIELDS_H
#define TG_BASE_FIELDS_H

#include <stddef.h>
#include <stdint.h>

void tg_put_field(uint8_t *at, size_t len, uint64_t value);
uint64_t tg_get_field(const uint8_t *at, size_t len);

#endif
