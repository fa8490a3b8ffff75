/* Which kernel quantizes a unit, and the launches of the files that have them. Each launch covers the chunks of a pass that are
 * its concern; with `is_sparse` those whose selected values are in space.values, else dense ones. */
#ifndef TG_EXEC_CUDA_QUANTIZE_H
#define TG_EXEC_CUDA_QUANTIZE_H

#include "exec/cuda/kernel.h"
#include "exec/cuda/kernels.h"

enum {
    TG_KIND_NONE, /* values are no symbols */
    TG_KIND_TERNARY,
    TG_KIND_QSGD,
    TG_KIND_NATURAL,
    TG_KIND_TWO_MEANS,
    TG_KIND_TWO_SIDED,
    TG_KIND_LINEAR,
    TG_KIND_GREEDY,
    TG_KIND_EXACT,
    TG_KIND_MINIFLOAT,
    TG_KIND_SIGN,
    TG_KIND_BLOCKS
};
#define TG_KIND_LONG 16u /* added if buckets are longer than this: */
#define TG_SHORT_BUCKET 2048u

__host__ __device__ static __forceinline__ unsigned tg_quantize_kind(const tg_gpu_unit &u)
{
    const double *params = u.quantize_params;
    unsigned is_long = u.bucket_n > TG_SHORT_BUCKET ? TG_KIND_LONG : 0u;
    switch (u.plain_len == 0 ? u.quantize : 0) {
    case TG_GPU_SIGN: return TG_KIND_SIGN;
    case TG_GPU_BINGRAD: return (params[0] == 1 ? TG_KIND_TWO_SIDED : TG_KIND_TWO_MEANS) + is_long;
    case TG_GPU_ORQ: return (params[2] == 0 ? TG_KIND_GREEDY : TG_KIND_EXACT) + is_long;
    case TG_GPU_LINEAR: return TG_KIND_LINEAR + is_long;
    case TG_GPU_QSGD: return TG_KIND_QSGD + is_long;
    case TG_GPU_TERNARY: return TG_KIND_TERNARY + is_long;
    case TG_GPU_NATURAL: return TG_KIND_NATURAL; /* its values share nothing, so that any length does */
    case TG_GPU_FP8:
    case TG_GPU_FP4: return TG_KIND_MINIFLOAT;
    case TG_GPU_MXFP8:
    case TG_GPU_MXFP4:
    case TG_GPU_NVFP4: return TG_KIND_BLOCKS;
    default: return TG_KIND_NONE;
    }
}

/* Whether a quantizer writes leaves of the frame itself, of a pass over chunks of fixed length: whole bytes, or signs. */
__host__ __device__ static __forceinline__ bool tg_unit_signs_leaves(const tg_gpu_unit &u)
{
    return tg_quantize_kind(u) == TG_KIND_SIGN;
}

__host__ __device__ static __forceinline__ bool tg_unit_rounds_leaves(const tg_gpu_unit &u)
{
    return tg_unit_signs_leaves(u) || (u.group_bits == 8 && u.group_n == 1 && tg_quantize_kind(u) == TG_KIND_MINIFLOAT);
}

__device__ static __forceinline__ bool tg_rounds_leaves(const tg_gpu_pass &p, const tg_gpu_unit &u)
{
    return p.leaves != nullptr && tg_unit_rounds_leaves(u);
}

/* Blocks for each sparse chunk, whose length is not known: fewer if there are many chunks. */
static inline uint32_t tg_blocks_each(uint32_t chunk_n)
{
    const uint32_t TARGET = 16384, MOST = 16;
    uint32_t each = chunk_n == 0 ? 1 : TARGET / chunk_n;
    return each < 1 ? 1 : each < MOST ? each : MOST;
}

/* Whether the units of a pass may have a kind. */
static inline bool tg_pass_has(const tg_gpu_pass *p, unsigned kind)
{
    return p->kinds == 0 || (p->kinds >> kind & 1) != 0;
}

void tg_launch_ternary(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_qsgd(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_natural(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_two_means(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_two_sided(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_linear(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_greedy(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_exact(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_minifloat(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_sign(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_blocks(const tg_gpu_pass *p, bool is_sparse);

/* round.cu: tg_launch_minifloat of dense chunks, but for those whose symbols are leaves of the frame; those. */
void tg_launch_round_tiles(const tg_gpu_pass *p);
void tg_launch_round_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);

/* signs.cu: tg_launch_sign of dense chunks of fixed length, and what is left of them when scales are known. */
void tg_launch_take_signs(const tg_gpu_pass *p);
void tg_launch_use_signs(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);

/* add_blocks.cu: tg_gpu_add_dense and tg_gpu_add_sparse of units with a scale for every few values. */
void tg_launch_add_blocks(const tg_gpu_pass *p, const uint8_t *body, float weight, bool sets, bool is_sparse);

#endif
