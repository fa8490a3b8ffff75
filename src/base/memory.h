/* Allocation through the caller's allocator, with sizes checked for overflow. */
#ifndef TG_BASE_MEMORY_H
#define TG_BASE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>

/* Returns `custom`, or malloc and free if it is NULL. */
tg_allocator tg_allocator_or_standard(const tg_allocator *custom);

/* TG_E_ARGUMENT if `custom` is given without one of its functions. */
tg_status tg_allocator_check(const tg_allocator *custom, tg_detail *why) TG_CHECKED;

/* Allocates count elements of element_len bytes, zeroed, and sets *out to them; NULL if these are 0 bytes. */
tg_status tg_acquire(void *out, const tg_allocator *a, uint64_t count, size_t element_len, tg_detail *why) TG_CHECKED;

/* Allocates len bytes, not zeroed, so that unused pages are never touched, and sets *out to them; never NULL. */
tg_status tg_acquire_room(void *out, const tg_allocator *a, uint64_t len, tg_detail *why) TG_CHECKED;

void tg_release(const tg_allocator *a, void *block);

/* Sets *out to a * b or a + b; false if that overflows. */
static inline bool tg_multiply(uint64_t *out, uint64_t a, uint64_t b)
{
    if (a != 0 && b > UINT64_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

static inline bool tg_add(uint64_t *out, uint64_t a, uint64_t b)
{
    if (b > UINT64_MAX - a) {
        return false;
    }
    *out = a + b;
    return true;
}

/* The distance of blocks side by side, so that all begin at a multiple of 64 bytes: CPUs, GPUs and links copy whole vectors. */
static inline size_t tg_apart(size_t len)
{
    return len > SIZE_MAX - 63 ? len : (len + 63) / 64 * 64;
}

#endif
