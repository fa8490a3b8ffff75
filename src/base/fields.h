/* Integers in headers of frames, messages and chunks: little-endian, of any length up to eight bytes, at any address. Byte by
 * byte, so that neither alignment nor byte order of the machine matters; for a constant length compilers make few accesses of it. */
#ifndef TG_BASE_FIELDS_H
#define TG_BASE_FIELDS_H

#include <stddef.h>
#include <stdint.h>

static inline void tg_put_field(uint8_t *at, size_t len, uint64_t value)
{
    for (size_t i = 0; i < len; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static inline uint64_t tg_get_field(const uint8_t *at, size_t len)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

#endif
