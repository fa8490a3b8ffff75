/* Little-endian numbers at any address: the only way that numbers enter or leave a frame or a state. */
#ifndef TG_BASE_BYTES_H
#define TG_BASE_BYTES_H

#include <stdint.h>

static inline void tg_put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void tg_put32(uint8_t *at, uint32_t value)
{
    tg_put16(at, (uint16_t)value);
    tg_put16(at + 2, (uint16_t)(value >> 16));
}

static inline void tg_put64(uint8_t *at, uint64_t value)
{
    tg_put32(at, (uint32_t)value);
    tg_put32(at + 4, (uint32_t)(value >> 32));
}

/* Whether numbers lie in memory as they do on the wire. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TG_IS_LITTLE_ENDIAN 1
#else
#define TG_IS_LITTLE_ENDIAN 0
#endif

static inline uint16_t tg_get16(const uint8_t *at)
{
    return (uint16_t)(at[0] | (uint32_t)at[1] << 8);
}

static inline uint32_t tg_get32(const uint8_t *at)
{
    return tg_get16(at) | (uint32_t)tg_get16(at + 2) << 16;
}

static inline uint64_t tg_get64(const uint8_t *at)
{
    return tg_get32(at) | (uint64_t)tg_get32(at + 4) << 32;
}

#endif
