/* The executor seam. An executor runs a plan where the gradients are: the host (threads and instruction sets), or a GPU (a
 * stream). It offers whole passes, in the order of a step:
 *
 *     select -> write -> (frames travel) -> check -> sum -> commit                 sums are the caller's
 *                                        -> find -> sum_unchecked -> copy -> commit   sums are private until they are copied
 *
 * Nothing but an executor dereferences a gradient, a residual or the body of a frame. */
#ifndef TG_EXEC_EXEC_H
#define TG_EXEC_EXEC_H

#include "routes/route.h"
#include "tersegrad/experimental.h"

/* A plan that is opened on an executor: residual state, workspace and statistics. */
typedef struct tg_run tg_run;

/* The body of a cell's frame: where it is written, and its length. */
typedef struct tg_body {
    uint8_t *bytes;
    size_t len;
    size_t payload_len; /* without the headers of chunks */
    uint64_t
        *hashes; /* one word for `seal`, then of headers and of each chunk, little-endian; set before it is written */
} tg_body;

/* A body whose chunks were found: one view each. */
typedef struct tg_body_view {
    const uint8_t *bytes;
    tg_view *chunks;
    uint64_t *
        hashes; /* for `sum_unchecked`: [0] is not the executor's, then that of headers and one a chunk, little-endian */
    uint32_t keeps; /* the place where `check` keeps its coordinates for `sum`, from 1 to the run's `places`; 0: none.
                     * `write` uses place 1 */
} tg_body_view;

/* Where sums go; exactly one is set. */
typedef struct tg_sink {
    void *const *averages; /* by tensor, in its dtype: the sum over `divisor` */
    float *flat;           /* the domain laid end to end in fp32: the sum over `divisor` */
    float *const *added;   /* by tensor in fp32: `weight` times the value is added */
    float divisor, weight;
} tg_sink;

/* What was sent of a unit in the last frames that were written or read. */
typedef struct tg_unit_stats {
    uint64_t len, entries;
    double shape, scale; /* sums over chunks of what the quantizer fitted ... */
    uint64_t fit_n;      /* ... and their number */
} tg_unit_stats;

typedef struct tg_run_options {
    const tg_device *device; /* NULL: the host */
    uint32_t threads;
    bool only_decodes; /* takes no memory that encoding alone needs */
    bool is_stateless; /* takes none for residuals either: nobody encodes, saves or loads */
    uint32_t places;   /* where coordinates of bodies are kept: how many bodies are summed at once; 0: one */
    tg_run *shares;    /* a run of the gradients' plan, whose workspace and coordinates an answer uses; NULL: its own */
} tg_run_options;

