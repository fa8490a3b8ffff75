/* Allocation through the caller's allocator, with sizes checked for overflow. */
#ifndef TG_BASE_MEMORY_H
#define TG_BASE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>

/* `custom` or, if it is NULL, malloc and free. */
tg_allocator tg_allocator_or_standard(const tg_allocator *custom);

/* TG_E_ARGUMENT if `custom` is given without one of its functions. */
tg_status tg_allocator_check(const tg_allocator *custom, tg_detail *why) TG_CHECKED;

/* Writes count elements of element_len bytes, zeroed, to *out; NULL if that is no bytes. */
tg_status tg_acquire(void *out, const tg_allocator *a, uint64_t count, size_t element_len, tg_detail *why) TG_CHECKED;

/* Writes len bytes to *out, never NULL and not zeroed: pages that are never used are then never touched. */
tg_status tg_acquire_room(void *out, const tg_allocator *a, uint64_t len, tg_detail *why) TG_CHECKED;

void tg_release(const tg_allocator *a, void *block);

/* a*b or a+b into *out; false if that overflows. */
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

#endif
