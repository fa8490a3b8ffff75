/* fp16 and bf16 values as bytes of a frame: little-endian, at any alignment. */
#ifndef TG_QUANTIZE_HALVES_H
#define TG_QUANTIZE_HALVES_H

#include "tersegrad/tersegrad.h"

#include <stdbool.h>

/* Implement `write`, `read` and `add` of tg_quantize_part for a 16-bit dtype. */
bool tg_halves_write(uint8_t *bytes, const float *values, tg_dtype dtype, size_t n);
void tg_halves_read(float *values, const uint8_t *bytes, tg_dtype dtype, size_t n);
void tg_halves_add(float *sums, const uint8_t *bytes, tg_dtype dtype, float weight, size_t n);

#endif
