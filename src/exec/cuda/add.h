/* Where a tile's sums can be added to four at a time. */
#ifndef TG_CUDA_ADD_H
#define TG_CUDA_ADD_H

#include "exec/cuda/kernels.h"
#include "exec/cuda/values.h"

/* Where a tile is added if that can be done four at a time; else NULL. */
TG_DEVICE float *tg_sum_of_fours(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile)
{
    const tg_gpu_piece &piece = p.pieces[tile.piece];
    float *out = !tg_adds_to_tensors(p) ? p.space.sums + u.flat_at + (tile.at - u.lo)
                                        : tg_added_of(p, piece.tensor) + (tile.at - piece.at);
    bool suits = (!tg_adds_to_tensors(p) || tile.is_whole) && (uintptr_t)out % 16 == 0;
    return suits ? out : nullptr;
}

/* add_symbols.cu: all symbols, by one kernel for each way in which they are packed. The first one may begin early; then *is_early becomes
 * false. */
void tg_launch_add_symbols(const tg_gpu_pass *p, bool *is_early, const uint8_t *body, float weight, bool sets);

#endif
