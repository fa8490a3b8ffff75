/* Which instruction set each kernel uses: the best that the processor has, or at most the one that TG_SIMD names. */
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

typedef enum level { SCALAR, AVX512 } level;

static level allowed(void)
{
    const char *named = getenv("TG_SIMD");
    return named != NULL && strcmp(named, "scalar") == 0 ? SCALAR : AVX512;
}

/* Asked each time: it costs little beside the work of a chunk, and there is nothing to keep. */
static level best(void)
{
#if defined(__x86_64__)
    bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return has_avx512 ? allowed() : SCALAR;
#else
    return SCALAR;
#endif
}

const char *tg_simd(void)
{
    return best() == AVX512 ? "avx512" : "scalar";
}

size_t tg_rans_rounds(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end, size_t count,
                      const tg_rans_slots *slots)
{
#if defined(__x86_64__)
    if (best() == AVX512) {
        return tg_rans_rounds_avx512(symbols, states, words, end, count, slots);
    }
#endif
    return tg_rans_rounds_scalar(symbols, states, words, end, count, slots);
}
