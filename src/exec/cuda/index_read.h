/* Indices of a chunk while a block reads them, and the reader of Rice codes. */
#ifndef TG_EXEC_CUDA_INDEX_READ_H
#define TG_EXEC_CUDA_INDEX_READ_H

#include "exec/cuda/bit_stream.h"
#include "exec/cuda/scan.h"

enum { TG_INDEX_THREADS = 512 };

typedef struct tg_indices {
    uint32_t *positions; /* where they go */
    const uint8_t *bytes;
    uint32_t len, n, count;
} tg_indices;

/* Sums over parts of a stream stop here, far beyond the elements of a chunk, so that those of a block fit in 32 bits. */
#define TG_INDEX_BEYOND (1u << 21)

/* The share of a thread in n items: consecutive ones. */
TG_DEVICE uint32_t tg_index_share(uint32_t n)
{
    return (n + TG_INDEX_THREADS - 1) / TG_INDEX_THREADS;
}

/* ---- Rice codes -------------------------------------------------------------------------------------------------------------- */

/* 32 bits from bit `at` on, the first of them above. */
template <class Stream> TG_DEVICE uint32_t tg_rice_bits(const Stream &s, uint32_t at)
{
    return __funnelshift_l(s.word(at / 32 + 1), s.word(at / 32), at % 32);
}

/* The ones with which the code at bit `at` begins; the end of the stream ends them. */
template <class Stream> TG_DEVICE uint32_t tg_rice_ones(const Stream &s, uint32_t at)
{
    uint32_t bits = tg_rice_bits(s, at), longer = 0;
    while (bits == 0 && at + longer < s.len * 8) { /* hardly ever */
        longer += 32;
        bits = tg_rice_bits(s, min(at + longer, s.len * 8));
    }
    return longer + (uint32_t)__clz((int)bits);
}

/* One code: returns where it ends, which is beyond the stream if it is not complete; its gap, or a larger one beyond 2^20. */
template <class Stream> TG_DEVICE uint32_t tg_rice_code(uint32_t *gap, const Stream &s, uint32_t k, uint32_t at)
{
    uint32_t ones = tg_rice_ones(s, at), low_at = at + ones + 1, low = tg_rice_bits(s, min(low_at, s.len * 8));
    *gap = min(ones, (1u << 20) >> k) << k | (__brev(~low) & ((1u << k) - 1));
    return low_at + k;
}

/* What a thread finds in its part of the bits. */
typedef struct tg_rice_part {
    uint32_t start, end; /* of its codes: bits; TG_RICE_NONE: there are none any more */
    uint32_t codes;
    uint32_t elements; /* that they cover; at most TG_INDEX_BEYOND */
} tg_rice_part;

#define TG_RICE_NONE 0xffffffffu

/* Reads the codes that begin in [start, limit). */
template <class Stream> TG_DEVICE void tg_rice_scan(tg_rice_part *part, const Stream &s, uint32_t k, uint32_t limit)
{
    uint32_t at = part->start, codes = 0, elements = 0, gap;
    TG_ROLL
    while (at < limit) {
        uint32_t end = tg_rice_code(&gap, s, k, at);
        bool is_whole = end <= s.len * 8;
        codes += is_whole ? 1 : 0;
        elements = min(elements + (is_whole ? gap + 1 : 0), TG_INDEX_BEYOND);
        at = is_whole ? end : TG_RICE_NONE;
    }
    part->codes = codes;
    part->elements = elements;
    part->end = at;
}

/* Where codes begin is known when those before have been read. But wrong starts meet the right codes after a few. So each thread
 * begins to read some codes before its part of the bits. If the part before it ends elsewhere than it thinks, it reads again from
 * there; at worst there are as many rounds as there are threads. */
template <class Stream> TG_DEVICE uint32_t tg_rice_guess(const Stream &s, uint32_t k, uint32_t from)
{
    enum { EARLIER = 32 }; /* codes, of k + 2 bits or more */
    uint32_t bits = EARLIER * (k + 2), at = from > bits ? from - bits : 0;
    TG_ROLL
    while (at < from) {
        at += tg_rice_ones(s, at) + 1 + k;
    }
    return at <= s.len * 8 ? at : TG_RICE_NONE;
}

/* `ends` are in shared memory. */
template <class Stream>
TG_DEVICE void tg_rice_meet(tg_rice_part *part, uint32_t (&ends)[TG_INDEX_THREADS + 1], const Stream &s, uint32_t k,
                            uint32_t limit)
{
    bool has_bits = part->start < limit, changes = has_bits;
    if (has_bits) {
        part->start = tg_rice_guess(s, k, part->start);
    }
    do {
        if (changes) {
            tg_rice_scan(part, s, k, limit);
            ends[threadIdx.x + 1] = part->end;
        }
        __syncthreads();
        uint32_t start = threadIdx.x == 0 || !has_bits ? part->start : ends[threadIdx.x];
        changes = start != part->start;
        part->start = start;
    } while (__syncthreads_or(changes));
}

/* Whether only the zero bits that fill the last byte follow. */
template <class Stream> TG_DEVICE bool tg_rice_ends_well(const Stream &s, uint32_t at)
{
    uint32_t left = s.len * 8 - at;
    return left < 8 && (left == 0 || tg_rice_bits(s, at) == 0xffffffffu);
}

template <class Stream>
TG_DEVICE bool tg_read_rice(const tg_indices &x, uint32_t (&ends)[TG_INDEX_THREADS + 1], const Stream &s, uint32_t k)
{
    enum { LEAST = 64 }; /* bits of a thread */
    uint32_t share = max(tg_index_share(x.len * 8), (uint32_t)LEAST);
    uint32_t from = threadIdx.x * share, limit = min(from + share, x.len * 8), gap = 0;
    tg_rice_part part = {from, 0, 0, 0};
    tg_rice_meet(&part, ends, s, k, limit);
    uint64_t all, before = tg_block_scan((uint64_t)part.codes << 32 | part.elements, &all);
    uint32_t number = (uint32_t)(before >> 32), next = (uint32_t)before, at = part.start;
    bool is_bad = all >> 32 < x.count;
    TG_ROLL
    for (uint32_t i = 0; i < part.codes && number < x.count; i++, number++) {
        at = tg_rice_code(&gap, s, k, at); /* it was complete before */
        bool is_in = next + gap < x.n;
        is_bad = is_bad || !is_in;
        x.positions[number] = is_in ? next + gap : 0;
        next = min(next + gap + 1, TG_INDEX_BEYOND * TG_INDEX_THREADS);
        is_bad = is_bad || (number + 1 == x.count && !tg_rice_ends_well(s, at));
    }
    return __syncthreads_or(is_bad) == 0;
}

#endif
