/* What a machine does beside encoding and decoding, timed: copies, sums, TCP, operations between threads; and steps of one rank. */
#ifndef CLI_PROBE_PARTS_H
#define CLI_PROBE_PARTS_H

#include "probe_data.h"

/* Sets copy, add, add_bf16, tcp and op. Uses n values and as many of scratch. */
int cli_parts_measure(cli_machine *out, const float *values, float *scratch, size_t n);

/* An exchange of one rank, which does all the work of a step and sends nothing. */
typedef struct cli_solo {
    tg_exchange *exchange;
    tg_threads *threads;
    double products; /* of PowerSGD in a step */
} cli_solo;

/* Close in any case. */
int cli_solo_open(cli_solo *out, const char *recipe, const tg_tensor *tensors, size_t tensor_n, uint32_t threads);
int cli_solo_step(cli_solo *s, uint64_t step, void *const *grads);
double cli_solo_products(const cli_solo *s); /* known after cli_solo_close, too */
void cli_solo_close(cli_solo *s);

#endif
