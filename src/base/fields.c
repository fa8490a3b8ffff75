/* Byte by byte, so that neither alignment nor byte order of the machine matters. */
#include "base/fields.h"

void tg_put_field(uint8_t *at, size_t len, uint64_t value)
{
    for (size_t i = 0; i < len; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

uint64_t tg_get_field(const uint8_t *at, size_t len)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}
