/* What quantizers with a scale for every few values share: parameters. */
#ifndef TG_QUANTIZE_BLOCKS_H
#define TG_QUANTIZE_BLOCKS_H

#include "base/bytes.h"
#include "kernels/blocks.h"
#include "kernels/kernels.h"
#include "quantize/quantize.h"

enum { TG_ROUND_NEAREST = 0, TG_ROUND_RANDOM = 1 };

extern const char *const tg_round_choices[], *const tg_hadamard_choices[];

#define TG_ROUND_PARAM                                                                                              \
    {                                                                                                               \
        .name = "round", .summary = "to the nearest value, or at random without bias", .choices = tg_round_choices, \
        .standard = TG_ROUND_NEAREST                                                                                \
    }
#define TG_HADAMARD_PARAM                                                                          \
    {                                                                                              \
        .name = "hadamard", .summary = "values that are rotated together before they are rounded", \
        .choices = tg_hadamard_choices, .standard = 0                                              \
    }

#define TG_BLOCK_PARAM(standard_n)                                                                    \
    {                                                                                                 \
        .name = "block", .summary = "values that share a power of two: 32 as OCP says, 64 or 128",    \
        .lowest = TG_MX_BLOCK, .highest = TG_MX_BLOCK_MAX, .is_whole = true, .standard = (standard_n) \
    }

/* Why a length of blocks is refused; NULL: it is not. */
static inline const char *tg_block_refused(double block)
{
    return block == 32 || block == 64 || block == 128 ? NULL : "blocks have 32, 64 or 128 values";
}

/* Values of a rotation, by the index of the choice; 0: there is none. */
static inline uint32_t tg_rotation_of(double choice)
{
    return choice == 0 ? 0 : 16u << (uint32_t)choice;
}

#endif
