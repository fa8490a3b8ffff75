/* Which instruction set hot loops use: the best that the processor has, or at most the one that TG_SIMD names. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
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

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows of it. */
static bool has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

static tg_simd_level has(void)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && has_f16c() &&
                __builtin_cpu_supports("popcnt");
    bool avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return avx2 && avx512 ? TG_SIMD_AVX512 : avx2 ? TG_SIMD_AVX2 : TG_SIMD_SCALAR;
#else
    return TG_SIMD_SCALAR;
#endif
}

/* The only thing that the library keeps for itself: a fact of the machine. Threads that look at the same time find the same. */
tg_simd_level tg_simd_best(void)
{
    static atomic_int known; /* one more than the level; 0: nobody has looked */
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        tg_simd_level may = allowed(), can = has();
        level = 1 + (int)(may < can ? may : can);
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (tg_simd_level)(level - 1);
}

const char *tg_simd(void)
{
    return names[tg_simd_best()];
}

const tg_kernels *tg_kernels_of(tg_simd_level level)
{
    const tg_kernels *found = level <= has() ? &tg_kernels_scalar : NULL;
#if defined(__x86_64__)
    found = found != NULL && level == TG_SIMD_AVX2 ? &tg_kernels_avx2 : found;
    found = found != NULL && level == TG_SIMD_AVX512 ? &tg_kernels_avx512 : found;
#endif
    return found;
}

const tg_kernels *tg_kernels_best(void)
{
#if defined(__x86_64__)
    switch (tg_simd_best()) {
    case TG_SIMD_AVX512: return &tg_kernels_avx512;
    case TG_SIMD_AVX2: return &tg_kernels_avx2;
    case TG_SIMD_SCALAR: break;
    }
#endif
    return &tg_kernels_scalar;
}

bool tg_all_finite(const float *values, size_t n)
{
    return tg_kernels_best()->all_finite(values, n);
}
