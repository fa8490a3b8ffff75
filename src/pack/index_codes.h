/* The codes that `gaps` chooses from: Rice codes (rice.c), runs (runs.c) and, in recipes with `rans`, geometric.h. */
#ifndef TG_PACK_INDEX_CODES_H
#define TG_PACK_INDEX_CODES_H

#include "kernels/kernels.h"
#include "pack/pack.h"

/* The selected elements of a chunk: `count` of n. `list` has their indices, ascending; NULL if nobody has listed them. */
typedef struct tg_marks {
    const uint64_t *mask;
    const uint32_t *list;
    size_t n, count;
} tg_marks;

/* Elements that are listed at a time when there is no list. */
enum { TG_MARKS_PIECE = 4096 };

/* gaps.c: elements that one call of tg_marks_piece covers, the whole chunk if there is a list. */
size_t tg_marks_piece_n(const tg_marks *m);

/* gaps.c: the indices in the piece that begins at element `at`, and their number. `scratch` has TG_MARKS_PIECE + TG_LIST_MORE
 * elements. */
const uint32_t *tg_marks_piece(size_t *count, uint32_t *scratch, const tg_marks *m, size_t at);

/* rice.c: each gap in a Rice code with parameter k. Writing takes `len` bytes, which the caller has counted. A reader returns false if the bytes are not `count` indices below n
 * with nothing left over; tg_rice_read sets bits in a mask that is clear. */
size_t tg_rice_write(uint8_t *out, size_t len, const tg_marks *m, unsigned k);
bool tg_rice_read(uint64_t *mask, unsigned k, const uint8_t *bytes, size_t len, size_t n, size_t count);
bool tg_rice_list(uint32_t *indices, unsigned k, const uint8_t *bytes, size_t len, size_t n, size_t count);

/* runs.c: runs of consecutive indices, each as the gap before it and its length. Reading as above. */
uint64_t tg_runs_len(const tg_marks *m);
size_t tg_runs_write(uint8_t *out, const uint64_t *mask, size_t n);
bool tg_runs_read(uint64_t *mask, const uint8_t *bytes, size_t len, size_t n, size_t count);

#endif
