/* Any bytes as a frame with a description: it is refused with an error, or all readers agree on it. */
#include "frame_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    (void)fuzz_check_frame(data, len);
    return 0;
}
