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
/* Blocks that may wait for each other (TG_AWAIT), with dynamic shared memory alone: every `together` blocks, side by side, are a cluster, which
 * the GPU runs at the same time. With `overlaps` they may be launched early (TG_LAUNCH_EARLY). */
static inline cudaLaunchConfig_t tg_config_together(cudaLaunchAttribute attributes[2], unsigned together, bool overlaps,
                                                    uint64_t blocks, unsigned threads, size_t shared_len, void *stream)
{
    attributes[0] = attributes[1] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = together;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_len;
    config.stream = (cudaStream_t)stream;
    config.attrs = attributes;
    config.numAttrs = overlaps ? 2 : 1;
    return config;
}
template <class... Expected, class... Given>
static inline void tg_launch_together(void (*kernel)(Expected...), unsigned together, bool overlaps, uint64_t blocks,
                                      unsigned threads, size_t shared_len, void *stream, const Given &...given)
{
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = tg_config_together(attributes, together, overlaps, blocks, threads, shared_len, stream);
    if (blocks > 0) {
        (void)cudaLaunchKernelEx(&config, kernel, given...); /* the next wait reports what is wrong */
    }
}
#define TG_LAUNCH_TOGETHER(kernel, together, overlaps, blocks, threads, shared_len, stream, ...) \
    tg_launch_together(kernel, together, (overlaps) != 0, blocks, threads, shared_len, stream, __VA_ARGS__)
#else
#include "exec/cuda/emulate/cuda.h"
#endif

/* Waits until other blocks have made a condition true, which looks at memory anew each time. */
#if defined(__CUDACC__)
#define TG_AWAIT(condition) \
    do {                    \
    } while (!(condition))
#else
#define TG_AWAIT(condition)           \
    do {                              \
        while (!(condition)) {        \
            tg_emulated_let_others(); \
        }                             \
        tg_emulated_went_on();        \
    } while (0)
#endif

/* A kernel that may be put on the GPU while the one before it on the stream still runs, so that it is there when that one ends. All its
 * blocks call tg_after_previous, before which they read tables of the plan alone, unless it is said there why they may read more. It pays
 * most where the one before says tg_next_may_begin. `overlaps`: the GPU can do that; otherwise it is launched as any other. */
#if defined(__CUDACC__)
template <class... Expected, class... Given>
static inline void tg_launch_early(void (*kernel)(Expected...), bool overlaps, uint64_t blocks, unsigned threads,
                                   void *stream, const Given &...given)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(threads);
    config.stream = (cudaStream_t)stream;
    config.attrs = &early;
    config.numAttrs = overlaps ? 1 : 0;
    if (blocks > 0) {
        (void)cudaLaunchKernelEx(&config, kernel, given...); /* the next wait reports what is wrong */
    }
}
#define TG_LAUNCH_EARLY(kernel, overlaps, blocks, threads, stream, ...) \
    tg_launch_early(kernel, (overlaps) != 0, blocks, threads, stream, __VA_ARGS__)
#else
#define TG_LAUNCH_EARLY(kernel, overlaps, blocks, threads, stream, ...) \
    do {                                                                \
        (void)(overlaps);                                               \
        TG_LAUNCH(kernel, blocks, threads, stream, __VA_ARGS__);        \
    } while (0)
#endif

#if defined(__CUDACC__)
#define TG_UNROLL _Pragma("unroll")
#define TG_ROLL _Pragma("unroll 1")
#define TG_UNROLL_TEXT(text) _Pragma(#text)
#define TG_UNROLL_BY(n) TG_UNROLL_TEXT(unroll n)
#else
#define TG_UNROLL
#define TG_UNROLL_BY(n)
#define TG_ROLL
#endif

/* A function that kernels call. What is long and seldom needed is not copied to where it is used: a short kernel takes longer to fetch
 * its instructions from memory than to execute them. */
#if defined(__CUDACC__)
#define TG_CALLED __device__ static __noinline__
#else
#define TG_CALLED static inline
#endif

/* Asks for the line of memory around an address, which may be used soon. */
#if defined(__CUDACC__)
#define TG_PREFETCH(at) asm volatile("prefetch.global.L2 [%0];" ::"l"(at))
#else
#define TG_PREFETCH(at) ((void)(at))
#endif

/* Keeps a load of 8 bytes where it is written. A compiler moves it to where it is used, so that loads wait for each other. */
#if defined(__CUDACC__)
#define TG_LOADED(value) asm volatile("" ::"l"((uint64_t)(value)))
#else
#define TG_LOADED(value) ((void)(value))
#endif

/* If a condition holds: end[-place] = value, of words of 2 bytes in device memory. A compiler would make branches of many of them side by
 * side, and compute addresses in five steps. */
#if defined(__CUDACC__)
#define TG_STORE_BEFORE(condition, end, place, value)                                                 \
    asm volatile("{ .reg .pred p; .reg .b64 at; setp.ne.u32 p, %0, 0; mad.wide.s32 at, %2, -2, %1;\n" \
                 "@p st.global.u16 [at], %3; }" ::"r"((unsigned)(condition)),                         \
                 "l"(end), "r"((int)(place)), "h"((unsigned short)(value))                            \
                 : "memory")
#else
#define TG_STORE_BEFORE(condition, end, place, value)       \
    do {                                                    \
        if (condition) {                                    \
            (end)[-(int)(place)] = (unsigned short)(value); \
        }                                                   \
    } while (0)
#endif

