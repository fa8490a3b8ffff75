/* Coders of prefix and Rice codes for x86-64 with BMI2 and LZCNT, which every CPU with AVX2 has (bmi2.c). */
#ifndef TG_KERNELS_BMI2_H
#define TG_KERNELS_BMI2_H

#include "kernels/kernels.h"

#if defined(__x86_64__)
uint8_t *tg_bmi2_prefix_write(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                              const tg_prefix_codes *codes);
void tg_bmi2_prefix_read(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables);
bool tg_bmi2_rice_read(tg_rice_reader *r, unsigned k, size_t n);
size_t tg_bmi2_rice_write(tg_rice_writer *w, unsigned k, const uint32_t *list, size_t count);
size_t tg_bmi2_compress(float *out, const float *values, const uint64_t *mask, size_t n);
void tg_bmi2_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n);
void tg_bmi2_expand_set(float *out, const uint64_t *mask, const float *values, size_t n);
#endif

#endif
