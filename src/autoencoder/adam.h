/* Adam (Kingma and Ba, 2015), with bias correction, betas of 0.9 and 0.999 and an epsilon of 1e-8. */
#ifndef TG_AUTOENCODER_ADAM_H
#define TG_AUTOENCODER_ADAM_H

#include <stddef.h>
#include <stdint.h>

/* What depends on the step, counted from 1: the rate, and the root that second moments are divided by, with the bias corrected. */
void tg_adam_factors(float *step_size, float *root, double rate, uint64_t step);

/* Updates n weights in step number `step`. `moments` are n first moments, then n second moments, all 0 before step 1. */
void tg_adam_step(float *weights, float *moments, const float *gradients, size_t n, double rate, uint64_t step);

#endif
