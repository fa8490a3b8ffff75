/* The factor that bounds the norm of a unit's gradient (momentum with clip): a block a unit, which sums squares by leaves and then
 * their tree (docs/format.md, "Sums by leaves"). */
#include "exec/cuda/kernels.h"
#include "exec/cuda/load.h"

enum { THREADS = 1024, LEAF = 1024 };

/* The sum of squares of a leaf, by a warp; lane 0 has it. */
TG_DEVICE double sum_leaf(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t at, uint64_t end)
{
    double sum = 0;
    for (uint64_t i = at + threadIdx.x % TG_WARP; i < at + LEAF; i += TG_WARP) {
        if (i < end) {
            double g = tg_load_gradient(p, u, unit, tg_piece_at(p, u, i), i);
            sum += g * g;
        }
    }
    for (unsigned by = TG_WARP / 2; by > 0; by /= 2) {
        sum += __shfl_down_sync(TG_ALL_LANES, sum, by);
    }
    return sum;
}

__global__ static void clip_unit(tg_gpu_pass p, double *leaves, uint32_t unit_first)
{
    uint32_t unit = unit_first + blockIdx.x;
    const tg_gpu_unit &u = p.units[unit];
    double most = u.feedback == TG_GPU_FEEDBACK_MOMENTUM && u.planes > 0 ? u.feedback_params[1] : 0;
    if (most <= 0 || u.hi == u.lo) {
        return;
    }
    if (threadIdx.x == 0) {
        p.space.clips[unit] = 1.0f; /* gradients are loaded as they are */
    }
    __syncthreads();
    double *sums = leaves + u.flat_at / LEAF + unit;
    uint64_t n = (u.hi - u.lo + LEAF - 1) / LEAF;
    for (uint64_t leaf = threadIdx.x / TG_WARP; leaf < n; leaf += THREADS / TG_WARP) {
        double sum = sum_leaf(p, u, unit, u.lo + leaf * LEAF, u.hi);
        if (threadIdx.x % TG_WARP == 0) {
            sums[leaf] = sum;
        }
    }
    for (; n > 1; n = (n + 1) / 2) { /* neighbours, THREADS pairs at a time, so that none is overwritten before it is read */
        __syncthreads();
        for (uint64_t from = 0; from < n / 2 + n % 2; from += THREADS) {
            uint64_t i = from + threadIdx.x;
            double sum = 2 * i + 1 < n ? sums[2 * i] + sums[2 * i + 1] : 2 * i < n ? sums[2 * i] : 0;
            __syncthreads();
            if (2 * i < n) {
                sums[i] = sum;
            }
            __syncthreads();
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double norm = sqrt(sums[0]);
        p.space.clips[unit] = norm > most ? (float)(most / norm) : 1.0f;
    }
}

void tg_gpu_clip(const tg_gpu_pass *p, double *leaves, uint32_t unit_first, uint32_t unit_n)
{
    if (unit_n > 0) {
        TG_LAUNCH(clip_unit, unit_n, THREADS, p->stream, *p, leaves, unit_first);
    }
}
