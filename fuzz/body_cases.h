/* The codecs of the target `body`: with all kinds of indices, whole and in slices. */
#ifndef TG_FUZZ_BODY_CASES_H
#define TG_FUZZ_BODY_CASES_H

#include "frame/codec.h"

typedef struct fuzz_body_case {
    tg_codec *both;       /* reads frames with indices and values */
    tg_codec *values;     /* reads frames with values alone, at the leader's indices */
    tg_grid *whole;       /* of a leader's frames, which are not sliced */
    tg_plan *leader;      /* of a leader's frames, which hold indices alone */
    void **zeros, **ones; /* two sets of buffers for all tensors, each in its dtype */
} fuzz_body_case;

extern const size_t fuzz_body_case_n;

enum { FUZZ_BODY_CASE_LED = 4 }; /* the case with leader's indices for every tensor on its own */

/* Case number `index`, created at its first use and kept until the program ends. */
const fuzz_body_case *fuzz_body_case_at(size_t index);

#endif
