/* The plan as kernels see it: plain tables in device memory, written once when a plan is opened, and what one pass is given.
 * C and CUDA C include it. */
#ifndef TG_EXEC_CUDA_TABLES_H
#define TG_EXEC_CUDA_TABLES_H

#include "routes/view.h"

#include <stdint.h>

enum { TG_GPU_FEW = 4 };     /* pointers that go to kernels by value, so that they need no copy */
enum { TG_GPU_PARAMS = 12 }; /* of a part; more than any part in a frame has */

/* Ids of parts (recipe/parts.def) that kernels distinguish. */
enum { TG_GPU_FEEDBACK_NONE = 1, TG_GPU_FEEDBACK_EF, TG_GPU_FEEDBACK_MOMENTUM };
enum {
    TG_GPU_SELECT_ALL = 1,
    TG_GPU_SELECT_TOPK,
    TG_GPU_SELECT_THRESHOLD,
    TG_GPU_SELECT_RANDOMK,
    TG_GPU_SELECT_RANDOMBLOCK,
    TG_GPU_SELECT_ADABINS
};
enum {
    TG_GPU_FP32 = 1,
    TG_GPU_FP16,
    TG_GPU_BF16,
    TG_GPU_SIGN,
    TG_GPU_BINGRAD,
    TG_GPU_ORQ,
    TG_GPU_LINEAR,
    TG_GPU_QSGD,
    TG_GPU_TERNARY,
    TG_GPU_NATURAL,
    TG_GPU_FP8 = 12,
    TG_GPU_FP4 = 13,
    TG_GPU_MXFP4 = 16,
    TG_GPU_NVFP4 = 17,
    TG_GPU_MXFP8 = 18
};
enum { TG_GPU_INDEX_BITMAP = 1, TG_GPU_INDEX_GAPS, TG_GPU_INDEX_ADACOMP8, TG_GPU_INDEX_ADACOMP16 };
/* In tg_gpu_pass.kinds: of units whose values are plain (TG_KIND_NONE of quantize.h). */
#define TG_GPU_NO_KIND 1u
/* In tg_gpu_pass.packs: some symbols of fixed length are packed by pack_leaves.cu, written by round.cu or signs.cu. */
#define TG_GPU_PACKS_LEAVES 1u
#define TG_GPU_ROUNDS_LEAVES 64u
enum { TG_GPU_BITS = 1, TG_GPU_HUFFMAN, TG_GPU_RANS, TG_GPU_LOSSLESS, TG_GPU_JOINT /* by kernels of indices */ };

/* A unit's plan (plan.h). */
typedef struct tg_gpu_unit {
    uint64_t lo, hi;      /* its part of the domain */
    uint64_t flat_at;     /* of that part in the domain laid end to end */
    uint64_t residual_at; /* of that part in the residual state; plane p is p * (hi - lo) further */
    uint64_t pending_at;  /* likewise: of the scale that is still to be subtracted from residuals; 0: nothing ever is */
    double feedback_params[2], select_params[8], quantize_params[TG_GPU_PARAMS], symbol_params[2];
    uint32_t planes;
    uint32_t piece_first, piece_n; /* in the table of pieces */
    uint32_t plain_len, base, bucket_n, side_len, head_len, bin, header_len;
    uint32_t rotation, signs[4];
    uint32_t kinds;               /* of its quantizer's kernels: tg_gpu_quantize_kinds */
    uint32_t group_n, group_bits; /* symbols that are packed together, and the bits that they take */
    uint64_t inverse;             /* 2^64 / base, rounded up */
    uint32_t bucket_inverse;      /* 2^32 / bucket_n, rounded down, or less by 1; 0: there is one bucket */
    uint32_t refit;               /* every so many steps have a fit of their own; 0: each has, or there is none */
    int32_t scale;                /* tg_scale_rule */
    float gain;
    uint8_t route, values, coordinates; /* tg_route_id, tg_value_kind, tg_coordinates */
    uint8_t feedback, select, quantize, index, symbol;
    uint8_t coded, draws, presums, verbatim;
} tg_gpu_unit;

/* The part of a unit that is in one tensor. */
typedef struct tg_gpu_piece {
    uint64_t at, n;
    uint32_t tensor, dtype;
} tg_gpu_piece;