typedef struct tg_executor {
    const char *name;

    /* Opens a plan, which must outlive the run. All memory is taken here. Refuses parts that the executor lacks. */
    tg_status (*open)(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                      tg_detail *why);
    void (*close)(tg_run *run);

    /* Refuses memory that the executor cannot use: elements of all tensors, and a frame, which may be NULL. `select` does so for a
     * group. */
    tg_status (*reach)(tg_run *run, const void *const *tensors, const void *frame, tg_detail *why);

    /* Chooses the coordinates of a group at a step: draws, clips gradients, and runs the measuring pass of select parts that have
     * one. Only gradients of the group are read. */
    tg_status (*select)(tg_run *run, uint32_t group, uint64_t step, const tg_source *source, tg_detail *why);

    /* In place of `select` on ranks that follow a leader: clips gradients. */
    void (*clip)(tg_run *run, uint32_t group, const tg_source *source);

    /* Draws the coordinates of a group that all ranks share at a step, for frames that have no indices. */
    void (*draw)(tg_run *run, uint32_t group, uint64_t step);

    /* Prepares a run that follows leaders for bodies of `plan`, which hold their indices. The plan must outlive the run. NULL: no
     * need. */
    tg_status (*lead)(tg_run *run, const tg_plan *plan, tg_detail *why);

    /* Takes over the leader's coordinates of a group from a body of `plan`, which holds indices alone and was checked. */
    void (*follow)(tg_run *run, const tg_plan *plan, uint32_t group, const tg_body_view *body);

    /* The length of a cell's body at a step, if all ranks know it without its gradients. */
    bool (*length)(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step);

    /* Encodes cells [from, to) of `plan`, the run's own or the leader's, into bodies[0], ... They are all cells of one group, or
     * one of them. Fills the next residual. Bodies must have space for tg_body_bound. */
    tg_status (*write)(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                       const tg_source *source, tg_detail *why);

    /* Completes the frame around a cell's body, which was written last: `front`, the bytes before it, and the checksum after it. */
    void (*seal)(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                 const uint8_t *front, size_t front_len);

    /* Whether the gradients that were written last are refused, if `write` does not wait until that is known. */
    tg_status (*verdict)(tg_run *run, const tg_source *source, tg_detail *why);

    /* Finds the chunks of a cell's body, of `len` bytes at view->bytes, and checks their lengths, and that nothing is left
     * over. */
    tg_status (*find)(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len, tg_detail *why);

    /* Finds chunks likewise, and checks all of them: lengths, indices, symbols. Hashes of headers and of each chunk go to
     * hashes[0], hashes[1], ... With view->keeps, coordinates are kept until another body of that cell is written or checked with the
     * same place, so that `sum` need not read them again. */
    tg_status (*check)(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell,
                       size_t len, tg_detail *why);

    /* The chunks of a cell's body that this run has written last: as `find` finds them, and where `write` has kept coordinates, that
     * place. It needs no check. NULL: `check` it. */
    void (*recall)(tg_body_view *view, tg_run *run, uint32_t cell);

    /* Sums the values of bodies of a cell, in order. They were checked, so this cannot fail. Averages of finite values are
     * finite. */
    void (*sum)(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink);

    /* The same in two parts, for averages that are delivered later: adds a body that was checked to private sums of its cell, where the
     * first one takes the place of what was there; then delivers the averages of cells [from, to). Bodies of cell i are
     * bodies[i * stride], ...: what was added. NULL: `sum` does all. With source->is_first, `write` and `verdict` have added what was
     * written, which nobody needs to read for that. */
    void (*add)(tg_run *run, uint32_t cell, const tg_body_view *body, bool is_first);
    void (*deliver)(tg_run *run, uint32_t from, uint32_t to, const tg_body_view *bodies, size_t stride, size_t body_n,
                    const tg_sink *sink);

    /* Sums bodies whose chunks were found and not checked: checks and hashes each chunk while it is in the caches, so that it
     * is read once. False: a chunk is damaged, and the sums are void; `check` says which and why. What is summed to must be
     * private until hashes, too, are found right. */
    bool (*sum_unchecked)(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink);

    /* As sum_unchecked, of whole frames whose lengths are known, but returns before anything is computed: a frame that turns out to be
     * damaged is noted, and `late` tells of it. hashes[0] of each body is that of what must stand before it; a checksum follows it. An
     * average that fp32 cannot sum up to is not finite. False: these frames need sum_unchecked. NULL: all do. */
    bool (*sum_later)(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink);

    /* Fails if a frame of an earlier sum_later is known to be damaged by now. Does not wait. */
    tg_status (*late)(tg_run *run, tg_detail *why);

    /* Copies all tensors of a group, each in its dtype. */
    void (*copy)(tg_run *run, uint32_t group, void *const *to, void *const *from);

    /* Makes the next residual the current one. */
    void (*commit)(tg_run *run);

    /* The hash of `len` bytes of a gradient. */
    uint64_t (*hash)(tg_run *run, const void *data, size_t len);

    /* Residual state, n numbers from number `at` on, to floats on the host and back. */
    void (*save)(float *out, const tg_run *run, uint64_t at, uint64_t n);
    void (*load)(tg_run *run, uint64_t at, const float *values, uint64_t n);

    /* Memory for frames and means, where the executor works; not cleared. */
    tg_status (*acquire)(void *out, const tg_device *device, const tg_allocator *a, uint64_t len, tg_detail *why);
    void (*release)(const tg_device *device, const tg_allocator *a, void *block);

    /* Announces that a frame is going to be fetched from and checked, so that a device waits once for all of it; or, with
     * frame NULL, that the last one counts no more. NULL: no use. */
    void (*expect)(tg_run *run, const tg_plan *plan, uint32_t cell, const uint8_t *frame, size_t len, size_t front_len);

    /* Adds a frame of the whole model to the caller's sums at once, where a device can find out by itself whether it is sound, and adds
     * nothing if it is not. `front` is what must stand before the body, but for rank and step. *is_done: it is sound and noted, or that is
     * known later. Else nothing was added, and the frame counts as announced, and is to be checked and summed as any other. NULL: no
     * use. */
    tg_status (*add_if_sound)(bool *is_done, tg_run *run, const tg_plan *plan, const uint8_t *frame, size_t len,
                              const uint8_t *front, size_t front_len, const tg_sink *sink, tg_detail *why);

    /* Bytes of a frame on the host: *out is `from` itself, or `space`, which has `len` bytes. `run` may be NULL. */
    tg_status (*fetch)(const uint8_t **out, void *space, const tg_device *device, const tg_run *run,
                       const uint8_t *from, size_t len, tg_detail *why);

    /* Bytes of the host to a frame. */
    void (*store)(const tg_device *device, uint8_t *to, const void *from, size_t len);

    /* Returns when all passes of a run are done. */
    void (*wait)(const tg_run *run);

    bool is_paper; /* nothing is computed, and frames hold nothing that could be read (paper.h) */

    /* What a unit took; of the last bodies that were written, or of one that was checked. */
    tg_unit_stats (*stats)(const tg_run *run, size_t unit);
    void (*note)(tg_run *run, uint32_t cell, const tg_body_view *body);

    /* Of protocols with arithmetic of their own (lowrank.h, lgc.h); NULL: the executor lacks them. */
    const struct tg_lowrank_passes *lowrank;
    const struct tg_lgc_passes *lgc;
} tg_executor;

extern const tg_executor tg_executor_host;

/* Where an executor works. Each executor but the host's has a struct of its own, which begins with this one. */
struct tg_device {
    const tg_executor *executor;
};

/* The sentence about a body that ends within the headers of its chunks. */
#define TG_SHORT_OF_HEADERS "the frame is damaged: it is too short for the headers of its chunks"

/* The sentence for a residual that overflows; `of` is "gradient" or "average". */
tg_status tg_refuse_overflow(const char *tensor, const char *of, tg_detail *why) TG_CHECKED;

#endif
