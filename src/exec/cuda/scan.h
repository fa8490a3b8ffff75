/* Sums and prefix sums over the threads of a block. All threads of the block take part. */
#ifndef TG_EXEC_CUDA_SCAN_H
#define TG_EXEC_CUDA_SCAN_H

#include "exec/cuda/kernel.h"

/* The sum of the values of lower lanes; with `total`, of all lanes. */
template <class T> TG_DEVICE T tg_warp_scan(T value, T *total)
{
    unsigned lane = threadIdx.x % TG_WARP;
    T sum = value;
    for (unsigned by = 1; by < TG_WARP; by *= 2) {
        T lower = __shfl_up_sync(TG_ALL_LANES, sum, by);
        sum += lane >= by ? lower : 0;
    }
    *total = __shfl_sync(TG_ALL_LANES, sum, (int)TG_WARP - 1);
    return sum - value;
}

/* The sum of the values of lanes below `end`, the same for all; with `total`, of all lanes. */
template <class T> TG_DEVICE T tg_warp_sum_below(T value, unsigned end, T *total)
{
    T before = tg_warp_scan(value, total);
    return __shfl_sync(TG_ALL_LANES, before, (int)end);
}

TG_DEVICE uint32_t tg_warp_sum_below(uint32_t value, unsigned end, uint32_t *total)
{
    *total = __reduce_add_sync(TG_ALL_LANES, value);
    return __reduce_add_sync(TG_ALL_LANES, threadIdx.x % TG_WARP < end ? value : 0u);
}

/* The same over a block. May be called again at once: a barrier is at its start. */
template <class T> TG_DEVICE T tg_block_scan(T value, T *total)
{
    __shared__ T sums[TG_WARP];
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP, warps = blockDim.x / TG_WARP;
    T all, before = tg_warp_scan(value, &all);
    __syncthreads(); /* readers of the last call are done */
    if (lane == 0) {
        sums[warp] = all;
    }
    __syncthreads();
    return before + tg_warp_sum_below(lane < warps ? sums[lane] : (T)0, warp, total);
}

/* Two at once. */
template <class A, class B> TG_DEVICE void tg_block_scan(A *first, A *first_total, B *second, B *second_total)
{
    __shared__ A firsts[TG_WARP];
    __shared__ B seconds[TG_WARP];
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP, warps = blockDim.x / TG_WARP;
    A all_first;
    B all_second;
    *first = tg_warp_scan(*first, &all_first);
    *second = tg_warp_scan(*second, &all_second);
    __syncthreads();
    if (lane == 0) {
        firsts[warp] = all_first;
        seconds[warp] = all_second;
    }
    __syncthreads();
    *first += tg_warp_sum_below(lane < warps ? firsts[lane] : (A)0, warp, first_total);
    *second += tg_warp_sum_below(lane < warps ? seconds[lane] : (B)0, warp, second_total);
}

template <class T> TG_DEVICE T tg_block_sum(T value)
{
    T total;
    (void)tg_block_scan(value, &total);
    return total;
}

/* The largest value of all threads before this one; 0: there are none. */
TG_DEVICE uint32_t tg_block_max_scan(uint32_t value)
{
    __shared__ uint32_t largest[TG_WARP];
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP;
    for (unsigned by = 1; by < TG_WARP; by *= 2) {
        uint32_t lower = __shfl_up_sync(TG_ALL_LANES, value, by);
        value = lane >= by && lower > value ? lower : value;
    }
    __syncthreads();
    if (lane == TG_WARP - 1) {
        largest[warp] = value;
    }
    __syncthreads();
    uint32_t earlier = __reduce_max_sync(TG_ALL_LANES, lane < warp ? largest[lane] : 0);
    uint32_t lower = __shfl_up_sync(TG_ALL_LANES, value, 1);
    return lane > 0 && lower > earlier ? lower : earlier;
}

TG_DEVICE uint32_t tg_block_max(uint32_t value)
{
    __shared__ uint32_t largest[TG_WARP];
    unsigned lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP, warps = blockDim.x / TG_WARP;
    value = __reduce_max_sync(TG_ALL_LANES, value);
    __syncthreads();
    if (lane == 0) {
        largest[warp] = value;
    }
    __syncthreads();
    return __reduce_max_sync(TG_ALL_LANES, lane < warps ? largest[lane] : 0);
}

#endif
