/* The CUDA executor's inside: a plan that is opened on a GPU, with its tables and buffers. */
#ifndef TG_EXEC_CUDA_RUN_H
#define TG_EXEC_CUDA_RUN_H

#include "exec/cuda/gpu.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/select.h"

/* An array on the host and its copy on the device. One that is uploaded is in pageable host memory, from which copies are taken
 * at once, so that it may change before the device has it. One that is downloaded is pinned. */
typedef struct tg_gpu_mirror {
    void *host, *device;
    uint64_t len;
    bool is_pinned;
} tg_gpu_mirror;

/* The step whose coordinates are drawn, if any are. */
typedef struct tg_gpu_drawn {
    uint64_t step;
    bool is_drawn;
} tg_gpu_drawn;

/* What the units of a plan need together, so that no other kernels are launched. */
typedef struct tg_gpu_uses {
    bool plain, symbols, words, sparse, scales, bins;
    bool starts;           /* views of some chunks are known beforehand */
    bool dense_symbols;    /* of units whose elements are all sent */
    bool quantizes_values; /* of sparse units, after they are listed */
    bool fits;             /* statistics need what travels beside values */
    bool coded;
    bool velocities; /* some feedback keeps more than a residual */
    bool only_plain; /* all units have plain values, and all of these are sent as they are */
    bool lists;  /* some chunks are sparse, and values are plain or listed signs: check_lists.cu reads their frames */
    bool fixed;  /* all chunks are dense and of fixed length: their leaves are hashed while they are written */
    bool holds;  /* rounds whole tensors to floats of a few bits: what hold.cu does */
    bool counts; /* all symbols that are coded are such floats */
    uint32_t kinds;    /* of quantizers */
    uint64_t slot_len; /* bytes of scratch of a bucket */
    uint32_t packs;    /* of symbols and words */
} tg_gpu_uses;

/* What a run and the runs that share with it use in turns. */
typedef struct tg_gpu_workspace {
    tg_gpu_space space;   /* device memory */
    tg_gpu_mirror grads;  /* of the source, or averages of a sink, by tensor */
    tg_gpu_mirror sums;   /* that values are added to, by tensor */
    tg_gpu_mirror out;    /* space.out */
    uint8_t **places;     /* host: space for them */
    tg_gpu_mirror views;  /* space.views, as they were downloaded */
    bool has_known_views; /* the device has the views of a body of known length, of this run and cell: */
    const tg_run *known_run;
    uint32_t known_cell;
    tg_gpu_span *spans;         /* device: headers and chunks of a body that is read */
    tg_gpu_mirror written;      /* views of chunks that are written */
    tg_gpu_span *written_spans; /* device: and where they are */
    const tg_run *laid_out;     /* the run whose chunks of known length these are; NULL: none */
    bool seals_places;          /* chunks of known length are in their places, and hashed when the frame is sealed */
    bool has_words;             /* the host was told of hashes of chunks that were written */
    bool is_refusal_open;       /* nobody has asked yet whether the last gradients are refused */
    tg_gpu_mirror hashes;       /* of each cell: one word for what stands before the body, of headers, then of chunks */
    tg_gpu_mirror sides;        /* the first bytes beside each chunk's values, for statistics */
    tg_gpu_mirror verdict;
    tg_gpu_mirror
        late; /* 2^32 - 1 less the number of the first body that was found damaged in a pass without a wait; 0: none */
    bool is_verdict_open;  /* the kernel that seals the next frame hands it over */
    bool is_verdict_clear; /* on the device, because nothing has run since it was cleared */
    uint32_t *done; /* device: blocks that are done, of TG_GPU_SEALS frames whose last block does more; then chunks of
                       bodies that are summed, and blocks of each of these chunks */
    tg_gpu_seals seals; /* frames that are written and not sealed yet, up to that of cell ... */
    uint32_t seals_to;  /* ... before this one */
    tg_gpu_mirror description;
    uint32_t leaves_first; /* the chunk whose leaves `leaves` begins with, of frames of fixed length */
    tg_run *
        open_stats; /* whose statistics wait for `sides` of these cells: of what was written or read last; NULL: none */
    uint32_t stats_from, stats_to;
    bool *is_fitted;    /* host: chunks that have something in `sides` */
    tg_gpu_mirror ends; /* what stands before the body of a frame, and its checksum */
    size_t ends_len;    /* of what stands before it */
    tg_gpu_mirror
        sound; /* whether the frame that was checked last is: 1 or 0; 2: not known yet. Host: 1, too, when a body has been moved */
    void *mark;           /* on the stream, after what hands a verdict over: */
    bool is_marked;       /* a verdict is there when the mark is passed */
    uint32_t sealed_cell; /* of the frame of fixed length that was sealed last */
    const uint8_t *sealed_body;
    bool is_judged;          /* `expected` was checked by add_if_sound, and not announced yet */
    const uint8_t *expected; /* the frame that was announced, and checked as far as kernels do; NULL: none */
    const uint8_t *expected_body;
    size_t expected_len;
    uint32_t expected_cell;
    tg_gpu_verdict expected_verdict;
    tg_view *host_views; /* host: space for the views of bodies, by chunk */
    uint64_t *leaves;    /* device: hashes of leaves */
    uint8_t *staging;    /* device: chunks whose length is not known, each with space for its bound; so many bytes: */
    uint64_t staging_len;
    uint8_t *scratch;  /* device: of coded packs */
    float *maxima;     /* device: of bins */
    float *ones;       /* device: clips of units that have none */
    double *norms;     /* device: sums of leaves of squares, where gradients are clipped */
    uint32_t *known_n; /* host: coordinates in a chunk that are known without a frame */
    uint32_t *known_n_device;
    uint64_t step;             /* that is encoded or decoded */
    tg_gpu_drawn *drawn;       /* host: of each group */
    const void *(*usable)[2];  /* host: by tensor: the last two places of its elements, which the GPU can use */
    const void *usable_frame;  /* likewise of the frame that was written last ... */
    const void *usable_source; /* ... and of the one that was read by add_if_sound */
    const uint8_t *held;       /* the body whose symbols and coordinates are in space; NULL: none */
    uint32_t held_cell;
} tg_gpu_workspace;

