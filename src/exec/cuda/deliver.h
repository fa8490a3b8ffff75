/* Averages, and where they go: to tensors in their dtypes. */
#ifndef TG_EXEC_CUDA_DELIVER_H
#define TG_EXEC_CUDA_DELIVER_H

#include "exec/cuda/load.h"
#include "exec/cuda/values.h"

TG_DEVICE float tg_average_of(float sum, float divisor)
{
    return tg_with_nan(sum / divisor, sum, sum);
}

TG_DEVICE bool tg_is_aligned(const void *at)
{
    return (uintptr_t)at % sizeof(float4) == 0;
}

/* Where the average of a tensor goes. */
TG_DEVICE void *tg_average_tensor(const tg_gpu_pass &p, void *const *averages, uint32_t tensor)
{
    return averages != nullptr ? averages[tensor] : (void *)(uintptr_t)p.few[tensor];
}

/* Where the average of one element is in its tensor. */
typedef struct tg_spot {
    void *to;
    uint64_t place;
    uint32_t dtype;
} tg_spot;

/* Element `at` of a unit; `near` is a piece that it may be in. */
TG_DEVICE tg_spot tg_spot_of(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *near,
                             void *const *averages, uint64_t at)
{
    const tg_gpu_piece *piece = at < near->at + near->n ? near : tg_piece_at(p, u, at);
    return {tg_average_tensor(p, averages, piece->tensor), at - piece->at, piece->dtype};
}

TG_DEVICE void tg_store_average(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_piece *near,
                                void *const *averages, uint64_t at, float average)
{
    tg_spot s = tg_spot_of(p, u, near, averages, at);
    if (s.dtype == 0) {
        ((float *)s.to)[s.place] = average;
    } else {
        ((uint16_t *)s.to)[s.place] = s.dtype == 1 ? tg_float_to_fp16(average) : tg_float_to_bf16(average);
    }
}

#endif