/* A chunk of the grid. */
typedef struct tg_gpu_chunk {
    uint64_t at;         /* of its first element in the unit */
    uint64_t element_at; /* in all units laid end to end: where its part of arrays by element begins */
    uint64_t header_at;  /* of its header in the body of its cell */
    uint32_t unit, n;
    uint32_t leaf_at; /* where its part of `magnitudes` begins */
    uint32_t cell;
    uint64_t body_at;       /* of chunks of fixed length: where it is in the body of its cell */
    uint32_t len, side_len; /* likewise its length, and that of what travels beside its values */
    uint64_t fit_at;        /* where its fit is in the residual state, if fits of its unit are kept */
} tg_gpu_chunk;

/* Chunks of a row (tg_gpu_pass.has_rows); elements of one whose leaves are summed when its scale is written. */
enum { TG_GPU_ROW = 256, TG_GPU_SUMMED_LATE = 1 << 20 };

/* A leaf of the frame (hash.h) in a chunk of fixed length. */
typedef struct tg_gpu_leaf {
    uint32_t chunk, unit, number;
} tg_gpu_leaf;

#define TG_GPU_TILE 4096u /* elements */

/* A tile of a chunk: what one block takes in passes over all elements. */
typedef struct tg_gpu_tile {
    uint32_t chunk, from;
    uint32_t n, unit;
    uint32_t piece;    /* of the unit, in the table of pieces, that its first element is in */
    uint32_t is_whole; /* all elements are in that piece */
    uint64_t at;       /* of its first element in the unit */
} tg_gpu_tile;

/* Up to TG_GPU_PART_TILES tiles of a chunk, side by side: what a block holds in shared memory (hold.cu). */
enum { TG_GPU_PART_TILES = 4, TG_GPU_PARTS = 16 /* of a chunk; the last ones of a short chunk are empty */ };
typedef struct tg_gpu_part {
    uint32_t tile, tile_n; /* the first, counted from that of the first part of the pass as in the table of the run */
} tg_gpu_part;

/* Bodies of one cell that a kernel takes at once, by value. */
enum { TG_GPU_BODIES = 16 };
typedef struct tg_gpu_bodies {
    const uint8_t *at[TG_GPU_BODIES];
    uint32_t n;
} tg_gpu_bodies;

/* What went wrong in a pass; 0 everywhere: nothing. The host reads it after the pass. */
typedef struct tg_gpu_verdict {
    uint32_t bad_tensor; /* 2^32 - 1 less the number of the first tensor that holds NaN or Inf; written by atomicMax */
    uint32_t bad_chunk;  /* 2^32 - 1 less the number of the first chunk that is damaged; likewise */
    uint32_t bad_front;  /* of a check: what stands before the body is not what must be there */
    uint32_t bad_residual; /* likewise the first tensor of which gradient + residual, or the next residual, overflows */
    uint32_t overflows;    /* an average of finite values is not finite */
    uint32_t again;        /* topk could not tell what is sent: see select.h */
} tg_gpu_verdict;

/* Of a leaf of 1,024 values. */
typedef struct tg_gpu_moments {
    double magnitudes, squares;
    uint32_t count; /* of values that are not 0 */
} tg_gpu_moments;

/* The same of a part of a chunk, as other blocks wait for it: each word is 0 until it is known. */
typedef struct tg_gpu_node {
    uint64_t magnitudes, squares; /* bits of sums, and that of their sign */
    uint64_t count;               /* plus 1 */
} tg_gpu_node;

/* How far a kernel is with a chunk that blocks take tile by tile (round.cu) or part by part (hold.cu); 0 between kernels. */
typedef struct tg_gpu_progress {
    uint32_t summed, rounded; /* tiles; parts */
    uint64_t fit;             /* bits of the step, and the number of the shape plus 1 from bit 32 on; 0: not known */
    tg_gpu_node nodes[TG_GPU_PARTS];
} tg_gpu_progress;

/* Coordinates of a chunk that are two ranges: elements below `low`, then those from `high` on. */
typedef struct tg_gpu_ranges {
    uint32_t low, high;
} tg_gpu_ranges;