struct tg_run {
    const tg_plan *plan;
    const tg_gpu *gpu;
    tg_allocator allocator;
    tg_run *parent; /* whose workspace this is; NULL: its own */
    tg_run *
        leader; /* for bodies of the leader's plan: shares the workspace and the residuals; NULL: nothing follows one */
    bool is_leader; /* is such a run */
    tg_gpu_workspace *work;
    tg_gpu_unit *units; /* device, likewise the next */
    tg_gpu_piece *pieces;
    tg_gpu_chunk *chunks;
    tg_gpu_tile *tiles;
    uint32_t *tile_first; /* host: of each chunk */
    tg_gpu_tile
        *plain_tiles;      /* those of dense units of plain values, where there are other units, too; NULL: `tiles` */
    uint32_t *plain_first; /* host: of each chunk */
    tg_gpu_part *parts;    /* NULL: blocks do not hold them */
    uint32_t part_blocks;  /* that hold them at once */
    uint32_t *part_first;  /* host: of each chunk */
    tg_gpu_leaf *leaf_table;
    uint32_t *leaf_first; /* host: of each chunk; those of a run whose chunks are of fixed length */
    tg_gpu_selection selection;
    void *selection_host, *selection_device; /* its memory */
    tg_gpu_uses uses;
    uint32_t leaf_cap;  /* leaves of the longest chunk */
    float *now, *next;  /* residual state, and after it ... */
    uint32_t pending_n; /* ... so many scales that are still to be subtracted (tg_gpu_unit.pending_at) */
    tg_unit_stats *stats;
    bool only_decodes;
    bool is_in_place; /* the residual was written over the current one, so that a graph can be replayed */
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

/* The same of dense units of plain values alone. */
uint32_t tg_gpu_fill_plain_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan);

/* Parts of all chunks likewise, whose tiles are given. */
uint32_t tg_gpu_fill_parts(tg_gpu_part *out, uint32_t *first, const uint32_t *tile_first, const tg_plan *plan);

/* Leaves of all chunks likewise, of those of fixed length. */
uint32_t tg_gpu_fill_leaves(tg_gpu_leaf *out, uint32_t *first, const tg_plan *plan);

/* Gives units whose scales are subtracted from residuals in the next step a place for them after the residual state, of residual_n numbers.
 * Returns how many there are. For a run whose chunks are of fixed length. */
uint32_t tg_gpu_place_pending(tg_gpu_unit *units, size_t n, uint64_t residual_n);

/* What n units need together. */
tg_gpu_uses tg_gpu_uses_of(const tg_gpu_unit *units, size_t n, bool has_values);

/* The part of a unit's recipe that has no kernel; NULL: all have one. */
const char *tg_gpu_lacks(const tg_gpu_unit *unit);

/* ---- open.c ------------------------------------------------------------------------------------------------------------ */

tg_status tg_gpu_open(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                      tg_detail *why) TG_CHECKED;
void tg_gpu_close(tg_run *run);

