/* Little-endian integers at any address: all integers of frames and states are read and written by these. */
#ifndef TG_BASE_BYTES_H
#define TG_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

/* Whether the CPU's byte order is that of frames. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TG_IS_LITTLE_ENDIAN 1
#define TG_LITTLE16(value) (value)
#define TG_LITTLE32(value) (value)
#define TG_LITTLE64(value) (value)
#else
#define TG_IS_LITTLE_ENDIAN 0
#define TG_LITTLE16(value) __builtin_bswap16(value)
#define TG_LITTLE32(value) __builtin_bswap32(value)
#define TG_LITTLE64(value) __builtin_bswap64(value)
#endif

static inline void tg_put16(uint8_t *at, uint16_t value)
{
    value = TG_LITTLE16(value);
    memcpy(at, &value, sizeof value);
}

static inline void tg_put32(uint8_t *at, uint32_t value)
{
    value = TG_LITTLE32(value);
    memcpy(at, &value, sizeof value);
}

static inline void tg_put64(uint8_t *at, uint64_t value)
{
    value = TG_LITTLE64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint16_t tg_get16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return TG_LITTLE16(value);
}

static inline uint32_t tg_get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return TG_LITTLE32(value);
}

static inline uint64_t tg_get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return TG_LITTLE64(value);
}

#endif
