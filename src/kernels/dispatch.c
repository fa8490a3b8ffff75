/* Which instruction set hot loops use: the best that the processor has, or at most the one that TG_SIMD names. */
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"scalar", "avx2", "avx512"}; /* as tg_simd_level */

static tg_simd_level allowed(void)
{
    const char *named = getenv("TG_SIMD");
    for (int i = 0; named != NULL && i < TG_SIMD_AVX512; i++) {
        if (strcmp(named, names[i]) == 0) {
            return (tg_simd_level)i;
        }
    }
    return TG_SIMD_AVX512;
}

static tg_simd_level has(void)
{
#if defined(__x86_64__)
    bool avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return avx512 ? TG_SIMD_AVX512 : __builtin_cpu_supports("avx2") ? TG_SIMD_AVX2 : TG_SIMD_SCALAR;
#else
    return TG_SIMD_SCALAR;
#endif
}

/* Asked each time: it costs little beside what is then done, and there is nothing to keep. */
tg_simd_level tg_simd_best(void)
{
    tg_simd_level may = allowed(), can = has();
    return may < can ? may : can;
}

const char *tg_simd(void)
{
    return names[tg_simd_best()];
}

size_t tg_rans_rounds(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end, size_t count,
                      const tg_rans_slots *slots)
{
#if defined(__x86_64__)
    if (tg_simd_best() == TG_SIMD_AVX512) {
        return tg_rans_rounds_avx512(symbols, states, words, end, count, slots);
    }
#endif
    return tg_rans_rounds_scalar(symbols, states, words, end, count, slots);
}
