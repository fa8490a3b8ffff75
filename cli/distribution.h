/* Values of known distributions, on which the error of a quantizer can be told from theory. A value is a pure function of
 * seed and index; its last bit may be another where the mathematical library is.
 */
#ifndef CLI_DISTRIBUTION_H
#define CLI_DISTRIBUTION_H

#include <stddef.h>
#include <stdint.h>

enum { CLI_DISTRIBUTION_N = 3 };

typedef struct cli_distribution {
    const char *name;
    double (*value)(uint64_t bits); /* from 64 random bits */
} cli_distribution;

extern const cli_distribution cli_distributions[CLI_DISTRIBUTION_N];

void cli_distribution_draw(float *out, size_t n, const cli_distribution *d, uint64_t seed);

#endif
