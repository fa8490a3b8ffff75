/* Synthetic gradients: values as a network's are, most of them small and a few large, at scales that differ
 * from layer to layer. A value is a pure function of seed and index, so every run and machine has the same.
 */
#ifndef CLI_SYNTH_H
#define CLI_SYNTH_H

#include <stddef.h>
#include <stdint.h>

/* A well mixed number for each (seed, index): SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
 * number generators", 2014). Here, because it is called for every element. */
static inline uint64_t cli_synth_bits(uint64_t seed, uint64_t index)
{
    uint64_t x = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* A draw from a distribution around 0 with heavy tails: its size is typically 1, now and then 50. */
float cli_synth_value(uint64_t seed, uint64_t index);

/* A gradient whose scale changes every 4096 elements, as if layers lay end to end. */
void cli_synth_gradient(float *out, size_t n, uint64_t seed);

#endif
