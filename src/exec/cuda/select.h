/* The selection of a plan on a GPU: tables that its kernels share, and what they keep between launches.
 *
 * Sparse chunks are cut into patches, a block each. A kernel of the unit's route marks the selected elements of a patch in a mask
 * of bits and counts them; one kernel for all routes then turns masks into coordinates and gathers values. A patch's place in
 * its chunk follows from the counts of the patches before it, of which there are few, so no scan is launched.
 *
 * Coordinates that are drawn, or the leader's, are bits of whole units instead. C and CUDA C include this. */
#ifndef TG_EXEC_CUDA_SELECT_H
#define TG_EXEC_CUDA_SELECT_H

#include "exec/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TG_GPU_PATCH = 4096,       /* elements of a patch, unless a bin is longer */
    TG_GPU_BIN_MAX = 16384,    /* elements of the longest bin */
    TG_GPU_SHORTS = 3,         /* sizes of units whose largest are found by one block, of 1, 4 or 32 warps: */
    TG_GPU_SHORT = 512,        /* up to so many elements, or 4 or 32 times as many */
    TG_GPU_DRAW_ALONE = 65536, /* elements of a unit that one block draws from */
    TG_GPU_ROUNDS = 3, /* in which the k-th largest magnitude of a longer unit is found, by up to 11 bits each */
    TG_GPU_CELLS = 1 << 11
};

/* Elements [at, at + n) of a chunk. Its mask has `skip` bits that are 0 first: where bins are longer than the chunk's part of
 * them, bits are counted from the first bin on. */
typedef struct tg_gpu_patch {
    uint32_t chunk, at, n, skip;
    uint32_t first; /* patch of the chunk */
    uint32_t zero;
    uint64_t word_at; /* of its mask */
} tg_gpu_patch;

/* What selection knows of a unit. */
typedef struct tg_gpu_selected {
    uint64_t n;                    /* elements of the whole unit, in all slices */
    uint64_t bit_at;               /* of the unit in `bits`, in words, if its coordinates are drawn or the leader's */
    uint32_t patch_first, patch_n; /* its patches in `unit_patches` */
    uint32_t top;                  /* in `tops`, if the largest are selected */
    uint32_t ratio;                /* in `ratios`, likewise */
} tg_gpu_selected;

/* The state of a unit whose largest magnitudes are selected. */
typedef struct tg_gpu_top {
    uint64_t k;
    unsigned long long found; /* elements that reach the bound */
    uint64_t
        rank; /* of the k-th largest among the keys that begin as it does; at last how many that equal it are sent */
    uint32_t bound; /* a magnitude key; smaller ones were not marked */
    uint32_t kth;   /* the k-th largest key: its upper bits, as many as are known */
    uint32_t equal; /* keys that begin as it does */
    uint32_t done;  /* patches that were counted, in all rounds */
} tg_gpu_top;

/* The block of a unit with randomblock, as ranges [from, to); and what is left to draw with randomk. */
typedef struct tg_gpu_drawing {
    uint64_t key; /* of the stream */
    uint64_t from[2], to[2];
    uint64_t wanted;          /* different numbers that are to be drawn */
    uint64_t drawn;           /* draws so far */
    unsigned long long found; /* different ones among them */
    uint64_t batch;           /* draws of this round */
    uint32_t is_inverse;      /* what was drawn is what is left out */
    uint32_t zero;
} tg_gpu_drawing;

/* Device memory, unless stated otherwise. */
struct tg_gpu_selection {
    const tg_gpu_patch *patches;
    const tg_gpu_selected *units;
    const uint32_t *unit_patches; /* patches of all units, in the order of elements */
    const uint32_t *shorts;       /* units whose largest are found by one block, smaller sizes first */
    const uint32_t *longs;        /* units whose largest are found by many */
    const uint32_t *drawns;       /* units whose coordinates are drawn */
    uint32_t *masks;              /* of patches */
    uint32_t *counts;             /* of selected elements, by patch */
    uint32_t *ties;               /* of elements of exactly the k-th magnitude, by patch */
    uint32_t *known_n;            /* coordinates that are drawn or the leader's, by chunk */
    uint32_t *bits;               /* of units whose coordinates are known */
    tg_gpu_drawing *drawings;     /* by unit; NULL: none is drawn */
    tg_gpu_top *tops;             /* of longs, then of shorts */
    uint32_t *cells;              /* of longs: numbers of keys by their upper, middle and lower bits */

