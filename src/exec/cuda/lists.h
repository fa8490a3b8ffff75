/* Lists of strips (select.h) of a chunk as one list, while a block reads them. */
#ifndef TG_EXEC_CUDA_LISTS_H
#define TG_EXEC_CUDA_LISTS_H

#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

/* A strip, as one thread loads it: where its list begins in the chunk, and how many entries it has. */
typedef struct tg_strip_lens {
    uint32_t from, n;
} tg_strip_lens;

/* Up to N strips that have entries, in shared memory: where their lists begin in the chunk, and the numbers of their first entries, which are
 * out of reach from the first strip that is not there. */
template <unsigned N> struct tg_strips {
    uint32_t from[N], start[N + 1];
};

/* A strip below `end`. What other kernels have written may be read before the kernel before this one ends, so it is not asked of the
 * first-level cache. */
TG_DEVICE tg_strip_lens tg_strip_load(const tg_gpu_selection &s, uint32_t strip, uint32_t end)
{
    return {strip < end ? s.strip_from[strip] : 0, strip < end ? __ldcg(&s.counts[strip]) : 0};
}

/* Joins the strips of all N threads; returns the number of their entries. */
template <unsigned N> TG_DEVICE uint32_t tg_strips_join(tg_strips<N> &t, const tg_strip_lens &own)
{
    const uint32_t STRIP = 1u << 20; /* strips are counted in upper bits */
    uint32_t total, before = tg_block_scan(own.n > 0 ? own.n + STRIP : 0, &total); /* all are done with strips before */
    if (own.n > 0) {
        t.from[before / STRIP] = own.from;
        t.start[before / STRIP] = before % STRIP;
    }
    if (threadIdx.x >= total / STRIP) {
        t.start[threadIdx.x] = 0xffffffffu;
    }
    if (threadIdx.x == 0) {
        t.start[N] = 0xffffffffu;
    }
    __syncthreads();
    return total % STRIP;
}

/* The strip that has an entry, which is there. */
template <unsigned N> TG_DEVICE uint32_t tg_strip_of(const tg_strips<N> &t, uint32_t entry)
{
    uint32_t strip = 0;
    TG_UNROLL
    for (uint32_t by = N / 2; by > 0; by /= 2) {
        strip += t.start[strip + by] <= entry ? by : 0;
    }
    return strip;
}

#endif
