/* What writing and reading of indices share: modes (docs/format.md section 4, pack/pack.h), and the model of the geometric code. */
#ifndef TG_EXEC_CUDA_INDEX_H
#define TG_EXEC_CUDA_INDEX_H

#include "exec/cuda/kernel.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/tables.h"

enum {
    TG_GPU_RICE_MAX = 18,
    TG_GPU_MODE_BITMAP = 32,
    TG_GPU_MODE_RUNS = 33,
    TG_GPU_MODE_EVERY = 34,
    TG_GPU_MODE_ADACOMP8 = 35,
    TG_GPU_MODE_ADACOMP16 = 36,
    TG_GPU_MODE_RANS = 37
};
enum { TG_GPU_BITMAP_MAX = 262144 / 8 };

TG_DEVICE uint32_t tg_bitmap_bytes(uint32_t n)
{
    return (n + 7) / 8;
}

/* ---- geometric: pack/geometric.c ------------------------------------------------------------------------------------------- */

enum {
    TG_GPU_LETTERS = 64,
    TG_GPU_LETTER_BITS = 12,
    TG_GPU_LETTER_TOTAL = 1 << TG_GPU_LETTER_BITS,
    TG_GPU_RANS_START = 1 << 15
};

/* Cumulative frequencies of letters to start[0] to start[64]; returns k. One thread. */
TG_DEVICE uint32_t tg_geometric_model(uint32_t *start, uint32_t n, uint32_t count)
{
    uint64_t tail = ((uint64_t)(n - count) << 32) / n, left = TG_GPU_LETTER_TOTAL;
    uint32_t k = 0;
    for (; (uint64_t)count << (k + 4) <= n; k++) {
        tail = (tail * tail) >> 32;
    }
    for (uint32_t j = 0; j < TG_GPU_LETTERS; j++) {
        start[j] = TG_GPU_LETTER_TOTAL - (uint32_t)left;
        uint64_t next = (left * tail) >> 32, least = TG_GPU_LETTERS - 1 - j;
        next = next < least ? least : next;
        left = next < left ? next : left - 1;
    }
    start[TG_GPU_LETTERS] = TG_GPU_LETTER_TOTAL;
    return k;
}

#endif
