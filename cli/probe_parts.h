/* What a machine does beside encoding and decoding, timed: copies, sums, TCP, operations between threads; and steps of one rank. */
#ifndef CLI_PROBE_PARTS_H
#define CLI_PROBE_PARTS_H

#include "probe_data.h"

/* Sets copy, add, add_bf16, tcp and op. Uses n values and as many of scratch. */
int cli_parts_measure(cli_machine *out, const float *values, float *scratch, size_t n);

/* Adds bf16 to bf16 as an all-reduce of halves does: widened, added, rounded. */
void cli_add_halves(uint16_t *to, const uint16_t *from, size_t n);

/* An exchange of one rank, which does all the work of a step and sends nothing. */
typedef struct cli_solo {
    tg_exchange *exchange;
    double products; /* of PowerSGD in a step */
} cli_solo;

/* On a device, or on the CPU (NULL). Close in any case. */
int cli_solo_open(cli_solo *out, const char *recipe, const tg_tensor *tensors, size_t tensor_n, uint32_t threads,
                  tg_device *device);
int cli_solo_step(cli_solo *s, uint64_t step, void *const *grads);
double cli_solo_products(const cli_solo *s); /* known after cli_solo_close, too */
void cli_solo_close(cli_solo *s);

#endif
