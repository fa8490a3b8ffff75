/* The frame: a body with a header before it and a checksum after it. docs/format.md is the definition. */
#ifndef TG_FRAME_FRAME_H
#define TG_FRAME_FRAME_H

#include "frame/codec.h"

#define TG_FRAME_VERSION 4

/* The length of a frame. */
typedef struct tg_framed {
    size_t len;
    size_t payload_len;
} tg_framed;

/* Bytes that the frame of a slice may need while it is written. `plan` here and below: the codec's own, or a leader's for its
 * indices. */
size_t tg_frame_bound(const tg_codec *c, const tg_plan *plan, uint32_t slice);

/* Bytes that a received frame of a slice can have at most. */
size_t tg_frame_limit(const tg_codec *c, const tg_plan *plan, uint32_t slice);

/* Writes the frames of slices [from, to), that of slice s to dst[s - from], which has space for tg_frame_bound. Coordinates
 * must have been selected. */
tg_status tg_frame_write(tg_framed *out, tg_codec *c, const tg_plan *plan, uint8_t *const *dst, uint32_t from,
                         uint32_t to, uint64_t step, const tg_source *source, tg_detail *why) TG_CHECKED;

/* What a reader expects a frame to be. */
typedef struct tg_expected {
    const tg_plan *plan;
    uint32_t slice;
    bool check_author; /* that rank and step are these */
    uint32_t rank;
    uint64_t step;
} tg_expected;

/* Finds the chunks of a frame that the codec has written last of a cell, and that nobody has changed since. */
tg_status tg_frame_recall(tg_body_view *view, tg_codec *c, const tg_expected *expected, const uint8_t *src,
                          size_t src_len, tg_detail *why) TG_CHECKED;

/* Checks a frame but for what its chunks hold, and finds them. The rest is for `sum_unchecked` of the executor, which hashes
 * chunks, and then for tg_frame_is_intact. A frame that fails in any of the three fails in tg_frame_read, which says why. */
tg_status tg_frame_find(tg_body_view *view, tg_codec *c, const tg_expected *expected, const uint8_t *src,
                        size_t src_len, tg_detail *why) TG_CHECKED;

/* The same of a frame whose length is known, without reading any of it: `sum_later` of the executor checks it. */
tg_status tg_frame_foresee(tg_body_view *view, tg_codec *c, const tg_expected *expected, const uint8_t *src,
                           size_t src_len, tg_detail *why) TG_CHECKED;

/* The sentence if tg_frame_read finds nothing wrong with a frame that failed so. */
#define TG_FRAME_CHANGED "the frame changes while it is read"

/* Whether the checksum of a frame is that of its bytes, given the hashes of its chunks. */
bool tg_frame_is_intact(const tg_body_view *view, const tg_codec *c, const tg_expected *expected, const uint8_t *src,
                        size_t src_len) TG_CHECKED;

/* Checks a frame whole and finds its chunks: view->chunks has one entry a chunk of the slice. `info` may be NULL. */
tg_status tg_frame_read(tg_body_view *view, tg_frame_info *info, tg_codec *c, const tg_expected *expected,
                        const uint8_t *src, size_t src_len, tg_detail *why) TG_CHECKED;

#endif
