/* See status.h. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *tg_status_text(tg_status status)
{
    switch (status) {
    case TG_OK: return "success";
    case TG_MORE: return "an operation is waiting";
    case TG_E_ARGUMENT: return "wrong use of the library";
    case TG_E_RECIPE: return "bad recipe";
    case TG_E_MEMORY: return "out of memory";
    case TG_E_SPACE: return "destination too small";
    case TG_E_NONFINITE: return "NaN or Inf in a gradient";
    case TG_E_FRAME: return "damaged frame";
    case TG_E_VERSION: return "unknown version";
    case TG_E_MISMATCH: return "made for something else";
    case TG_E_PEER: return "another rank failed";
    case TG_E_LINK: return "the link failed";
    case TG_E_DIVERGED: return "replicas differ";
    case TG_E_STATE: return "damaged state";
    case TG_E_NO_EFFECT: return "nothing would be compressed";
    }
    return "unknown status";
}

tg_status tg_fail(tg_status status, tg_detail *why, const char *format, ...)
{
    if (why != NULL) {
        va_list arguments;
        va_start(arguments, format);
        /* A truncated message is good enough. */
        (void)vsnprintf(why->text, sizeof why->text, format, arguments);
        va_end(arguments);
        /* Names come from files and from peers: control characters must not reach a terminal. */
        for (char *c = why->text; *c != '\0'; c++) {
            if ((unsigned char)*c < 0x20 || *c == 0x7f) {
                *c = '?';
            }
        }
    }
    return status;
}

tg_status tg_missing(const char *name, tg_detail *why)
{
    return tg_fail(TG_E_ARGUMENT, why, "%s is NULL, and must be given", name);
}
