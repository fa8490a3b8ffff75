/* Options as callers give them: the struct of this library's version, of an older one (shorter) or of a newer one (longer). */
#include "base/memory.h"
#include "recipe/policy.h"

#include <stdalign.h>
#include <string.h>

enum { SIZE_MAX_PLAUSIBLE = 4096 }; /* so that a size that was never set is not followed far */

/* Before anything but the size itself is read. */
static tg_status check_size(size_t size, tg_detail *why)
{
    if (size < sizeof size || size > SIZE_MAX_PLAUSIBLE || size % alignof(tg_options) != 0) {
        return tg_fail(TG_E_ARGUMENT, why,
                       "tg_options has size %zu, which no version of it has; start from TG_OPTIONS_INIT", size);
    }
    return TG_OK;
}

tg_status tg_options_read(tg_options *out, const tg_options *given, tg_detail *why)
{
    *out = (tg_options)TG_OPTIONS_INIT;
    if (given == NULL) {
        return TG_OK;
    }
    size_t size = given->size;
    TG_TRY(check_size(size, why));
    const uint8_t *bytes = (const uint8_t *)given;
    for (size_t i = sizeof *out; i < size; i++) {
        if (bytes[i] != 0) {
            return tg_fail(TG_E_ARGUMENT, why,
                           "tg_options has size %zu, and byte %zu is set; this library knows the first %zu bytes only",
                           size, i, sizeof *out);
        }
    }
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    return tg_allocator_check(out->allocator, why);
}
