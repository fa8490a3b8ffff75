/* Any bytes as a frame that describes itself: it is refused with a sentence, or all ways to read it agree. */
#include "frame_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    (void)fuzz_check_frame(data, len);
    return 0;
}
