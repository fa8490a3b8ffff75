/* The selection of a plan on a GPU: tables that its kernels share, and what they keep between launches.
 *
 * Sparse chunks are cut into patches, a block each, and patches into strips, a warp each. One pass over all elements, of the unit's
 * route, writes the next residual and lists the selected elements of each strip: how many, their places, their values. Kernels
 * after it go over these lists alone. The lists of a strip are where its elements would be, so nobody has to wait for a place.
 *
 * topk lists candidates: elements that reach a bound, which is a guess from the last step or from a sample. The k-th largest of
 * them is then found exactly. If the guess was too high, or the search is not worth its short way, the host is told to begin again
 * with a sample, and at last without a bound (`effort`).
 *
 * Coordinates that are drawn, or the leader's, are bits of whole units. C and CUDA C include this. */
#ifndef TG_EXEC_CUDA_SELECT_H
#define TG_EXEC_CUDA_SELECT_H

#include "exec/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TG_GPU_STRIP = 512,        /* elements of a strip */
    TG_GPU_PATCH = 4096,       /* elements of a patch, unless a bin is longer */
    TG_GPU_BIN_MAX = 16384,    /* elements of the longest bin, and of a unit whose largest are found by one block */
    TG_GPU_DRAW_ALONE = 65536, /* elements of a unit that one block draws from */
    TG_GPU_CELLS = 2048,       /* in which keys are counted */
    TG_GPU_NEAR = 4096,        /* candidates in the cell of the k-th largest that one block chooses from */
    TG_GPU_LEAVES_EACH = 8,    /* leaves of maxima of bins that a block sums */
    TG_GPU_SHARES = 2,         /* blocks that look through the lists of a chunk, each through up to: */
    TG_GPU_SHARE = 288         /* strips; a chunk of a unit whose largest are selected has at most twice as many */
};

/* How hard topk tries: with the bound of the last step, with one from a sample, or without. */
enum { TG_GPU_GUESSES, TG_GPU_SAMPLES, TG_GPU_TAKES_ALL };

/* A stretch of a chunk, and of its unit around it where whole bins are read. All positions are of its element 0; elements before
 * `lead`, which align the others, and from `end` on are not there. The patch's own are [skip, skip + n). */
typedef struct tg_gpu_patch {
    uint64_t at;          /* in the unit; it may be below 0, as the next ones */
    uint64_t residual_at; /* in the residual state */
    uint64_t tensor_at;   /* in the tensor, if all elements are in one */
    uint64_t list_at;     /* in the lists of strips */
    uint32_t chunk, unit, tensor;
    uint32_t origin; /* in the chunk */
    uint32_t lead, end, skip, n;
    uint32_t strip_at; /* the number of its first strip */
    uint8_t dtype, is_one;
    uint8_t zero[2];
} tg_gpu_patch;

/* What selection knows of a unit. */
typedef struct tg_gpu_selected {
    uint64_t n;                    /* elements of the whole unit, in all slices */
    uint64_t bit_at;               /* of the unit in `bits`, in words, if its coordinates are drawn or the leader's */
    uint64_t leaf_at;              /* of the unit in `leaves`, if its scale is the mean of the maxima of its bins */
    uint32_t chunk_first, chunk_n; /* its chunks in `unit_chunks` */
    uint32_t top;                  /* in `tops`, if the largest are selected */
    uint32_t ratio;                /* in `ratios`, likewise */
} tg_gpu_selected;

/* The state of a unit whose largest magnitudes are selected. */
typedef struct tg_gpu_top {
    uint64_t k;
    uint64_t last;            /* elements of key kth are sent up to this one, in the unit */
    uint64_t rank;            /* of the k-th largest among the keys that begin as it does */
    unsigned long long found; /* candidates */
    uint32_t bound;           /* a magnitude key; candidates reach it */
    uint32_t guess;           /* elements that reach it are probably sent */
    uint32_t guessed;         /* those were, in this step, taken out of the residual already */
    uint32_t shift;           /* a cell has 2^shift keys from the bound on; TG_GPU_UNCOUNTED: they are counted later */
    uint32_t kth;             /* the k-th largest key */
    uint32_t equal;           /* keys that begin as it does, as far as is known */
    uint32_t done;            /* shares of chunks that were looked through */
    uint32_t near_n;
    uint32_t is_ready; /* bound, guess and shift are of an earlier step */
    uint32_t zero;
} tg_gpu_top;

#define TG_GPU_UNCOUNTED 32u

/* A unit whose largest are found by one block, and the first of its patches, which have no more strips than a block has warps. */
typedef struct tg_gpu_short {
    uint32_t unit, patch;
} tg_gpu_short;

