/* What LGC's passes on a GPU keep. */
#ifndef TG_EXEC_CUDA_LGC_RUN_H
#define TG_EXEC_CUDA_LGC_RUN_H

#include "exec/cuda/learner.h"
#include "exec/cuda/lgc.h"
#include "exec/cuda/run.h"
#include "exec/lgc.h"

/* A selection, and the memory of its tables. */
typedef struct tg_gpu_lgc_selecting {
    tg_gpu_lgc_selection selection;
    tg_gpu_lgc_segment *segments;
    tg_gpu_lgc_tile *tiles;
    uint64_t cell_len; /* bytes of cells, which are cleared before */
} tg_gpu_lgc_selecting;

/* Coordinates as bytes, likewise. */
typedef struct tg_gpu_lgc_masking {
    tg_gpu_lgc_mask mask;
    tg_gpu_unit *unit;
    uint32_t *positions;
    tg_view *views;
    uint8_t **out;         /* where chunks are written ... */
    uint8_t *staging;      /* ... in this */
    uint32_t *patch_first; /* host */
} tg_gpu_lgc_masking;

/* Device memory, unless stated otherwise. */
typedef struct tg_gpu_lgc_run {
    tg_lgc *lgc;
    const tg_gpu *gpu;
    tg_gpu_learner learner;
    tg_gpu_lgc all; /* what launches are given */
    bool clips;     /* some gradients have a bounded norm */
    tg_gpu_lgc_tensor *tensors;
    tg_gpu_lgc_tile *tiles;
    uint32_t *names;                    /* tensors of entries, then of coded values */
    tg_gpu_lgc_selecting lead, largest; /* of tensors; of a sequence, for an innovation */
    tg_gpu_lgc_masking lead_mask, innovation_mask;
    tg_gpu_lgc_ordering ordering;
    tg_gpu_lgc_digits *groups;
    tg_gpu_lgc_verdict *verdict_here; /* pinned */
    tg_gpu_verdict *chunk_verdict;
    float *values;      /* of each rank, at entries: coded values first, then picked ones */
    float *sequences;   /* of each rank */
    float *innovations; /* of each rank; of a server */
    float *sequence;    /* one sequence */
    uint64_t *kept_at;  /* coordinates of an innovation */
    float *code;        /* a server's: the leader's */
    float *means;       /* averages at entries: coded values first, then picked ones */
    float *vector, *average;
    const uint8_t **bodies;
} tg_gpu_lgc_run;

tg_status tg_gpu_lgc_open(tg_lgc *l, tg_detail *why) TG_CHECKED;
void tg_gpu_lgc_close(tg_lgc *l);

#endif
