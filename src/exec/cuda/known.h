/* Words of 32 marks of a patch: its own, or bits of its unit where coordinates are drawn or the leader's. */
#ifndef TG_EXEC_CUDA_KNOWN_H
#define TG_EXEC_CUDA_KNOWN_H

#include "exec/cuda/kernel.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/select.h"

/* Bits [from, from + 32) of a mask of n bits, those past the end as they come. */
TG_DEVICE uint32_t tg_bits_from(const uint32_t *mask, uint64_t from, uint64_t n)
{
    unsigned shift = (unsigned)(from % 32);
    uint32_t low = mask[from / 32] >> shift;
    return shift == 0 || from / 32 + 1 >= (n + 31) / 32 ? low : low | mask[from / 32 + 1] << (32 - shift);
}

/* Bits of [from, to) among those from `at` on. */
TG_DEVICE uint32_t tg_range_bits(uint64_t at, uint64_t from, uint64_t to)
{
    from = from > at ? from - at : 0;
    to = to > at ? to - at : 0;
    uint32_t below_to = to >= 32 ? 0xffffffffu : (1u << to) - 1;
    return from >= 32 ? 0 : below_to & ~((1u << from) - 1);
}

/* Marks of elements `at` to at + 31 of a unit, of which `n` are of interest. */
TG_DEVICE uint32_t tg_known_word(const tg_gpu_selection &s, const tg_gpu_unit &u, uint32_t unit, uint64_t at,
                                 uint32_t n)
{
    const tg_gpu_selected &selected = s.units[unit];
    uint32_t word;
    if (u.select == TG_GPU_SELECT_RANDOMBLOCK) {
        const tg_gpu_drawing &d = s.drawings[unit];
        word = tg_range_bits(at, d.from[0], d.to[0]) | tg_range_bits(at, d.from[1], d.to[1]);
    } else {
        word = tg_bits_from(s.bits + selected.bit_at, at, selected.n);
        word = u.select == TG_GPU_SELECT_RANDOMK && s.drawings[unit].is_inverse ? ~word : word;
    }
    return n < 32 ? word & ((1u << n) - 1) : word;
}

/* Word number w of the marks of a patch. */
TG_DEVICE uint32_t tg_patch_word(const tg_gpu_selection &s, const tg_gpu_unit &u, uint32_t unit,
                                 const tg_gpu_patch &patch, uint64_t chunk_at, uint32_t w)
{
    if (u.route == TG_GPU_ROUTE_DRAWN) {
        return tg_known_word(s, u, unit, chunk_at + patch.at + w * 32, patch.n - w * 32);
    }
    return s.masks[patch.word_at + w];
}

#endif
