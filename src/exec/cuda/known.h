/* Coordinates that are known without a frame: drawn from the seed (docs/format.md section 5), or the leader's. Those of randomblock
 * are one or two ranges, which any thread can compute; others are bits of their unit. */
#ifndef TG_EXEC_CUDA_KNOWN_H
#define TG_EXEC_CUDA_KNOWN_H

#include "exec/cuda/philox.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/select.h"

enum { TG_SELECT_RATIO_PARAM = 2 };

/* ---- draws ------------------------------------------------------------------------------------------------------------------ */

/* Draw number i below a limit. */
TG_DEVICE uint64_t tg_draw_coordinate(uint64_t key, uint64_t i, uint64_t limit)
{
    uint64_t j = i / 2;
    uint4 o = tg_philox(key, (uint32_t)j, (uint32_t)(j >> 32), 0, 0);
    return __umul64hi(i % 2 == 0 ? o.x | (uint64_t)o.y << 32 : o.z | (uint64_t)o.w << 32, limit);
}

/* As tg_ratio_entries (select.c). */
TG_DEVICE uint64_t tg_entries_of(double ratio, uint64_t n)
{
    double entries = floor(ratio * (double)n + 0.5);
    return n == 0 ? 0 : entries < 1.0 ? 1 : entries >= (double)n ? n : (uint64_t)entries;
}

/* The stream that the coordinates of a unit are drawn from at a step; at that of a pass. */
TG_DEVICE uint64_t tg_coordinate_key_at(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t step)
{
    return tg_stream_key(p.seed, step, unit, u.coordinates == TG_GPU_AT_DRAWN ? 0 : p.rank + 1);
}

TG_DEVICE uint64_t tg_coordinate_key(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit)
{
    return tg_coordinate_key_at(p, u, unit, p.step);
}

/* ---- randomblock ------------------------------------------------------------------------------------------------------------ */

/* Coordinates [from, to) of a unit and those below `wrapped`. */
typedef struct tg_gpu_block {
    uint64_t from, to, wrapped;
} tg_gpu_block;

TG_DEVICE tg_gpu_block tg_block_at(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t n, uint64_t step)
{
    uint64_t entries = tg_entries_of(u.select_params[TG_SELECT_RATIO_PARAM], n);
    uint64_t from = tg_draw_coordinate(tg_coordinate_key_at(p, u, unit, step), 0, n), left = n - from;
    return {from, left < entries ? n : from + entries, left < entries ? entries - left : 0};
}

TG_DEVICE tg_gpu_block tg_block_of(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t unit, uint64_t n)
{
    return tg_block_at(p, u, unit, n, p.step);
}

/* Coordinates of a block below `at`. */
TG_DEVICE uint64_t tg_block_before(const tg_gpu_block &b, uint64_t at)
{
    uint64_t low = at < b.wrapped ? at : b.wrapped, high = at < b.from ? b.from : at < b.to ? at : b.to;
    return low + (high - b.from);
}

/* Whether the coordinates of a unit are those of a block. */
TG_DEVICE bool tg_is_block(const tg_gpu_unit &u)
{
    return u.route == TG_GPU_ROUTE_DRAWN && u.select == TG_GPU_SELECT_RANDOMBLOCK;
}

/* Coordinates of a block in a chunk. */
TG_DEVICE uint32_t tg_block_within(const tg_gpu_block &b, const tg_gpu_chunk &chunk)
{
    return (uint32_t)(tg_block_before(b, chunk.at + chunk.n) - tg_block_before(b, chunk.at));
}

/* Coordinates of a block in a chunk, from its start: those below `low`, then those from `high` on. */
TG_DEVICE tg_gpu_ranges tg_block_ranges(const tg_gpu_block &b, const tg_gpu_chunk &chunk)
{
    uint64_t low = chunk.at < b.wrapped ? b.wrapped - chunk.at : 0, high = b.from > chunk.at ? b.from - chunk.at : 0;
    return {(uint32_t)min(low, (uint64_t)chunk.n), (uint32_t)min(high, (uint64_t)chunk.n)};
}

/* Coordinate number `i` of them. */
TG_DEVICE uint32_t tg_block_position(const tg_gpu_ranges &r, uint32_t i)
{
    return i < r.low ? i : r.high + (i - r.low);
}

/* Bits of [from, to) among those from `at` on. */
TG_DEVICE uint32_t tg_range_bits(uint64_t at, uint64_t from, uint64_t to)
{
    from = from > at ? from - at : 0;
    to = to > at ? to - at : 0;
    uint32_t below_to = to >= 32 ? 0xffffffffu : (1u << to) - 1;
    return from >= 32 ? 0 : below_to & ~((1u << from) - 1);
}

/* ---- marks ------------------------------------------------------------------------------------------------------------------- */

/* Bits [from, from + 32) of a mask of n bits, those past the end as they come. */
TG_DEVICE uint32_t tg_bits_from(const uint32_t *mask, uint64_t from, uint64_t n)
{
    unsigned shift = (unsigned)(from % 32);
    uint32_t low = mask[from / 32] >> shift;
    return shift == 0 || from / 32 + 1 >= (n + 31) / 32 ? low : low | mask[from / 32 + 1] << (32 - shift);
}

/* The known coordinates of a unit, for threads that ask for many. */
typedef struct tg_known {
    tg_gpu_block block;
    const uint32_t *bits; /* NULL: they are the block's */
    uint64_t n;
    uint32_t flip;
} tg_known;

TG_DEVICE tg_known tg_known_of(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_gpu_unit &u, uint32_t unit)
{
    const tg_gpu_selected &selected = s.units[unit];
    tg_known k = {{0, 0, 0}, nullptr, selected.n, 0};
    if (u.select == TG_GPU_SELECT_RANDOMBLOCK) {
        k.block = tg_block_of(p, u, unit, selected.n);
    } else {
        k.bits = s.bits + selected.bit_at;
        k.flip = u.select == TG_GPU_SELECT_RANDOMK && s.drawings[unit].is_inverse ? 0xffffffffu : 0;
    }
    return k;
}

/* Marks of elements `at` to at + 31 of a unit, of which `n` are of interest. */
TG_DEVICE uint32_t tg_known_word(const tg_known &k, uint64_t at, uint32_t n)
{
    uint32_t word = k.bits == nullptr
                        ? tg_range_bits(at, k.block.from, k.block.to) | tg_range_bits(at, 0, k.block.wrapped)
                        : tg_bits_from(k.bits, at, k.n) ^ k.flip;
    return n < 32 ? word & ((1u << n) - 1) : word;
}

#endif
