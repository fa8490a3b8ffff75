/* The CUDA executor's inside: a plan that is opened on a GPU, with its tables and buffers. */
#ifndef TG_EXEC_CUDA_RUN_H
#define TG_EXEC_CUDA_RUN_H

#include "exec/cuda/gpu.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/select.h"

/* Arrays on the host, pinned, and their copies on the device: what passes upload and download. */
typedef struct tg_gpu_mirror {
    void *host, *device;
    uint64_t len;
} tg_gpu_mirror;

/* The step whose coordinates are drawn, if any are. */
typedef struct tg_gpu_drawn {
    uint64_t step;
    bool is_drawn;
} tg_gpu_drawn;

/* What the units of a plan need together, so that no other kernels are launched. */
typedef struct tg_gpu_uses {
    bool plain, symbols, words, sparse, scales, bins, coded;
    uint32_t kinds;       /* of quantizers */
    uint64_t scratch_len; /* bytes a chunk of coded packs */
} tg_gpu_uses;

/* What a run and the runs that share with it use in turns. */
typedef struct tg_gpu_workspace {
    tg_gpu_space space;      /* device memory */
    tg_gpu_mirror grads;     /* of the source, or sums of a sink, by tensor */
    tg_gpu_mirror out;       /* space.out */
    tg_gpu_mirror views;     /* space.views */
    tg_gpu_mirror spans;     /* chunks where they are hashed */
    tg_gpu_mirror hashes;    /* of chunks: those of a cell after one word for what stands before the body */
    tg_gpu_mirror sides;     /* the first bytes beside each chunk's values, for statistics */
    tg_gpu_mirror verdict;
    uint64_t *leaves;        /* device: hashes of leaves */
    uint8_t *staging;        /* device: chunks whose length is not known, each with space for its bound */
    uint8_t *scratch;        /* device: of coded packs, scratch_len bytes a chunk */
    float *maxima;           /* device: of bins */
    uint32_t *known_n;       /* host: coordinates in a chunk that are known without a frame */
    uint32_t *known_n_device;
    uint64_t step;           /* that is encoded or decoded */
    tg_gpu_drawn *drawn;     /* host: of each group */
    const void *(*usable)[2]; /* host: by tensor: the last two places of its elements, which the GPU can use */
    const void *usable_frame; /* likewise of the frame that was written last */
    const uint8_t *held;     /* the body whose symbols and coordinates are in space; NULL: none */
    uint32_t held_cell;
} tg_gpu_workspace;

struct tg_run {
    const tg_plan *plan;
    const tg_gpu *gpu;
    tg_allocator allocator;
    tg_run *parent; /* whose workspace this is; NULL: its own */
    tg_gpu_workspace *work;
    tg_gpu_unit *units; /* device, likewise the next */
    tg_gpu_piece *pieces;
    tg_gpu_chunk *chunks;
    tg_gpu_tile *tiles;
    uint32_t *tile_first; /* host: of each chunk */
    tg_gpu_selection selection;
    void *selection_host, *selection_device; /* its memory */
    tg_gpu_uses uses;
    float *now, *next;
    tg_unit_stats *stats;
    bool only_decodes;
    tg_status failed; /* of a pass that could not report it; stays */
    tg_detail failure;
};

/* ---- tables.c ---------------------------------------------------------------------------------------------------------- */

/* The tables of a plan in host memory, as kernels take them. */
void tg_gpu_unit_of(tg_gpu_unit *out, const tg_unit_plan *unit, uint32_t piece_first);
void tg_gpu_fill_pieces(tg_gpu_piece *out, const tg_layout *layout);
void tg_gpu_fill_chunks(tg_gpu_chunk *out, const tg_plan *plan);

/* Tiles of all chunks, those of chunk i from first[i] to first[i + 1] - 1. `out` may be NULL, to count them. */
uint32_t tg_gpu_fill_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan);

