/* The codecs that the target `body` reads with: every way in which coordinates are known, whole and in slices. */
#ifndef TG_FUZZ_BODY_CASES_H
#define TG_FUZZ_BODY_CASES_H

#include "frame/codec.h"

typedef struct fuzz_body_case {
    tg_codec *both;       /* of frames with indices and values ... */
    tg_codec *values;     /* ... and of frames with values alone, which follow a leader */
    tg_grid *whole;       /* of a leader's frames, which are not cut into slices ... */
    tg_plan *leader;      /* ... and hold indices alone */
    void **zeros, **ones; /* two rooms for the elements of all tensors, each in its dtype */
} fuzz_body_case;

extern const size_t fuzz_body_case_n;

enum { FUZZ_BODY_CASE_LED = 4 }; /* the case in which a leader tells the coordinates of every tensor by itself */

/* Case number `index`, made at its first use and kept as long as the program. */
const fuzz_body_case *fuzz_body_case_at(size_t index);

#endif