/* Numbers of 8 bytes in shared memory, by addresses of 32 bits. TG_PLACE_AFTER: n numbers after a place, which a compiler does not merge with
 * what is added later. TG_LOAD_IF: `value` becomes the n-th number after a place, if a condition holds. A compiler would load it into other
 * registers and then select. */
#if defined(__CUDACC__)
typedef unsigned tg_place;
#define TG_PLACE_OF(numbers) ((unsigned)__cvta_generic_to_shared(numbers))
#define TG_PLACE_AFTER(to, place, n) \
    asm volatile("mad.lo.u32 %0, %1, 8, %2;" : "=r"(to) : "r"((unsigned)(n)), "r"(place))
#define TG_LOAD_IF(condition, value, place, n)                                                     \
    asm volatile("{ .reg .pred p; .reg .u32 at; setp.ne.u32 p, %1, 0; mad.lo.u32 at, %3, 8, %2;\n" \
                 "@p ld.shared.u64 %0, [at]; }"                                                    \
                 : "+l"(value)                                                                     \
                 : "r"((unsigned)(condition)), "r"(place), "r"((unsigned)(n))                      \
                 : "memory")
#else
typedef const uint64_t *tg_place;
#define TG_PLACE_OF(numbers) ((const uint64_t *)(const void *)(numbers))
#define TG_PLACE_AFTER(to, place, n) ((to) = (place) + (n))
#define TG_LOAD_IF(condition, value, place, n) ((value) = (condition) ? (place)[n] : (value))
#endif

/* Copies 4, 8 or 16 bytes, aligned so, from device memory to shared memory, without registers and without waiting (a GPU before compute
 * capability 8.0 waits). TG_WAIT_COPIES(n) waits for what this thread has asked for, but for the last n TG_COMMIT_COPIES. */
#if defined(__CUDACC__)
#include <cuda_pipeline_primitives.h>
#define TG_COPY_ASYNC(shared, from, len) __pipeline_memcpy_async(shared, from, len)
#define TG_COMMIT_COPIES() __pipeline_commit()
#define TG_WAIT_COPIES(n) __pipeline_wait_prior(n)
#else
#define TG_COPY_ASYNC(shared, from, len) (tg_emulated_is_global(from), (void)memcpy(shared, from, len))
#define TG_COMMIT_COPIES() ((void)0)
#define TG_WAIT_COPIES(n) ((void)0)
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

/* The dynamic shared memory of a block. */
TG_DEVICE void *tg_dynamic_shared(void)
{
#if defined(__CUDACC__)
    extern __shared__ uint4 tg_shared_vectors[];
    return tg_shared_vectors;
#else
    return tg_emulated_shared();
#endif
}

/* Waits until the kernel before this one on the stream has ended, if this one was launched early: then all that it wrote is there. */
TG_DEVICE void tg_after_previous(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel on the stream, if it is launched early, may be put on the GPU once all blocks of this one have said so or ended. */
TG_DEVICE void tg_next_may_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Prefetches `len` bytes to the L2 cache, whole vectors of them (from compute capability 9.0 on; before, it does nothing). */
TG_DEVICE void tg_prefetch(const void *from, uint32_t len)
{
    const uint64_t start = ((uint64_t)(uintptr_t)from + 15) / 16 * 16,
                   end = ((uint64_t)(uintptr_t)from + len) / 16 * 16;
    if (start < end) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(start), "r"((uint32_t)(end - start)));
#elif !defined(__CUDACC__)
        (void)*(const volatile uint8_t *)(uintptr_t)start; /* so that tests find what is not there */
        (void)*(const volatile uint8_t *)(uintptr_t)(end - 1);
#endif
    }
}

/* A little-endian word at any address. It reads whole aligned words, so up to 3 bytes before and after it must be readable. */
TG_DEVICE uint64_t tg_load64(const uint8_t *at)
{
    if ((uintptr_t)at % 8 == 0) {
        return *(const uint64_t *)(const void *)at;
    }
    unsigned shift = (unsigned)((uintptr_t)at % 4) * 8;
    const uint32_t *word = (const uint32_t *)(const void *)(at - shift / 8);
    uint32_t last = shift > 0 ? word[2] : 0;
    return __funnelshift_r(word[0], word[1], shift) | (uint64_t)__funnelshift_r(word[1], last, shift) << 32;
}

/* 16 bytes, likewise; at a multiple of 16 it reads no others. */
TG_DEVICE uint4 tg_load_vector(const uint8_t *at)
{
    if ((uintptr_t)at % 16 == 0) {
        return *(const uint4 *)(const void *)at;
    }
    unsigned shift = (unsigned)((uintptr_t)at % 4) * 8;
    const uint32_t *word = (const uint32_t *)(const void *)(at - shift / 8);
    uint32_t last = shift > 0 ? word[4] : 0;
    return make_uint4(__funnelshift_r(word[0], word[1], shift), __funnelshift_r(word[1], word[2], shift),
                      __funnelshift_r(word[2], word[3], shift), __funnelshift_r(word[3], last, shift));
}

/* 4 bytes, likewise; at a multiple of 4 it reads no others. */
TG_DEVICE uint32_t tg_load_word(const uint8_t *at)
{
    unsigned shift = (unsigned)((uintptr_t)at % 4) * 8;
    const uint32_t *word = (const uint32_t *)(const void *)(at - shift / 8);
    return shift == 0 ? word[0] : __funnelshift_r(word[0], word[1], shift);
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
