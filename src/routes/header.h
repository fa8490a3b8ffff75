/* The header of a chunk: what a reader cannot know without it. Headers of all chunks stand at the start of a body, so that chunks
 * are found without reading them. */
#ifndef TG_ROUTES_HEADER_H
#define TG_ROUTES_HEADER_H

#include "plan/plan.h"
#include "routes/view.h"

/* Writes unit->header_len bytes. */
void tg_header_put(uint8_t *out, const tg_unit_plan *unit, const tg_view *view);

/* Reads the header of a chunk that begins at `start`, into a view of it. known_n values are in the chunk, if its coordinates are
 * known without the frame. False if no chunk has such a header. */
bool tg_header_get(tg_view *view, const uint8_t *header, const tg_plan *plan, const tg_chunk *chunk, uint32_t known_n,
                   uint64_t start);

#endif
