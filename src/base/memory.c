/* See memory.h. */
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void *standard_acquire(void *context, size_t len)
{
    (void)context;
    return malloc(len);
}

static void standard_release(void *context, void *block)
{
    (void)context;
    free(block);
}

tg_allocator tg_allocator_or_standard(const tg_allocator *custom)
{
    if (custom != NULL) {
        return *custom;
    }
    return (tg_allocator){standard_acquire, standard_release, NULL};
}

tg_status tg_allocator_check(const tg_allocator *custom, tg_detail *why)
{
    if (custom != NULL && (custom->acquire == NULL || custom->release == NULL)) {
        return tg_fail(TG_E_ARGUMENT, why, "an allocator must have both acquire and release");
    }
    return TG_OK;
}

tg_status tg_acquire_room(void *out, const tg_allocator *a, uint64_t len, tg_detail *why)
{
    if (len > PTRDIFF_MAX) {
        return tg_fail(TG_E_MEMORY, why, "%" PRIu64 " bytes do not fit into memory", len);
    }
    void *block = a->acquire(a->context, len == 0 ? 1 : (size_t)len);
    if (block == NULL) {
        return tg_fail(TG_E_MEMORY, why, "out of memory: %" PRIu64 " bytes could not be had", len);
    }
    memcpy(out, &block, sizeof block);
    return TG_OK;
}

tg_status tg_acquire(void *out, const tg_allocator *a, uint64_t count, size_t element_len, tg_detail *why)
{
    uint64_t len = 0;
    if (!tg_multiply(&len, count, element_len)) {
        return tg_fail(TG_E_MEMORY, why, "%" PRIu64 " elements of %zu bytes do not fit into memory", count,
                       element_len);
    }
    void *block = NULL;
    if (len > 0) {
        TG_TRY(tg_acquire_room(&block, a, len, why));
        memset(block, 0, (size_t)len);
    }
    memcpy(out, &block, sizeof block);
    return TG_OK;
}

void tg_release(const tg_allocator *a, void *block)
{
    a->release(a->context, block);
}