/* Opens run->leader. */
tg_status tg_gpu_lead(tg_run *run, const tg_plan *plan, tg_detail *why) TG_CHECKED;

/* The run of a plan: `run`, or its leader's. */
static inline tg_run *tg_gpu_run_of(tg_run *run, const tg_plan *plan)
{
    return run->leader != NULL && plan == run->leader->plan ? run->leader : run;
}

/* ---- pass.c ------------------------------------------------------------------------------------------------------------ */

/* A pass of a plan over chunks [first, end) of the grid. */
tg_gpu_pass tg_gpu_pass_of(tg_run *run, const tg_plan *plan, size_t first, size_t end);

/* The same pass over tiles of dense units of plain values; over dense units of symbols. */
tg_gpu_pass tg_gpu_plain_pass(const tg_gpu_pass *p, const tg_run *run);
tg_gpu_pass tg_gpu_symbols_pass(const tg_gpu_pass *p);

/* Entries [from, from + n) of `len` bytes each, to the device or back. What is uploaded is `entries`; nothing is copied if the
 * device has the same already. */
void tg_gpu_upload(const tg_run *run, const tg_gpu_mirror *mirror, const void *entries, size_t from, size_t n,
                   size_t len);
void tg_gpu_download(const tg_run *run, const tg_gpu_mirror *mirror, size_t from, size_t n, size_t len);

/* Clears the verdict at the start of a pass; downloads it and waits at the end. */
void tg_gpu_clear_verdict(const tg_run *run);
tg_status tg_gpu_read_verdict(tg_gpu_verdict *out, tg_run *run, tg_detail *why) TG_CHECKED;

/* Marks where a verdict is handed over: what is launched after it need not be waited for. */
tg_status tg_gpu_mark_verdict(const tg_run *run, tg_detail *why) TG_CHECKED;

/* Waits for a verdict that a kernel has handed over. */
tg_status tg_gpu_await_verdict(tg_gpu_verdict *out, tg_run *run, tg_detail *why) TG_CHECKED;

/* Waits for a kernel that hands a verdict over and then sets the word w->sound, which was 2; what is behind it on the stream goes on. */
tg_status tg_gpu_await_word(tg_gpu_verdict *out, tg_run *run, tg_detail *why) TG_CHECKED;

/* What the kernels of finish.cu need of a cell; `leaves` begin with those of chunk `leaves_first`. No verdict is handed over yet. */
tg_gpu_ending tg_gpu_ending_of(const tg_run *run, uint32_t cell, const uint8_t *frame, uint64_t body_len,
                               size_t leaves_first);

/* Waits, in functions that cannot fail: the next pass does. */
void tg_gpu_settle(const tg_run *run);

/* Notes a failure of a pass that returns nothing. */
void tg_gpu_note_failure(tg_run *run, tg_status status, const tg_detail *why);

/* The part of `spans` of a cell: one for its headers, then one a chunk. */
tg_gpu_span *tg_gpu_spans_at(tg_gpu_span *spans, const tg_run *run, uint32_t cell);

/* Leaves of the headers of a cell. */
uint32_t tg_gpu_header_leaves(const tg_run *run, uint32_t cell);

/* Hashes headers and chunks of a cell, whose places are in `spans` on the device, to the mirror of hashes on the device. */
void tg_gpu_hash_chunks(tg_run *run, uint32_t cell, tg_gpu_span *spans);

/* Moves chunks that were placed to where they belong, and hashes them, likewise. */
void tg_gpu_move_chunks(const tg_gpu_pass *p, tg_run *run, uint32_t cell, tg_gpu_span *spans);

/* Where those of a cell are on the host: of what stands before the body, of headers, then of chunks. */
uint64_t *tg_gpu_hashes_of(const tg_run *run, uint32_t cell);

/* Downloads these hashes; takes them, that of headers first, once that was waited for. */
void tg_gpu_download_hashes(const tg_run *run, uint32_t cell);
void tg_gpu_take_hashes(uint64_t *out, const tg_run *run, uint32_t cell);

/* Pointers by tensor to the device, those of a group: others may not be set yet. NULL stays NULL. */
const void *tg_gpu_upload_pointers(const tg_run *run, uint32_t group, const void *const *pointers);

/* Pointers of few tensors go by value. False: there are more. */
bool tg_gpu_give_few(tg_gpu_pass *p, const tg_run *run, const void *const *pointers);

/* Gradients of a group, or NULL, for a pass. False: pointers must be copied, and may not. Sums likewise. */
bool tg_gpu_give_sources(tg_gpu_pass *p, const tg_run *run, uint32_t group, const void *const *grads, bool may_copy);
bool tg_gpu_give_sums(tg_gpu_pass *p, const tg_run *run, uint32_t group, float *const *sums, bool may_copy);

