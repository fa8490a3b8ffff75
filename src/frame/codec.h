/* The codec: tensors and recipes, the plan for them, and the plan opened on an executor. */
#ifndef TG_FRAME_CODEC_H
#define TG_FRAME_CODEC_H

#include "exec/exec.h"

#define TG_FRAME_HEADER 48  /* bytes of a frame before its description */
#define TG_FRAME_CHECKSUM 8 /* and after its body */

struct tg_codec {
    tg_allocator allocator;
    const tg_executor *executor;
    const tg_device *device; /* NULL: the host */
    tg_layout *layout;
    tg_grid *grid;
    tg_plan *plan;
    tg_run *run;
    tg_codec *parent;  /* of an answer: the codec whose layout, grid, views and hashes these are; NULL: its own */
    tg_view *views;    /* of one frame, one a chunk of the grid */
    uint64_t *hashes;  /* one a frame and a chunk: of what stands before a cell's body, and of the cell's chunks */
    tg_body *bodies;   /* of frames that are written, one a cell */
    size_t front_len;  /* bytes of a frame before its body */
    uint8_t *front;    /* space for these bytes on the host, with a description or without, and for a checksum */
    size_t bound;      /* of tg_encode_bound, which would go through all chunks each time */
    bool only_decodes; /* made from a frame, or only knows the tensors */
};

/* What a codec is made for. */
typedef struct tg_codec_purpose {
    uint32_t slices; /* frames are cut into so many */
    tg_groups groups;
    unsigned holds; /* what frames hold */
    bool only_decodes;
    uint32_t places; /* frames of a cell that are summed at once after they were checked; 0: one */
} tg_codec_purpose;

/* The layout of tensors by a recipe, rules and policy. */
tg_status tg_codec_layout(tg_layout **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why) TG_CHECKED;

/* The layout is the codec's from here on, also on failure. */
tg_status tg_codec_make(tg_codec **out, tg_layout *layout, const tg_codec_purpose *purpose, const tg_options *opt,
                        tg_detail *why) TG_CHECKED;

/* What a codec for answers is for. */
typedef struct tg_answer_purpose {
    uint32_t slice, slices; /* its domain, as in tg_purpose */
    bool has_feedback, heeds_again;
    bool only_decodes;
} tg_answer_purpose;

/* A codec for a slice of `parent`, which must outlive it, or for all of it: how an owner answers with a mean, and how that is read. It
 * sends the coordinates that the parent has drawn or was given, and applies no gain. Both share one workspace, so only one of them
 * works at a time. */
tg_status tg_codec_make_answer(tg_codec **out, tg_codec *parent, const tg_answer_purpose *purpose,
                               tg_detail *why) TG_CHECKED;

/* Refuses missing gradients: NULL, or NULL for a tensor that has elements; and gradients, or a frame, which may be NULL, that are not
 * where the codec works. */
tg_status tg_check_grads(const tg_codec *c, const void *const *grads, const void *frame, tg_detail *why) TG_CHECKED;

#endif
