/* The grid: where a model is cut.
 *
 *     unit    what one selection spans                 layout.h
 *     group   units that are encoded and sent together, while others are not ready yet
 *     slice   one of S equal parts of every unit       what one rank owns in an exchange by owners
 *     cell    a slice of a group                       what one frame holds
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

/* All chunks of all cells: those of cell c are chunks[first[c]] to chunks[first[c + 1] - 1]. Cell g * slices + s is slice s of
 * group g. */
typedef struct tg_grid {
    tg_chunk *chunks;
    size_t *first;
    uint32_t slices, groups;
    uint32_t cells;     /* slices * groups */
    uint32_t *group_of; /* of each unit */
    uint32_t
        *units; /* in the order of groups: those of group g are units[unit_first[g]] to units[unit_first[g + 1] - 1] */
    size_t *unit_first;
} tg_grid;

/* Groups of units: the group of each, and their number. */
typedef struct tg_groups {
    const uint32_t *of; /* NULL: one group */
    uint32_t n;
} tg_groups;

tg_status tg_grid_new(tg_grid **out, const tg_layout *layout, uint32_t slices, const tg_groups *groups,
                      const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_grid_free(tg_grid *grid, const tg_allocator *a);

/* Start of slice s of S of n elements. */
uint64_t tg_slice_start(uint64_t n, uint32_t s, uint32_t slices);

#endif
