/* fp16 and bf16 between a frame, where they are little-endian, and a big-endian CPU. The last argument is the kernel that converts
 * them in the order of the CPU. On a little-endian CPU the kernels convert the bytes of a frame directly. */
#ifndef TG_QUANTIZE_HALVES_H
#define TG_QUANTIZE_HALVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool tg_halves_write(uint8_t *bytes, const float *values, size_t n, bool (*narrow)(void *, const float *, size_t));
void tg_halves_read(float *values, const uint8_t *bytes, size_t n, void (*widen)(float *, const void *, size_t));
void tg_halves_add(float *sums, const uint8_t *bytes, float weight, size_t n,
                   void (*add)(float *, const void *, float, size_t));

#endif
