/* Adds the values of a body's dense chunks to sums, or sets them: here plain values; symbols in add_symbols.cu.
 *
 * A block takes one tile. A thread takes four elements at a time, four times, and loads its sums before it is known whether they may be
 * added. NaNs are as CPUs give them (values.h); since one that is among four shows in their results, it is looked for there alone. Words
 * of lossless coding may be in parts, which are joined here: the lower bytes in the body, the upper ones where the coder has put them. */
#include "exec/cuda/add.h"
#include "exec/cuda/pack.h"
#include "exec/cuda/plain_fours.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

enum { THREADS = TG_FOURS_THREADS, FOUR = TG_FOUR, FOURS = TG_FOURS };

/* Sums of n elements, as far as they are whole fours. */
TG_DEVICE void load_sums(float4 sum[FOURS], const float *out, uint32_t n, bool sets)
{
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        bool has = out != nullptr && !sets && tg_four_at(b) + FOUR <= n;
        sum[b] = has ? __ldcs((const float4 *)(const void *)(out + tg_four_at(b))) : make_float4(0, 0, 0, 0);
    }
}

/* Where values of a tile are: in plain form, or their parts. */
typedef struct plain_source {
    const uint8_t *bytes;  /* NULL: there are none, and the body is refused */
    const uint8_t *uppers; /* NULL: the plain form */
} plain_source;

TG_DEVICE float value_of(const tg_gpu_unit &u, const plain_source &from, uint32_t i)
{
    return from.uppers == nullptr ? tg_plain_value(u, from.bytes, i) : tg_split_value(u, from.bytes, from.uppers, i);
}

/* As it is, to `out`: of values, sums or weights that are NaN. */
TG_DEVICE void add_slowly(float *out, const tg_gpu_unit &u, const plain_source &from, uint32_t first, float weight,
                          bool sets)
{
    TG_ROLL
    for (uint32_t i = first; i < first + FOUR; i++) {
        float value = value_of(u, from, i);
        out[i] = sets ? value : tg_plus(out[i], tg_times(weight, value));
    }
}

/* Whole fours of n values. All loads of a thread are under way before the first is used, and before it is known whether they may be
 * added. */
template <unsigned WORDS, bool IS_SPLIT>
TG_DEVICE void add_fours(float *out, const tg_gpu_pass &p, const tg_gpu_unit &u, const plain_source &from, uint32_t n,
                         float weight, bool sets)
{
    bool is_bf16 = u.quantize == TG_GPU_BF16;
    uint32_t words[FOURS][WORDS];
    float4 sum[FOURS];
    load_sums(sum, out, n, sets);
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        if (tg_four_at(b) + FOUR <= n) {
            if (IS_SPLIT) {
                tg_load_parts<WORDS>(words[b], from.bytes + tg_four_at(b) * (WORDS - 1), from.uppers + tg_four_at(b));
            } else {
                tg_load_plain<WORDS>(words[b], from.bytes + tg_four_at(b) * WORDS);
            }
        }
    }
    if (!tg_may_add(p)) {
        return;
    }
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        if (tg_four_at(b) + FOUR <= n) {
            if (IS_SPLIT) {
                tg_join_parts<WORDS>(words[b]);
            }
            float4 v = tg_plain_four<WORDS>(words[b], is_bf16), s = sum[b];
            if (!sets) {
                v = make_float4(s.x + weight * v.x, s.y + weight * v.y, s.z + weight * v.z, s.w + weight * v.w);
            }
            if (tg_has_nan(v)) {
                add_slowly(out, u, from, tg_four_at(b), weight, sets);
            } else {
                __stcs((float4 *)(void *)(out + tg_four_at(b)), v);
            }
        }
    }
}

