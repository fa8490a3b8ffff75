/* Reads tg_options of any version of the header: the struct of an older version is shorter, that of a newer one longer. */
#include "base/memory.h"
#include "recipe/policy.h"

#include <stdalign.h>
#include <string.h>

enum { SIZE_LIMIT = 4096 }; /* bytes; a larger size was never set, and reading that far would be out of bounds */

/* Called before any other member is read. */
static tg_status check_size(size_t size, tg_detail *why)
{
    if (size < sizeof size || size > SIZE_LIMIT || size % alignof(tg_options) != 0) {
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
            return tg_fail(
                TG_E_ARGUMENT, why,
                "tg_options has size %zu, and byte %zu is not zero; this library knows only the first %zu bytes", size,
                i, sizeof *out);
        }
    }
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    return tg_allocator_check(out->allocator, why);
}
