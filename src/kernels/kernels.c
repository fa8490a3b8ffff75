/* Chooses the instruction set of the kernels: the best that the CPU has, or the one that TG_SIMD names. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Both indexed by tg_simd_level. Instruction sets of another architecture have no table. */
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
/* Not every compiler's __builtin_cpu_supports knows F16C and LZCNT. */
static bool has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_lzcnt(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
}
#endif

const tg_kernels *tg_kernels_of(tg_simd_level level)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                has_f16c() && has_lzcnt() && __builtin_cpu_supports("popcnt");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if ((level == TG_SIMD_AVX2 && !avx2) || (level == TG_SIMD_AVX512 && !(avx2 && avx512))) {
        return NULL;
    }
#endif
    return tables[level];
}

static const tg_kernels *choose(void)
{
    const char *named = getenv("TG_SIMD");
    const tg_kernels *best = &tg_kernels_scalar;
    for (int level = 0; level < TG_SIMD_LEVELS; level++) {
        const tg_kernels *k = tg_kernels_of((tg_simd_level)level);
        if (k != NULL) {
            best = k;
            if (named != NULL && strcmp(named, names[level]) == 0) {
                break;
            }
        }
    }
    return best;
}

/* The library's only global state: a fact of the machine. Threads that choose at the same time choose the same. */
const tg_kernels *tg_kernels_best(void)
{
    static _Atomic(const tg_kernels *) chosen;
    const tg_kernels *k = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (k == NULL) {
        k = choose();
        atomic_store_explicit(&chosen, k, memory_order_relaxed);
    }
    return k;
}

tg_simd_level tg_simd_best(void)
{
    const tg_kernels *best = tg_kernels_best();
    int level = 0;
    while (tables[level] != best) {
        level++;
    }
    return (tg_simd_level)level;
}

const char *tg_simd(void)
{
    return names[tg_simd_best()];
}
