/* Coders of prefix and Rice codes for x86-64 with BMI2 and LZCNT, which every CPU with AVX2 has (bmi2.c). */
#ifndef TG_KERNELS_BMI2_H
#define TG_KERNELS_BMI2_H

#include "kernels/kernels.h"

#if defined(__x86_64__)
uint8_t *tg_bmi2_prefix_write(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                              const tg_prefix_codes *codes);
void tg_bmi2_prefix_read(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables);
bool tg_bmi2_rice_read(tg_rice_reader *r, unsigned k, size_t n);
#endif

#endif
