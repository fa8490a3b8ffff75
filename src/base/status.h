/* Error handling: functions return a status and write one sentence to the caller's tg_detail. */
#ifndef TG_BASE_STATUS_H
#define TG_BASE_STATUS_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

#if defined(__GNUC__)
#define TG_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TG_PRINTF(text, first)
#endif

/* Returns from the calling function if `call` fails. */
#define TG_TRY(call)                      \
    do {                                  \
        tg_status tg_try_status = (call); \
        if (tg_try_status < 0) {          \
            return tg_try_status;         \
        }                                 \
    } while (0)

/* Returns from the calling function with an error if `pointer` is NULL. */
#define TG_NEED(pointer, why)                   \
    do {                                        \
        if ((pointer) == NULL) {                \
            return tg_missing(#pointer, (why)); \
        }                                       \
    } while (0)

/* Writes the message, truncated to fit, unless `why` is NULL, and returns `status`, so that failing is one statement:
 * return tg_fail(TG_E_FRAME, why, "..."). */
tg_status tg_fail(tg_status status, tg_detail *why, const char *format, ...) TG_PRINTF(3, 4);

/* Returns TG_E_ARGUMENT with a message that names the missing argument. */
tg_status tg_missing(const char *name, tg_detail *why);

#endif
