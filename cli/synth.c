/* Synthetic gradients; see synth.h. Sums, products and ratios of uniform draws alone: the functions of a
 * mathematical library differ in their last bit from one machine to the next.
 */
#include "synth.h"

float cli_synth_value(uint64_t seed, uint64_t index)
{
    uint64_t bits = cli_synth_bits(seed, index);
    /* The sum of three uniform numbers in [-1, 1) is nearly normal; to divide it by a fourth in (0, 1] gives
     * the tails. */
    float sum = 0;
    for (int i = 0; i < 3; i++) {
        sum += (float)(int16_t)(uint16_t)(bits >> 16 * i) * 0x1p-15f;
    }
    float share = (float)((bits >> 48) + 1) * 0x1p-16f;
    return sum / (0.02f + share);
}

void cli_synth_gradient(float *out, size_t n, uint64_t seed)
{
    enum { LAYER_N = 4096 };
    float scale = 1;
    for (size_t i = 0; i < n; i++) {
        if (i % LAYER_N == 0) {
            uint64_t halvings = cli_synth_bits(~seed, i / LAYER_N) % 10;
            scale = 0x1p-4f / (float)(UINT64_C(1) << halvings);
        }
        out[i] = cli_synth_value(seed, i) * scale;
    }
}
