/* What kernels share: CUDA or its emulation, unaligned words, and the geometry of launches. Only .cu files include it. */
#ifndef TG_EXEC_CUDA_KERNEL_H
#define TG_EXEC_CUDA_KERNEL_H

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#include <stdint.h>
/* A grid of no blocks is nothing to do; CUDA would call it an error. */
#define TG_LAUNCH(kernel, blocks, threads, stream, ...)                                         \
    do {                                                                                        \
        unsigned tg_blocks = (unsigned)(blocks);                                                \
        if (tg_blocks > 0) {                                                                    \
            kernel<<<tg_blocks, (unsigned)(threads), 0, (cudaStream_t)(stream)>>>(__VA_ARGS__); \
        }                                                                                       \
    } while (0)
#else
#include "exec/cuda/emulate/cuda.h"
#endif

#if defined(__CUDACC__)
#define TG_UNROLL _Pragma("unroll")
#define TG_ROLL _Pragma("unroll 1")
#else
#define TG_UNROLL
#define TG_ROLL
#endif

/* Asks for the line of memory around an address, which may be used soon. */
#if defined(__CUDACC__)
#define TG_PREFETCH(at) asm volatile("prefetch.global.L2 [%0];" ::"l"(at))
#else
#define TG_PREFETCH(at) ((void)(at))
#endif

/* What GPUs before compute capability 8.0 do not have. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TG_REDUCE(name, better)                                                    \
    __device__ static __forceinline__ unsigned name(unsigned mask, unsigned value) \
    {                                                                              \
        for (int half = 16; half > 0; half /= 2) {                                 \
            unsigned other = __shfl_xor_sync(mask, value, half);                   \
            value = better;                                                        \
        }                                                                          \
        return value;                                                              \
    }
TG_REDUCE(__reduce_add_sync, value + other)
TG_REDUCE(__reduce_max_sync, value > other ? value : other)
TG_REDUCE(__reduce_min_sync, value < other ? value : other)
#endif

#define TG_WARP 32u
#define TG_ALL_LANES 0xffffffffu
#define TG_DEVICE __device__ static __forceinline__

/* A little-endian word at any address. At an odd one it reads whole aligned words, so up to 7 bytes before and after it must be readable. */
TG_DEVICE uint64_t tg_load64(const uint8_t *at)
{
    unsigned place = (unsigned)((uintptr_t)at % 8);
    if (place == 0) {
        return *(const uint64_t *)(const void *)at;
    }
    if (place == 4) {
        const uint32_t *word = (const uint32_t *)(const void *)at;
        return word[0] | (uint64_t)word[1] << 32;
    }
    if (place % 2 == 0) {
        const uint16_t *half = (const uint16_t *)(const void *)at;
        return half[0] | (uint64_t)half[1] << 16 | (uint64_t)half[2] << 32 | (uint64_t)half[3] << 48;
    }
    const uint64_t *word = (const uint64_t *)(const void *)(at - place);
    return word[0] >> 8 * place | word[1] << (64 - 8 * place);
}

TG_DEVICE uint32_t tg_load32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

TG_DEVICE void tg_store_bytes(uint8_t *at, uint64_t value, unsigned len)
{
    for (unsigned i = 0; i < len; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

#endif
