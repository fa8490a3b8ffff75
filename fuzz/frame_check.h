/* What must hold of any bytes that are given to the reader of frames. */
#ifndef TG_FUZZ_FRAME_CHECK_H
#define TG_FUZZ_FRAME_CHECK_H

#include "support.h"

#include <stdbool.h>

/* Frames of more elements are read but not decoded, to keep inputs cheap. It is several chunks. */
#define FUZZ_ELEMENT_MAX (UINT64_C(1) << 20)

/* Memory for one codec that decodes, whatever its work space is. */
size_t fuzz_frame_budget(void);

/* Reads and decodes the bytes in all ways there are and checks that they agree; whether they are a frame. */
bool fuzz_check_frame(const uint8_t *data, size_t len);

#endif
