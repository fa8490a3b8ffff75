/* Lengths of the parts of a chunk, and where they are in it. */
#ifndef TG_EXEC_CUDA_LAYOUT_H
#define TG_EXEC_CUDA_LAYOUT_H

#include "exec/cuda/kernel.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/tables.h"

TG_DEVICE uint64_t tg_gpu_side_len(const tg_gpu_unit &u, uint32_t count)
{
    if (u.plain_len != 0 || count == 0) {
        return 0;
    }
    return u.head_len + (u.bucket_n == 0 ? u.side_len : (uint64_t)((count + u.bucket_n - 1) / u.bucket_n) * u.side_len);
}

/* Whether the kernels of indices write and read the signs of a unit, too, joined with places or as bits; those of symbols do not. */
TG_DEVICE bool tg_unit_lists_signs(const tg_gpu_unit &u)
{
    return u.coordinates == TG_GPU_AT_INDICES && u.quantize == TG_GPU_SIGN && u.plain_len == 0 && !u.coded &&
           u.route != TG_GPU_ROUTE_LEADER;
}

/* Bytes of values that are not coded. */
TG_DEVICE uint64_t tg_gpu_plain_len(const tg_gpu_unit &u, uint32_t count)
{
    return u.plain_len != 0 ? (uint64_t)count * u.plain_len
                            : ((uint64_t)((count + u.group_n - 1) / u.group_n) * u.group_bits + 7) / 8;
}

/* The parts of a chunk of `count` values, from its start. Where values are coded, their end is set by the coder. */
TG_DEVICE tg_view tg_gpu_lay_out(const tg_gpu_unit &u, uint32_t count)
{
    tg_view v = {};
    v.count = count;
    v.symbols = tg_gpu_side_len(u, count);
    v.indices = v.symbols + (count > 0 && !u.coded ? tg_gpu_plain_len(u, count) : 0);
    return v;
}

#endif