/* Where values of lossless coding begin, of a chunk that has been decoded. What is too short for them is refused. */
TG_DEVICE plain_source split_source(const tg_gpu_pass &p, uint32_t chunk, const tg_gpu_unit &u, const uint8_t *body)
{
    const tg_view &v = p.space.views[chunk];
    const uint32_t count = v.count, plain_len = 1 + count * u.plain_len;
    const uint64_t len = v.indices - v.symbols;
    const uint8_t *bytes = body + v.symbols, *uppers = tg_pack_scratch_of(p, p.space.scratch, chunk).uppers;
    if (len < 1 + (uint64_t)count * (u.plain_len - 1) || len > plain_len || count == 0) {
        return plain_source{nullptr, nullptr};
    }
    bool is_plain = len == plain_len && bytes[0] == 0; /* a coded one is shorter, but for those of other writers */
    return plain_source{bytes + 1, is_plain ? nullptr : uppers};
}

/* Where the values of a tile are. */
template <bool SPLITS>
TG_DEVICE plain_source source_of(const tg_gpu_pass &p, const tg_gpu_tile &tile, const tg_gpu_unit &u,
                                 const uint8_t *body, uint64_t element_at, uint64_t values_at)
{
    const uint32_t plain_len = u.plain_len;
    const bool is_coded = u.coded != 0;
    if (SPLITS && is_coded) {
        plain_source from = split_source(p, tile.chunk, u, body);
        if (from.uppers != nullptr) {
            return plain_source{from.bytes + (uint64_t)tile.from * (plain_len - 1), from.uppers + tile.from};
        }
        return plain_source{from.bytes == nullptr ? nullptr : from.bytes + (uint64_t)tile.from * plain_len, nullptr};
    }
    return plain_source{
        (is_coded ? p.space.words + 4 * element_at : body + values_at) + (uint64_t)tile.from * plain_len, nullptr};
}

template <bool SPLITS>
__global__ static void __launch_bounds__(THREADS, 4)
    add_plain(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    tg_next_may_begin();
    /* The end of a frame was read last, and may still be in the cache. What depends on the tile is loaded before anything is decided. */
    const tg_gpu_tile tile = p.tiles[gridDim.x - 1 - blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t plain_len = u.plain_len;
    const uint64_t element_at = p.chunks[tile.chunk].element_at, values_at = p.space.views[tile.chunk].symbols;
    TG_LOADED(element_at);
    TG_LOADED(values_at);
    const bool sends = tg_unit_sends(u, false);
    float *out = tg_sum_of_fours(p, u, tile);
    plain_source from = {nullptr, nullptr};
    if (plain_len != 0 && sends) {
        from = source_of<SPLITS>(p, tile, u, body, element_at, values_at);
    }
    if (from.bytes == nullptr) {
        tg_after_previous();
        return;
    }
    if (SPLITS && out != nullptr && from.uppers != nullptr) {
        if (plain_len == 2) {
            add_fours<2, true>(out, p, u, from, tile.n, weight, sets);
        } else {
            add_fours<4, true>(out, p, u, from, tile.n, weight, sets);
        }
    } else if (out != nullptr && plain_len == 2) {
        add_fours<2, false>(out, p, u, from, tile.n, weight, sets);
    } else if (out != nullptr) {
        add_fours<4, false>(out, p, u, from, tile.n, weight, sets);
    }
    uint32_t rest = out != nullptr ? tile.n / FOUR * FOUR : 0;
    if (rest == tile.n || !tg_may_add(p)) {
        return;
    }
    for (uint32_t i = rest + threadIdx.x; i < tile.n; i += THREADS) {
        float value = value_of(u, from, i), *to = tg_sum_at(p, u, tile.at + i);
        *to = sets ? value : tg_plus(*to, tg_times(weight, value));
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

extern "C" void tg_gpu_add_dense(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets)
{
    if (p->tile_n == 0) {
        return;
    }
    /* The kernel before has judged the body. Neither it nor the one before that writes to sums, and that one has begun after all before it
     * had ended; so sums, and where things are in the body, may be read early; but only by the kernel that follows it. */
    bool is_early = p->overlaps && p->sound != nullptr;
    if (tg_pass_has(p, TG_KIND_NONE)) {
        auto add = p->splits ? add_plain<true> : add_plain<false>;
        TG_LAUNCH_EARLY(add, is_early, p->tile_n, THREADS, p->stream, *p, body, weight, sets != 0);
        is_early = false;
    }
    tg_launch_add_symbols(p, &is_early, body, weight, sets != 0);
    tg_launch_add_blocks(p, body, weight, sets != 0, false);
}
