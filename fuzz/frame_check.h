/* Checks that must hold for any input of the frame reader. */
#ifndef TG_FUZZ_FRAME_CHECK_H
#define TG_FUZZ_FRAME_CHECK_H

#include "support.h"

#include <stdbool.h>

/* Frames with more elements are read but not decoded, to keep inputs fast. Large enough for several chunks. */
#define FUZZ_ELEMENT_MAX (UINT64_C(1) << 20)

/* Memory limit that suffices for one decoding codec. */
size_t fuzz_frame_budget(void);

/* Reads and decodes the bytes with all readers and checks that they agree. Returns whether they are a valid frame. */
bool fuzz_check_frame(const uint8_t *data, size_t len);

#endif