    /* host memory */
    const uint32_t *patch_first; /* of each chunk, and one more */
    const double *ratios;        /* parameters of topk that occur, 8 each */
    uint32_t short_n, short_ns[TG_GPU_SHORTS], long_n, drawn_n, far_n,
        ratio_n;                         /* far_n of `drawns`, the first ones, are drawn by many blocks */
    uint32_t routes;                     /* bit r: some unit takes route r */
    uint32_t has_long_bins, has_indices; /* some bin is longer than a patch; some unit's indices are in frames */
    uint32_t draw_blocks;                /* a unit, in a round of drawing */
};

/* The tables of a plan, in host memory. */
typedef struct tg_gpu_tables {
    const tg_gpu_unit *units;
    const tg_gpu_piece *pieces;
    const tg_gpu_chunk *chunks;
    uint32_t unit_n, chunk_n;
} tg_gpu_tables;

/* What a selection takes: bytes of host memory, bytes of device memory, and of both, from the start, bytes that the caller copies
 * from host to device once it is set up. */
typedef struct tg_gpu_selection_lens {
    uint64_t host, device, copied;
} tg_gpu_selection_lens;

/* selection.c. `parent`: a plan of the same units whose coordinates are drawn or followed for this one, too; NULL: none. */
tg_gpu_selection_lens tg_gpu_selection_measure(const tg_gpu_tables *t, const tg_gpu_selection *parent);
void tg_gpu_selection_set_up(tg_gpu_selection *out, void *host, void *device, const tg_gpu_tables *t,
                             const tg_gpu_selection *parent);

/* What of a unit's selection or indices has no kernel; NULL: nothing. */
const char *tg_gpu_select_lacks(const tg_gpu_unit *unit);

/* select_drawn.cu: draws for the step of a pass what all ranks share and, with `own_too`, this rank's own, of all units that have
 * their first chunk in the pass. With a parent, that one draws. To be counted then. */
void tg_gpu_draw_coordinates(const tg_gpu_pass *p, const tg_gpu_selection *selection, int own_too);

/* select_drawn.cu: counts known coordinates of each chunk of a pass, to selection->known_n[chunk]. Selecting and reading need the
 * counts, too. */
void tg_gpu_count_known(const tg_gpu_pass *p, const tg_gpu_selection *selection);

/* select_drawn.cu: takes the leader's coordinates, which a pass over the leader's frame has read to space.positions, into the
 * selection of the plan that follows. To be counted then. */
void tg_gpu_follow_leader(const tg_gpu_pass *leader, const tg_gpu_selection *selection);

/* The two halves of tg_gpu_select_sparse. Marks are of whole units: the pass has all chunks of the plan that its units have. They stay
 * in the selection until the next ones, so that cells can be listed one after the other. */
void tg_gpu_mark_sparse(const tg_gpu_pass *p, tg_gpu_selection *selection, float *maxima);
void tg_gpu_list_sparse(const tg_gpu_pass *p, tg_gpu_selection *selection);

/* The launches that these consist of, over patches [first, end). select_bins.cu, select_sum.cu, select_top.cu and
 * select.cu. */
void tg_gpu_select_bins(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, float *maxima);
void tg_gpu_select_sum(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end);
void tg_gpu_select_start_top(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end);
void tg_gpu_select_top(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end);
void tg_gpu_list_marks(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, int with_values);

/* selection.c, for these: the patches of the chunks of a pass; the ratio of a class at a step. */
void tg_gpu_selection_range(uint32_t *first, uint32_t *end, const tg_gpu_selection *s, const tg_gpu_pass *p);
double tg_gpu_selection_ratio(const tg_gpu_selection *s, uint32_t number, uint64_t step);

#ifdef __cplusplus
}
#endif
#endif