/* Fails if a verdict has refused a tensor. */
tg_status tg_gpu_refuse(const tg_run *run, const tg_gpu_verdict *verdict, const tg_source *source,
                        tg_detail *why) TG_CHECKED;

/* The length of a chunk that does not depend on the gradients. */
uint64_t tg_gpu_chunk_len(const tg_plan *plan, const tg_chunk *chunk, uint32_t known_n);

/* ---- passes ------------------------------------------------------------------------------------------------------------ */

tg_status tg_gpu_select(tg_run *run, uint32_t group, uint64_t step, const tg_source *source, tg_detail *why) TG_CHECKED;
void tg_gpu_draw(tg_run *run, uint32_t group, uint64_t step);
void tg_gpu_follow(tg_run *run, const tg_plan *plan, uint32_t group, const tg_body_view *body);
bool tg_gpu_length(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step);
tg_status tg_gpu_write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                       const tg_source *source, tg_detail *why) TG_CHECKED;
tg_status tg_gpu_ask_refusal(tg_run *run, const tg_source *source, tg_detail *why) TG_CHECKED;
void tg_gpu_seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                 const uint8_t *front, size_t front_len);
tg_status tg_gpu_find_chunks(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                             tg_detail *why) TG_CHECKED;
void tg_gpu_expect(tg_run *run, const tg_plan *plan, uint32_t cell, const uint8_t *frame, size_t len, size_t front_len);
tg_status tg_gpu_check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell,
                       size_t len, tg_detail *why) TG_CHECKED;
tg_status tg_gpu_add_if_sound(bool *is_done, tg_run *run, const tg_plan *plan, const uint8_t *frame, size_t len,
                              const uint8_t *front, size_t front_len, const tg_sink *sink, tg_detail *why) TG_CHECKED;
void tg_gpu_recall(tg_body_view *view, tg_run *run, uint32_t cell);
/* Views of a body's chunks to the device. Reads their symbols, words and coordinates into space. */
void tg_gpu_upload_views(const tg_run *run, size_t first, size_t end, const tg_view *views);
void tg_gpu_read_body(const tg_gpu_pass *p, const tg_run *run, const uint8_t *body);

/* Views of a body that is summed to the device, unless they are there. */
void tg_gpu_ready_views(const tg_gpu_pass *p, tg_run *run, uint32_t cell, const tg_body_view *body);

void tg_gpu_sum(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink);
void tg_gpu_add(tg_run *run, uint32_t cell, const tg_body_view *body, bool is_first);
/* Adds a body that was written last, as the first one. Its symbols and coordinates are in space. */
void tg_gpu_add_written(tg_run *run, uint32_t cell, const uint8_t *body);
void tg_gpu_deliver_sums(tg_run *run, uint32_t from, uint32_t to, const tg_body_view *bodies, size_t stride,
                         size_t body_n, const tg_sink *sink);
bool tg_gpu_sum_unchecked(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n,
                          const tg_sink *sink) TG_CHECKED;
bool tg_gpu_sum_later(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n,
                      const tg_sink *sink) TG_CHECKED;
tg_status tg_gpu_late(tg_run *run, tg_detail *why) TG_CHECKED;
void tg_gpu_copy_group(tg_run *run, uint32_t group, void *const *to, void *const *from);

/* Adds a chunk that was written or read to the statistics, but for what its quantizer has fitted. */
void tg_gpu_note_chunk(const tg_run *run, size_t chunk, const tg_view *view);

/* Statistics of a cell that was read, whose views are on the device; tg_gpu_note_views, whose `sides` are written, too. */
void tg_gpu_note(tg_run *run, uint32_t cell, const tg_body_view *body);
void tg_gpu_note_views(tg_run *run, uint32_t cell, const tg_view *views);

/* Statistics of cells [from, to) are going to need `sides`, which is downloaded when somebody asks for them. */
void tg_gpu_open_stats(tg_run *run, uint32_t from, uint32_t to);

/* Downloads `sides` for the run whose statistics need them, if it is not `but`: they are going to be written. */
void tg_gpu_close_stats(tg_gpu_workspace *w, const tg_run *but);

/* executor.c: refuses tensors of a group without elements, or that are not in memory of the GPU. */
tg_status tg_gpu_reach_group(const tg_run *run, uint32_t group, const void *const *tensors, tg_detail *why) TG_CHECKED;

extern const tg_executor tg_executor_cuda;
extern const struct tg_lowrank_passes tg_gpu_lowrank;
extern const struct tg_lgc_passes tg_gpu_lgc_passes;

#endif