/* Buffers by element or by chunk, reused by all passes of a run and the runs that share with it. */
typedef struct tg_gpu_space {
    uint8_t *symbols;    /* one a value, of 1 byte, or of 2 if base > 256; those of a chunk begin at 2 * element_at */
    float *values;       /* selected values of sparse chunks; those of a chunk begin at element_at */
    uint32_t *positions; /* their coordinates in the chunk, ascending; likewise */
    uint32_t *
        list_first; /* of sparse chunks that are checked and added at once: values of all chunks before, of each chunk and, last, of all */
    tg_gpu_ranges *ranges;   /* likewise, of chunks of a random block: their coordinates */
    uint16_t *strip_places;  /* lists of strips (select.h): places of selected elements or candidates, by element ... */
    float *strip_values;     /* ... and gradient + residual there */
    uint8_t *words;          /* words that are coded or decoded; those of a chunk begin at 4 * element_at */
    tg_view *views;          /* of each chunk */
    uint8_t **out;           /* where each chunk is written */
    double *magnitudes;      /* sums of leaves of 1,024 values, where the scale is a mean of what is sent */
    tg_gpu_moments *moments; /* of leaves, likewise, where a step is fitted to chunks */
    tg_gpu_progress *progress; /* of each chunk, likewise */
    uint32_t *next_tile;       /* that a block takes; 0 between kernels */
    float *scales;             /* of each unit */
    float *clips;              /* of each unit: the factor that bounds the norm of its gradient */
    uint32_t *overflows;       /* of each chunk: whether an average is not finite */
    float *sums;               /* one an element of the domain, while bodies are summed */
    uint8_t *scratch;          /* of coded packs */
    uint8_t *slots;            /* scratch of quantizers, slot_n times slot_len bytes: see tg_gpu_quantize_scratch */
    uint64_t slot_len;
    uint32_t slot_n;
} tg_gpu_space;

/* What all kernels of a pass are given, by value. Chunks are numbered in the grid; a launch covers [first, first + chunk_n). */
typedef struct tg_gpu_pass {
    const tg_gpu_unit *units;
    const tg_gpu_piece *pieces;
    const tg_gpu_chunk *chunks;
    uint32_t first, chunk_n;
    const tg_gpu_tile *tiles; /* of these chunks */
    uint32_t tile_n;
    const tg_gpu_leaf *leaves; /* of these chunks, if all are of fixed length */
    uint32_t leaf_n;
    const tg_gpu_part *parts;     /* of these chunks, if blocks can hold them in shared memory; else NULL */
    uint32_t part_n, part_blocks; /* how many; that are held at once */
    uint32_t
        packs; /* how their symbols and words are packed: 1 << TG_GPU_BITS for symbols that are not coded, 1 << symbol
                         for units with `coded`; 0: not known */

    const void *const *grads; /* the source: by tensor, or the domain laid end to end */
    const float *flat;
    const uint32_t *sound;       /* nothing is added unless 1 is there; NULL: the body is sound */
    float *const *added;         /* where values of a body are added: to tensors; NULL: to space.sums */
    const void *few[TG_GPU_FEW]; /* in place of `grads`, if that and `flat` are NULL, and of `added`, with `adds_few` */
    const float *now;            /* residual state */
    float *next;

    tg_gpu_space space;
    tg_gpu_verdict *verdict;
    uint64_t seed, step;
    const uint64_t *step_at; /* where the step is in device memory, if it is not `step`; NULL: it is */
    uint32_t rank;
    uint32_t processors; /* multiprocessors of the GPU */
    uint32_t kinds;      /* of its units, one bit each (tg_gpu_quantize_kinds); 0: not known */
    uint8_t nonfinite;   /* tg_nonfinite */
    uint8_t is_answer, has_values, has_clip, has_residuals, adds_few;
    uint8_t splits;       /* decoded words of lossless coding stay in parts, which are joined as they are added */
    uint8_t counts_early; /* symbols that are coded are counted when they are rounded (hold.cu) */
    uint8_t overlaps;     /* kernels may be launched early (kernel.h) */
    uint8_t has_rows;     /* the chunks of each unit are side by side, all in the pass, and at most TG_GPU_ROW */
    void *stream;
} tg_gpu_pass;

#endif
