/* CUDA's execution model on the CPU, for tests: the part of CUDA C that the kernels here use. Blocks run one after the other;
 * the threads of a block are fibers, which run until they meet at a barrier or in a warp operation. Blocks that are launched together
 * run in turns when they wait for each other: shared memory of theirs is dynamic, since variables with __shared__ are one for all blocks.
 *
 * Stricter than a GPU: a barrier that some threads of a block do not reach, and a warp operation that lanes reach in another
 * order, end the program. Grids and blocks have one dimension, blocks are whole warps, and masks of warp operations name
 * all lanes. Blocks may wait for blocks with lower numbers only, unless they are launched together; a wait that can never end then ends
 * the program, too. */
#ifndef TG_EXEC_CUDA_EMULATE_CUDA_H
#define TG_EXEC_CUDA_EMULATE_CUDA_H

#include <math.h>
#include <new>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#include "exec/cuda/emulate/late.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct tg_emulated_index {
    unsigned x;
};
extern thread_local tg_emulated_index threadIdx, blockIdx, blockDim, gridDim;

/* Ends the program with a sentence that names block and thread, if `at` is in shared memory. */
void tg_emulated_is_global(const void *at);

/* Runs `body` with `context` once for every thread of every block. */
void tg_emulated_launch(unsigned blocks, unsigned threads, void (*body)(void *context), void *context);

/* The same of blocks that may wait for each other, each with shared memory of its own at tg_emulated_shared(). */
extern "C" void tg_emulated_launch_together(unsigned blocks, unsigned threads, size_t shared_len,
                                            void (*body)(void *context), void *context);
void *tg_emulated_shared(void);

/* A thread that waits for other blocks lets them run between two looks, and tells when its wait has ended. */
extern "C" void tg_emulated_let_others(void);
extern "C" void tg_emulated_went_on(void);

/* A kernel with its arguments, which are copied when it is launched: it may run later. `together`: its blocks may wait for each other. */
template <class... Expected> struct tg_emulated_kernel {
    void (*kernel)(Expected...);
    unsigned blocks, threads;
    bool together;
    size_t shared_len;
    std::tuple<std::decay_t<Expected>...> given;

    static void run_thread(void *context)
    {
        auto *self = static_cast<tg_emulated_kernel *>(context);
        std::apply(self->kernel, self->given);
    }

    static void run(void *context)
    {
        auto *self = static_cast<tg_emulated_kernel *>(context);
        if (self->together) {
            tg_emulated_launch_together(self->blocks, self->threads, self->shared_len, run_thread, self);
        } else {
            tg_emulated_launch(self->blocks, self->threads, run_thread, self);
        }
        free(self);
    }
};

template <class... Expected, class... Given>
static void tg_emulated_put_kernel(void (*kernel)(Expected...), uint64_t blocks, unsigned threads, bool together,
                                   size_t shared_len, void *stream, const Given &...given)
{
    using launched = tg_emulated_kernel<Expected...>;
    static_assert(std::is_trivially_destructible<launched>::value,
                  "it is freed without a destructor, for which there is no library");
    void *memory = malloc(sizeof(launched));
    if (memory == nullptr) {
        abort();
    }
    tg_emulated_put(stream, launched::run,
                    new (memory) launched{
                        kernel, (unsigned)blocks, threads, together, shared_len, {static_cast<Expected>(given)...}});
}

#define TG_LAUNCH(kernel, blocks, threads, stream, ...) \
    tg_emulated_put_kernel(kernel, (uint64_t)(blocks), (unsigned)(threads), false, 0, stream, __VA_ARGS__)

#define TG_LAUNCH_TOGETHER(kernel, together, overlaps, blocks, threads, shared_len, stream, ...) \
    tg_emulated_put_kernel(kernel, (uint64_t)(blocks), (unsigned)(threads), true, (shared_len), stream, __VA_ARGS__)

/* ---- barriers and warp operations --------------------------------------------------------------------------------------- */

void __syncthreads(void);
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_count(int predicate);

/* Deposits a lane's value, and returns those of all lanes once all have come. `kind` must be the same for all. */
const uint64_t *tg_emulated_warp(unsigned kind, uint64_t value, unsigned mask);

static inline unsigned tg_emulated_lane(void)
{
    return threadIdx.x % 32;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    (void)tg_emulated_warp(1, 0, mask);
}

