/* Known distributions; see distribution.h. */
#include "distribution.h"

#include <math.h>

#include "synth.h"

/* N(0, 1), by Box and Muller: one half of the bits is the length, the other the angle. */
static double gaussian(uint64_t bits)
{
    const double turn = 6.283185307179586;
    double length = sqrt(-2 * log(((double)(bits >> 32) + 0.5) * 0x1p-32));
    return length * cos(turn * (double)(uint32_t)bits * 0x1p-32);
}

/* Of scale 1: an exponential size, with one bit as its sign. */
static double laplace(uint64_t bits)
{
    double size = -log(((double)(bits >> 12) + 0.5) * 0x1p-52);
    return bits & 1 ? -size : size;
}

/* The cube of a Gaussian: most values tiny, a few very large. */
static double cubed(uint64_t bits)
{
    double value = gaussian(bits);
    return value * value * value;
}

const cli_distribution cli_distributions[CLI_DISTRIBUTION_N] = {
    {"gaussian", gaussian},
    {"laplace", laplace},
    {"cubed", cubed},
};

void cli_distribution_draw(float *out, size_t n, const cli_distribution *d, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)d->value(cli_synth_bits(seed, i));
    }
}