/* The part of a unit's recipe that has no kernel; NULL: all have one. */
const char *tg_gpu_lacks(const tg_gpu_unit *unit);

/* ---- open.c ------------------------------------------------------------------------------------------------------------ */

tg_status tg_gpu_open(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                      tg_detail *why) TG_CHECKED;
void tg_gpu_close(tg_run *run);

/* ---- pass.c ------------------------------------------------------------------------------------------------------------ */

/* A pass of a plan over chunks [first, end) of the grid. */
tg_gpu_pass tg_gpu_pass_of(tg_run *run, const tg_plan *plan, size_t first, size_t end);

/* Entries [from, from + n) of `len` bytes each, to the device or back. */
void tg_gpu_upload(const tg_run *run, const tg_gpu_mirror *mirror, size_t from, size_t n, size_t len);
void tg_gpu_download(const tg_run *run, const tg_gpu_mirror *mirror, size_t from, size_t n, size_t len);

/* Clears the verdict at the start of a pass; downloads it and waits at the end. */
void tg_gpu_clear_verdict(const tg_run *run);
tg_status tg_gpu_read_verdict(tg_gpu_verdict *out, tg_run *run, tg_detail *why) TG_CHECKED;

/* Waits, in functions that cannot fail: the next pass does. */
void tg_gpu_settle(const tg_run *run);

/* Notes a failure of a pass that returns nothing. */
void tg_gpu_note_failure(tg_run *run, tg_status status, const tg_detail *why);

/* Hashes the chunks of a cell, whose places are in the mirror of spans, to the mirror of hashes, both on the device. */
void tg_gpu_hash_chunks(tg_run *run, uint32_t cell);

/* Downloads these hashes and waits. */
tg_status tg_gpu_read_hashes(uint64_t *out, tg_run *run, uint32_t cell, tg_detail *why) TG_CHECKED;

/* Pointers by tensor to the device, those of a group: others may not be set yet. NULL stays NULL. */
const void *tg_gpu_upload_pointers(const tg_run *run, uint32_t group, const void *const *pointers);

/* Fails if a verdict has refused a tensor. */
tg_status tg_gpu_refuse(const tg_run *run, const tg_gpu_verdict *verdict, const tg_source *source,
                        tg_detail *why) TG_CHECKED;

/* The length of a chunk that does not depend on the gradients. */
uint64_t tg_gpu_chunk_len(const tg_plan *plan, const tg_chunk *chunk, uint32_t known_n);

/* ---- passes ------------------------------------------------------------------------------------------------------------ */

tg_status tg_gpu_select(tg_run *run, uint32_t group, uint64_t step, const tg_source *source, tg_detail *why) TG_CHECKED;
void tg_gpu_draw(tg_run *run, uint32_t group, uint64_t step);
bool tg_gpu_length(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step);
tg_status tg_gpu_write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                       const tg_source *source, tg_detail *why) TG_CHECKED;
void tg_gpu_seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                 const uint8_t *front, size_t front_len);
tg_status tg_gpu_find_chunks(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                             tg_detail *why) TG_CHECKED;
tg_status tg_gpu_check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell,
                       size_t len, tg_detail *why) TG_CHECKED;
/* Views of a body's chunks and where they are, to the device. Reads their symbols, words and coordinates into space. */
void tg_gpu_upload_views(const tg_run *run, size_t first, size_t end, const tg_body_view *view);
void tg_gpu_read_body(const tg_gpu_pass *p, const tg_run *run, const uint8_t *body);

void tg_gpu_sum(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink);
bool tg_gpu_sum_unchecked(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n,
                          const tg_sink *sink) TG_CHECKED;
void tg_gpu_copy_group(tg_run *run, uint32_t group, void *const *to, void *const *from);

/* Adds a chunk that was written or read to the statistics; `side` are the first bytes beside its values. */
void tg_gpu_note_chunk(tg_run *run, uint32_t unit, const tg_view *view, uint64_t side);

extern const tg_executor tg_executor_cuda;

#endif
