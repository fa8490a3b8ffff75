/* Natural compression on the GPU; see quantize/natural.c and tg_scalar_natural. */
#include "exec/cuda/quantize_buckets.h"

struct natural {
    static constexpr unsigned KIND = TG_KIND_NATURAL;
    static constexpr bool DRAWS = true, CHECKS = false, IS_WIDE = true;
    static constexpr unsigned BLOCKS = 16;
    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }
    template <class Team> __device__ __forceinline__ void fit(Team &, const tg_gpu_unit &)
    {
    }
    __device__ __forceinline__ void write(uint8_t *) const
    {
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }
    static __device__ __forceinline__ tg_guess guess(float value)
    {
        uint32_t bits = __float_as_uint(value), exponent = bits >> 23;
        return {TG_PLACE + 1 + ((bits & 0x7fffffu) >> 7), exponent, exponent + ((exponent & 255u) < 254 ? 1 : 0)};
    }
    static __device__ __forceinline__ bool settle(float value, uint32_t bits)
    {
        return bits >> 9 < (__float_as_uint(value) & 0x7fffffu);
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return __uint_as_float(symbol << 23);
    }
};

void tg_launch_natural(const tg_gpu_pass *p, bool is_sparse)
{
    if (is_sparse || p->leaves == nullptr || (p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        tg_quantize_launch<natural>(p, is_sparse);
    }
}

/* ---- leaves of the frame -------------------------------------------------------------------------------------------------- */

enum {
    SYMBOL_BITS = 9,
    WARPS = 4,
    SYMBOLS = TG_LEAF_BYTES * 8 / SYMBOL_BITS + 2 /* of a leaf, with those that others have a part of */
};

/* A block a leaf: values to symbols in shared memory, these to bytes there. Values share nothing, so any of them are a bucket. */
__global__ static void __launch_bounds__(WARPS *TG_WARP, 8)
    natural_leaves(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaf[TG_LEAF_VECTORS], draws[WARPS][TG_DRAW_BLOCKS], symbols[SYMBOLS / 8 + 3];
    __shared__ tg_team_space space;
    __shared__ tg_gpu_bucket b;
    const tg_gpu_leaf at = p.leaves[blockIdx.x];
    tg_after_previous();
    tg_next_may_begin();
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (tg_quantize_kind(u) != TG_KIND_NATURAL || !tg_unit_makes_leaves(u)) {
        return;
    }
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    uint32_t first = from * 8 / SYMBOL_BITS, end = min(chunk.n, ((from + len) * 8 + SYMBOL_BITS - 1) / SYMBOL_BITS);
    for (uint32_t i = threadIdx.x; i < sizeof symbols / sizeof *symbols; i += WARPS * TG_WARP) {
        symbols[i] = make_uint4(0, 0, 0, 0); /* after the last one */
    }
    if (threadIdx.x == 0) {
        b = tg_bucket_of(p, at.chunk, first, end - first, chunk.n);
        b.symbols = (uint8_t *)(void *)symbols;
    }
    __syncthreads();
    float values[TG_LANE_N];
    tg_team<WARPS, true> team(p, b, space, values);
    if (team.warp < team.leaves()) {
        (void)tg_load_leaf(values, p, b, team.warp);
    }
    uint64_t key = tg_stream_key(p.seed, tg_step_of(p), chunk.unit, p.rank + 1);
    tg_quantize_bucket<natural>(team, draws[team.warp], key);
    __syncthreads();
    const tg_gpu_digits d = {nullptr, 0, 512, 1, SYMBOL_BITS, 2};
    uint32_t skipped = from * 8 - first * SYMBOL_BITS;
    for (uint32_t i = threadIdx.x; i * 8 < len; i += WARPS * TG_WARP) {
        uint64_t word = tg_word_of(d, b.symbols, skipped + 64 * i);
        ((uint2 *)(void *)leaf)[i] = make_uint2((uint32_t)word, (uint32_t)(word >> 32));
    }
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        tg_leaf_end(hashes + (uint64_t)(at.chunk - p.first) * leaf_cap + at.number, p.space.out[at.chunk] + from, leaf, len);
    }
}

void tg_launch_natural_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_NATURAL)) {
        TG_LAUNCH_EARLY(natural_leaves, p->overlaps, p->leaf_n, WARPS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
}
