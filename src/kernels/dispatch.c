/* Which instruction set hot loops use: the best that the processor has, or at most the one that TG_SIMD names. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Both as tg_simd_level; there is no table for what another kind of processor has. */
static const char *const names[TG_SIMD_LEVELS] = {"scalar", "avx2", "avx512", "neon"};
static const tg_kernels *const tables[TG_SIMD_LEVELS] = {
    [TG_SIMD_SCALAR] = &tg_kernels_scalar,
#if defined(__x86_64__)
    [TG_SIMD_AVX2] = &tg_kernels_avx2,
    [TG_SIMD_AVX512] = &tg_kernels_avx512,
#elif defined(__AARCH64EL__)
    [TG_SIMD_NEON] = &tg_kernels_neon,
#endif
};

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows of it. */
static bool has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

static bool has(tg_simd_level level)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                has_f16c() && __builtin_cpu_supports("popcnt");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if ((level == TG_SIMD_AVX2 && !avx2) || (level == TG_SIMD_AVX512 && !(avx2 && avx512))) {
        return false;
    }
#endif
    return tables[level] != NULL;
}

/* The best, or the one that is named; a name of what the processor does not have forbids nothing. */
static tg_simd_level look(void)
{
    const char *named = getenv("TG_SIMD");
    tg_simd_level best = TG_SIMD_SCALAR;
    for (int i = 0; i < TG_SIMD_LEVELS; i++) {
        if (has((tg_simd_level)i)) {
            best = (tg_simd_level)i;
            if (named != NULL && strcmp(named, names[i]) == 0) {
                break;
            }
        }
    }
    return best;
}

/* The only thing that the library keeps for itself: a fact of the machine. Threads that look at the same time find the same. */
tg_simd_level tg_simd_best(void)
{
    static atomic_int known; /* one more than the level; 0: nobody has looked */
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        level = 1 + (int)look();
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
    return has(level) ? tables[level] : NULL;
}

const tg_kernels *tg_kernels_best(void)
{
    return tables[tg_simd_best()];
}

bool tg_all_finite(const float *values, size_t n)
{
    return tg_kernels_best()->all_finite(values, n);
}
