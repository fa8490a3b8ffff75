/* Kernels for AVX2 in files by idea. The caller has checked that the CPU has these instructions (kernels.c). */
#ifndef TG_KERNELS_AVX2_H
#define TG_KERNELS_AVX2_H

#include "kernels/kernels.h"

#if defined(__x86_64__)
/* avx2_hash.c */
uint64_t tg_avx2_hash_leaf(const uint8_t *bytes, const tg_prefetch *next);
#endif

#endif
