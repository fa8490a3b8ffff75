/* What every fuzz target needs: its entry point, and a macro that checks promises of the library. */
#ifndef TG_FUZZ_CHECK_H
#define TG_FUZZ_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer and replay.c call it with one input. It always returns 0: a failure ends the program. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Ends the program unless `condition` holds, so that the fuzzer keeps the input. */
#define PROMISE(condition, promise)                                                            \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            (void)fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, promise); \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

#endif