/* What is left to draw with randomk. */
typedef struct tg_gpu_drawing {
    uint64_t key;             /* of the stream */
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
    const uint32_t *unit_chunks; /* chunks of all units, in the order of elements */
    const uint32_t *strip_first; /* of each chunk, and one more */
    const uint32_t *strip_from;  /* of each strip: its first own element in the chunk, where its lists begin, too */
    const tg_gpu_short *shorts;  /* units whose largest are found by one block */
    const uint32_t *longs;       /* units whose largest are found by many */
    const uint32_t *drawns;      /* units whose coordinates are drawn by randomk */
    const uint32_t *leaf_units;  /* of each TG_GPU_LEAVES_EACH of `leaves`: their unit */
    uint32_t *counts;            /* of listed elements, by strip */
    uint32_t *ties;              /* of elements of exactly the k-th magnitude, by chunk */
    uint32_t *known_n;           /* coordinates that are drawn or the leader's, by chunk */
    uint32_t *bits;              /* of units whose coordinates are known */
    tg_gpu_drawing *drawings;    /* by unit; NULL: none is drawn by randomk */
    tg_gpu_top *tops;            /* of longs, then of shorts */
    uint32_t *cells;             /* of longs: numbers of candidates by their keys. 0 between steps */
    uint64_t *nears;             /* of longs: candidates close to the k-th largest */
    double *leaves;              /* sums of leaves of bins' maxima */
    uint32_t *leaves_done;       /* by unit: blocks that have summed theirs. 0 between steps */
    double *ratios_now;          /* of this step, as `ratios` */

    /* host memory */
    const uint32_t *patch_first;                       /* of each chunk, and one more */
    const double *ratios;                              /* parameters of topk that occur, 8 each */
    double *ratios_set;                                /* those of ratios_now */
    uint32_t short_n, long_n, drawn_n, far_n, ratio_n; /* far_n of `drawns`, the first ones, are drawn by many blocks */
    uint32_t routes;                                   /* bit r: some unit takes route r */
    uint32_t has_long_bins, has_indices; /* some bin is longer than a patch; some unit's indices are in frames */
    uint32_t has_blocks;                 /* some unit's coordinates are drawn by randomblock */
    uint32_t draw_blocks;                /* a unit, in a round of drawing */
    uint32_t leaf_blocks;                /* of all units, that sum maxima of bins */
    uint32_t effort;                     /* of topk, in the next pass */
    uint32_t failures, pause;            /* guesses that were wrong lately; steps without one that follow */
};

/* The tables of a plan, in host memory. */
typedef struct tg_gpu_tables {
    const tg_gpu_unit *units;
    const tg_gpu_piece *pieces;
    const tg_gpu_chunk *chunks;
    uint32_t unit_n, chunk_n;
} tg_gpu_tables;

/* What a selection takes: bytes of host memory, bytes of device memory, and of both, from the start, bytes that the caller copies
 * from host to device once it is set up. Device memory is cleared before. */
typedef struct tg_gpu_selection_lens {
    uint64_t host, device, copied;
} tg_gpu_selection_lens;

/* selection.c. `parent`: a plan of the same units whose coordinates are drawn or followed for this one, too; NULL: none. */
tg_gpu_selection_lens tg_gpu_selection_measure(const tg_gpu_tables *t, const tg_gpu_selection *parent);
void tg_gpu_selection_set_up(tg_gpu_selection *out, void *host, void *device, const tg_gpu_tables *t,
                             const tg_gpu_selection *parent);

/* What of a unit's selection or indices has no kernel; NULL: nothing. */
const char *tg_gpu_select_lacks(const tg_gpu_unit *unit);

/* Whether a pass has to be made again, because topk could not tell: verdict.again. Otherwise the next pass may guess. */
int tg_gpu_select_again(tg_gpu_selection *selection, uint32_t again);

/* select_drawn.cu: draws for the step of a pass what all ranks share and, with `own_too`, this rank's own, of all units that have
 * their first chunk in the pass. With a parent, that one draws. To be counted then. */
void tg_gpu_draw_coordinates(const tg_gpu_pass *p, const tg_gpu_selection *selection, int own_too);

/* select_drawn.cu: counts known coordinates of each chunk of a pass, to selection->known_n[chunk]. Selecting and reading need the
 * counts, too. */
void tg_gpu_count_known(const tg_gpu_pass *p, const tg_gpu_selection *selection);

/* select_drawn.cu: known coordinates of each chunk to space.positions. */
void tg_gpu_list_known(const tg_gpu_pass *p, const tg_gpu_selection *selection);

/* select_drawn.cu: takes the leader's coordinates, which a pass over the leader's frame has read to space.positions, into the
 * selection of the plan that follows. To be counted then. */
void tg_gpu_follow_leader(const tg_gpu_pass *leader, const tg_gpu_selection *selection);

/* The two halves of tg_gpu_select_sparse. Marks are of whole units: the pass has all chunks of the plan that its units have. They stay
 * in the selection until the next ones, so that cells can be listed one after the other. */
void tg_gpu_mark_sparse(const tg_gpu_pass *p, tg_gpu_selection *selection, float *maxima);
void tg_gpu_list_sparse(const tg_gpu_pass *p, tg_gpu_selection *selection);

/* The launches that these consist of, over patches [first, end). select_bins.cu, select_sum.cu, select_top.cu, select_near.cu. */
void tg_gpu_select_bins(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end, float *maxima);
void tg_gpu_scale_bins(const tg_gpu_pass *p, const tg_gpu_selection *s, const float *maxima);
void tg_gpu_select_sum(const tg_gpu_pass *p, const tg_gpu_selection *s, uint32_t first, uint32_t end);
void tg_gpu_select_start_top(const tg_gpu_pass *p, const tg_gpu_selection *s);
void tg_gpu_select_top(const tg_gpu_pass *p, const tg_gpu_selection *s);
void tg_gpu_select_near(const tg_gpu_pass *p, const tg_gpu_selection *s);

/* selection.c, for these: the patches of the chunks of a pass; the ratio of a class at a step. */
void tg_gpu_selection_range(uint32_t *first, uint32_t *end, const tg_gpu_selection *s, const tg_gpu_pass *p);
double tg_gpu_selection_ratio(const tg_gpu_selection *s, uint32_t number, uint64_t step);

#ifdef __cplusplus
}
#endif
#endif
