/* Is a codec right for a gradient? Takes it through encode and decode with fresh codecs and holds the result
 * against the promises: nothing is lost with feedback, values that were sent are right, and the bytes are the
 * same again and for any number of threads. What is to be timed is checked first.
 */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include "tersegrad/tersegrad.h"

typedef struct cli_check {
    const char *recipe;
    const tg_tensor *tensor;
    const tg_options *opt;
    const void *grad; /* the elements in the tensor's dtype */
    size_t n;
} cli_check;

typedef struct cli_check_result {
    char recipe[TG_RECIPE_CAP]; /* that the tensor travels by */
    tg_frame_info info;         /* of the first step's frame ... */
    uint64_t paper_len;         /* ... and its bytes as the scheme's paper counts; 0: it does not */
    double nmse;                /* of the first step; NAN without energy or where not all values are finite */
    const char *law;            /* what was compared, in a few words */
} cli_check_result;

/* CLI_OK, or a report of what is wrong. */
int cli_check_run(cli_check_result *out, const cli_check *check);

#endif
