/* The grid: where a model is cut.
 *
 *     unit    what one selection spans                 layout.h
 *     slice   one of S equal parts of every unit       what one rank owns in an exchange by owners
 *     chunk   262,144 elements of a unit's slice       encoded independently, so chunks are the work that threads share
 */
#ifndef TG_PLAN_GRID_H
#define TG_PLAN_GRID_H

#include "plan/layout.h"

#define TG_CHUNK TG_PACK_MAX

typedef struct tg_chunk {
    uint32_t unit;
    uint32_t n;
    uint64_t at; /* of its first element in the unit */
} tg_chunk;

/* All chunks of all slices: those of slice s are chunks[first[s]] to chunks[first[s + 1] - 1]. */
typedef struct tg_grid {
    tg_chunk *chunks;
    size_t *first;
    uint32_t slices;
} tg_grid;

tg_status tg_grid_new(tg_grid **out, const tg_layout *layout, uint32_t slices, const tg_allocator *a,
                      tg_detail *why) TG_CHECKED;
void tg_grid_free(tg_grid *grid, const tg_allocator *a);

/* Start of slice s of S of n elements. */
uint64_t tg_slice_start(uint64_t n, uint32_t s, uint32_t slices);

#endif