template <class T> static inline T tg_emulated_value(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> static inline uint64_t tg_emulated_bits(T value)
{
    static_assert(sizeof value <= 8, "values of warp operations have at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int from)
{
    return tg_emulated_value<T>(tg_emulated_warp(2, tg_emulated_bits(value), mask)[(unsigned)from % 32]);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by)
{
    const uint64_t *all = tg_emulated_warp(3, tg_emulated_bits(value), mask);
    unsigned lane = tg_emulated_lane();
    return tg_emulated_value<T>(all[lane >= by ? lane - by : lane]);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by)
{
    const uint64_t *all = tg_emulated_warp(4, tg_emulated_bits(value), mask);
    unsigned lane = tg_emulated_lane();
    return tg_emulated_value<T>(all[lane + by < 32 ? lane + by : lane]);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int by)
{
    return tg_emulated_value<T>(tg_emulated_warp(5, tg_emulated_bits(value), mask)[tg_emulated_lane() ^ (unsigned)by]);
}

unsigned __ballot_sync(unsigned mask, int predicate);
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == 0xffffffffu;
}
unsigned __reduce_add_sync(unsigned mask, unsigned value);
unsigned __reduce_max_sync(unsigned mask, unsigned value);
unsigned __reduce_min_sync(unsigned mask, unsigned value);
unsigned __match_any_sync(unsigned mask, unsigned value);

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

static inline void __threadfence(void)
{
}
static inline void __threadfence_system(void)
{
}
static inline void __threadfence_block(void)
{
}

/* These are for device memory alone: on a GPU they fail for shared memory. */
template <class T> static inline T __ldg(const T *at)
{
    tg_emulated_is_global(at);
    return *at;
}
template <class T> static inline T __ldcg(const T *at)
{
    tg_emulated_is_global(at);
    return *at;
}
template <class T> static inline T __ldcs(const T *at)
{
    tg_emulated_is_global(at);
    return *at;
}
template <class T> static inline void __stcs(T *at, T value)
{
    tg_emulated_is_global(at);
    *at = value;
}

template <class T, class V> static inline T atomicAdd(T *at, V value)
{
    T old = *at;
    *at = (T)(old + (T)value);
    return old;
}
template <class T, class V> static inline T atomicMax(T *at, V value)
{
    T old = *at;
    *at = old > (T)value ? old : (T)value;
    return old;
}
template <class T, class V> static inline T atomicMin(T *at, V value)
{
    T old = *at;
    *at = old < (T)value ? old : (T)value;
    return old;
}
template <class T, class V> static inline T atomicOr(T *at, V value)
{
    T old = *at;
    *at = (T)(old | (T)value);
    return old;
}
template <class T, class V> static inline T atomicExch(T *at, V value)
{
    T old = *at;
    *at = (T)value;
    return old;
}
template <class T, class U, class V> static inline T atomicCAS(T *at, U expected, V value)
{
    T old = *at;
    *at = old == (T)expected ? (T)value : old;
    return old;
}

/* ---- bits and arithmetic ------------------------------------------------------------------------------------------------ */

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline unsigned __brev(unsigned x)
{
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) {
        reversed = reversed << 1 | (x >> i & 1);
    }
    return reversed;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)((wide)a * b >> 64);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> by % 32);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) << by % 32 >> 32);
}
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector)
{
    uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        out |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    }
    return out;
}
/* a + b rounded down, of numbers whose sum is that of doubles, or nearly and rounded up to none of them. */
static inline float __fadd_rd(float a, float b)
{
    float sum = a + b;
    return (double)sum > (double)a + (double)b ? nextafterf(sum, -INFINITY) : sum;
}
/* a + b towards 0. */
static inline double __dadd_rz(double a, double b)
{
    double sum = a + b, of_b = sum - a, rest = (a - (sum - of_b)) + (b - of_b);
    return (rest < 0 && sum > 0) || (rest > 0 && sum < 0) ? nextafter(sum, 0.0) : sum;
}
/* Between 0 and 1; 0 for NaN. */
static inline float __saturatef(float x)
{
    return x > 0 ? fminf(x, 1) : 0;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum)
{
    for (int i = 0; i < 32; i += 8) {
        sum += (a >> i & 255) * (b >> i & 255);
    }
    return sum;
}
/* Two numbers of 16 bits times the lower, or the upper, two bytes. */
static inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned sum)
{
    return sum + (a & 0xffffu) * (b & 255) + (a >> 16) * (b >> 8 & 255);
}
static inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned sum)
{
    return __dp2a_lo(a, b >> 16, sum);
}
static inline long long __double_as_longlong(double x)
{
    long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double __longlong_as_double(long long bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

template <class T> static inline T min(T a, T b)
{
    return a < b ? a : b;
}
template <class T> static inline T max(T a, T b)
{
    return a > b ? a : b;
}

/* ---- vectors -------------------------------------------------------------------------------------------------------------- */

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

#endif
