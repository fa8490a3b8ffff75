/* Conversions between binary32 and the two 16-bit formats of gradients, for what the program itself makes,
 * checks and writes. Plain and slow; the library has its own.
 */
#ifndef CLI_HALF_H
#define CLI_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "tersegrad/tersegrad.h"

float cli_half_from_fp16(uint16_t bits);
float cli_half_from_bf16(uint16_t bits);

/* Rounded to nearest, ties to even; beyond the largest finite value: infinity. */
uint16_t cli_half_to_fp16(float value);
uint16_t cli_half_to_bf16(float value);

/* n elements of any dtype as binary32, and back. */
void cli_half_widen(float *out, const void *src, size_t n, tg_dtype dtype);
void cli_half_narrow(void *out, const float *src, size_t n, tg_dtype dtype);

#endif
