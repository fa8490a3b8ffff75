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
    TG_KIND_BLOCKS,
    TG_KIND_HEAD,  /* beside TG_KIND_BLOCKS: chunks have a number of their own, which comes first */
    TG_KIND_PACKS, /* beside others: the kernel that quantizes a bucket packs its symbols */
    TG_KIND_WARPS, /* beside TG_KIND_PACKS: a warp quantizes a bucket (quantize_warps.h) ... */
    TG_KIND_TEAMS  /* ... or, of some unit that has buckets, a block does (quantize_buckets.h) */
};
/* Further bits of kinds, of units that send all elements as symbols: how they are packed, or lie in memory where they are coded. add_symbols.cu has
 * a kernel for each. */
enum {
    TG_PACKED_BYTES = 28, /* a byte each */
    TG_PACKED_SIGNS,      /* a bit each */
    TG_PACKED_GROUPS,     /* some below a base of at most 256 in one number */
    TG_PACKED_NUMBERS     /* in any other way */
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

/* One of TG_PACKED_BYTES to TG_PACKED_NUMBERS, of a unit that has symbols. */
__host__ __device__ static __forceinline__ unsigned tg_unit_packed(const tg_gpu_unit &u)
{
    if (u.coded ? u.base <= 256 : u.group_n == 1 && u.group_bits == 8) {
        return TG_PACKED_BYTES;
    }
    bool is_group = !u.coded && u.group_n > 1 && u.base <= 256;
    return is_group ? TG_PACKED_GROUPS : !u.coded && u.group_bits == 1 ? TG_PACKED_SIGNS : TG_PACKED_NUMBERS;
}

/* Whether a quantizer writes symbols to the frame itself, of a pass over chunks of fixed length: signs, or whole bytes. */
__host__ __device__ static __forceinline__ bool tg_unit_signs_leaves(const tg_gpu_unit &u)
{
    return tg_quantize_kind(u) == TG_KIND_SIGN;
}

__host__ __device__ static __forceinline__ bool tg_unit_rounds_leaves(const tg_gpu_unit &u)
{
    return tg_unit_signs_leaves(u) || (u.group_bits == 8 && u.group_n == 1 && tg_quantize_kind(u) == TG_KIND_MINIFLOAT);
}

/* Whether the leaves of a unit of signs are summed by the kernel that writes its scale, not chunk by chunk before. */
__device__ static __forceinline__ bool tg_is_summed_late(const tg_gpu_pass &p, const tg_gpu_unit &u)
{
    return p.has_rows != 0 && u.hi - u.lo <= TG_GPU_SUMMED_LATE;
}

/* The same of any quantizer. One of natural compression computes symbols again that two leaves share, so it may not change residuals. */
__host__ __device__ static __forceinline__ bool tg_unit_makes_leaves(const tg_gpu_unit &u)
{
    return tg_unit_rounds_leaves(u) || (tg_quantize_kind(u) == TG_KIND_NATURAL && u.planes == 0);
}

__device__ static __forceinline__ bool tg_makes_leaves(const tg_gpu_pass &p, const tg_gpu_unit &u)
{
    return p.leaves != nullptr && tg_unit_makes_leaves(u);
}

/* Whether the kernel that quantizes short buckets packs their symbols: bytes are those of one bucket, but for a group of one or two bytes
 * that a bucket may share with the next one. */
__host__ __device__ static __forceinline__ bool tg_unit_packs_buckets(const tg_gpu_unit &u)
{
    unsigned kind = tg_quantize_kind(u);
    bool is_kind = kind == TG_KIND_TERNARY || kind == TG_KIND_QSGD || kind == TG_KIND_TWO_MEANS ||
                   kind == TG_KIND_TWO_SIDED || kind == TG_KIND_LINEAR || kind == TG_KIND_GREEDY;
    if (!is_kind || u.base > 256 || u.bucket_n < 8) { /* no group has more than 8 symbols */
        return false;
    }
    bool is_apart = u.bucket_n % u.group_n == 0 && u.bucket_n / u.group_n * u.group_bits % 8 == 0;
    return is_apart || u.group_bits == 8 || u.group_bits == 16;
}

__device__ static __forceinline__ bool tg_packs_buckets(const tg_gpu_pass &p, const tg_gpu_unit &u)
{
    return p.leaves != nullptr && (u.kinds >> TG_KIND_PACKS & 1) != 0;
}

/* Whether a warp quantizes a bucket of such a unit. No residual is kept then. */
__host__ __device__ static __forceinline__ bool tg_unit_has_warps(const tg_gpu_unit &u)
{
    unsigned kind = tg_quantize_kind(u);
    bool is_greedy = kind == TG_KIND_GREEDY && u.base == 3;
    bool is_kind = kind == TG_KIND_TERNARY || kind == TG_KIND_QSGD || is_greedy ||
                   (kind == TG_KIND_TWO_MEANS && u.group_bits == 1);
    return is_kind && u.planes == 0 && tg_unit_packs_buckets(u);
}

__device__ static __forceinline__ bool tg_has_warps(const tg_gpu_pass &p, const tg_gpu_unit &u)
{
    return p.leaves != nullptr && (u.kinds >> TG_KIND_WARPS & 1) != 0;
}

/* Where a bucket of such a unit leaves the numbers of the groups that it shares, as far as its own symbols go: that with the bucket before
 * it, then that with the next one. `first` is the number of its first value in the chunk. */
__device__ static __forceinline__ uint16_t *tg_seams_of(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, uint32_t first)
{
    return (uint16_t *)(void *)p.space.symbols + chunk.element_at + first;
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

/* The same, of units of which a warp or a block quantizes a bucket. */
static inline bool tg_pass_has_warps(const tg_gpu_pass *p, unsigned kind)
{
    return p->leaves != nullptr && tg_pass_has(p, kind) && tg_pass_has(p, TG_KIND_WARPS);
}

static inline bool tg_pass_has_teams(const tg_gpu_pass *p, unsigned kind)
{
    return tg_pass_has(p, kind) && (p->leaves == nullptr || tg_pass_has(p, TG_KIND_TEAMS));
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
void tg_launch_natural_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);
void tg_launch_sign(const tg_gpu_pass *p, bool is_sparse);
void tg_launch_blocks(const tg_gpu_pass *p, bool is_sparse);

/* round.cu: tg_launch_minifloat of dense chunks, but for those whose symbols are leaves of the frame; those. */
void tg_launch_round_tiles(const tg_gpu_pass *p);
void tg_launch_round_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);

/* hold.cu: the same, of a pass with parts. */
void tg_launch_hold_tiles(const tg_gpu_pass *p);
void tg_launch_hold_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);

/* signs.cu: tg_launch_sign of dense chunks of fixed length. */
void tg_launch_take_signs(const tg_gpu_pass *p);

/* add_blocks.cu: tg_gpu_add_dense and tg_gpu_add_sparse of units with a scale for every few values. */
void tg_launch_add_blocks(const tg_gpu_pass *p, const uint8_t *body, float weight, bool sets, bool is_sparse);

#endif
