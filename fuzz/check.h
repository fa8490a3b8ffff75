/* What every fuzz target needs: its entry, and the one way to say that the library broke a promise. */
#ifndef TG_FUZZ_CHECK_H
#define TG_FUZZ_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer and replay.c call it with one input. It always returns 0: what goes wrong ends the program. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Ends the program unless `condition` holds, so that the input which broke it is kept. */
#define PROMISE(condition, promise)                                                            \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            (void)fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, promise); \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

#endif
