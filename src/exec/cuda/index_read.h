/* Indices of a chunk while a block reads them, and the reader of Rice codes. */
#ifndef TG_EXEC_CUDA_INDEX_READ_H
#define TG_EXEC_CUDA_INDEX_READ_H

#include "exec/cuda/bit_stream.h"
#include "exec/cuda/scan.h"

enum { TG_INDEX_THREADS = 1024 };

typedef struct tg_indices {
    uint32_t *positions; /* where they go */
    const uint8_t *bytes;
    uint32_t len, n, count;
} tg_indices;

/* ---- Rice codes -------------------------------------------------------------------------------------------------------------- */

/* One code: where it ends and its gap. False: it is not complete. */
TG_DEVICE bool tg_rice_code(uint32_t *at, uint64_t *gap, const tg_bit_stream &s, uint32_t k)
{
    uint32_t bit_n = s.len * 8, quotient = 0, bit = *at, bits = tg_stream_bits(s, bit), ones;
    while ((ones = (uint32_t)__ffs((int)~bits)) == 0) { /* all of them */
        quotient += 32;
        bit += 32;
        if (bit >= bit_n) {
            return false;
        }
        bits = tg_stream_bits(s, bit);
    }
    quotient += ones - 1;
    bit += ones - 1;
    if (bit_n < bit + 1 + k) {
        return false;
    }
    uint32_t low = ones + k <= 32 ? (uint32_t)((uint64_t)bits >> ones) : tg_stream_bits(s, bit + 1);
    low &= (1u << k) - 1;
    *gap = (uint64_t)quotient << k | low;
    *at = bit + 1 + k;
    return true;
}

/* What a thread finds in its part of the bits. */
typedef struct tg_rice_part {
    uint32_t start, end; /* of its codes: bits; TG_RICE_NONE: there are none any more */
    uint32_t codes;
    uint64_t elements; /* that they cover */
} tg_rice_part;

#define TG_RICE_NONE 0xffffffffu

/* Reads the codes that begin in [start, limit). */
TG_DEVICE void tg_rice_scan(tg_rice_part *part, const tg_bit_stream &s, uint32_t k, uint32_t limit)
{
    uint32_t at = part->start;
    uint64_t gap;
    part->codes = 0;
    part->elements = 0;
    while (at < limit) {
        if (!tg_rice_code(&at, &gap, s, k)) {
            at = TG_RICE_NONE;
            break;
        }
        part->codes++;
        part->elements += gap + 1;
    }
    part->end = at;
}

/* Where codes begin is known when those before have been read. But wrong starts meet the right codes after a few. So each thread
 * begins to read some codes before its part of the bits. If the part before it ends elsewhere than it thinks, it reads again from
 * there; at worst there are as many rounds as there are threads. */
TG_DEVICE uint32_t tg_rice_guess(const tg_bit_stream &s, uint32_t k, uint32_t from)
{
    enum { EARLIER = 40 }; /* codes, of k + 2 bits or more */
    uint32_t bits = EARLIER * (k + 2), at = from > bits ? from - bits : 0;
    uint64_t gap;
    while (at < from) {
        if (!tg_rice_code(&at, &gap, s, k)) {
            return TG_RICE_NONE;
        }
    }
    return at;
}

TG_DEVICE void tg_rice_meet(tg_rice_part *part, const tg_bit_stream &s, uint32_t k, uint32_t limit)
{
    __shared__ uint32_t ends[TG_INDEX_THREADS + 1];
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
TG_DEVICE bool tg_rice_ends_well(const tg_bit_stream &s, uint32_t at)
{
    uint32_t left = s.len * 8 - at;
    return left < 8 && (left == 0 || tg_stream_bits(s, at) == 0);
}

TG_DEVICE bool tg_read_rice(const tg_indices &x, uint32_t k)
{
    enum { LEAST = 64 }; /* bits of a thread */
    __shared__ uint32_t words[TG_STREAM_WORDS];
    tg_bit_stream s = tg_stream_open(words, x.bytes, x.len);
    uint32_t share = (x.len * 8 + TG_INDEX_THREADS - 1) / TG_INDEX_THREADS, codes;
    share = share < LEAST ? (uint32_t)LEAST : share;
    uint32_t from = threadIdx.x * share, limit = from + share < x.len * 8 ? from + share : x.len * 8;
    tg_rice_part part = {from, 0, 0, 0};
    tg_rice_meet(&part, s, k, limit);
    uint32_t number = tg_block_scan(part.codes, &codes), at = part.start;
    uint64_t all, next = tg_block_scan(part.elements, &all), gap = 0;
    bool is_bad = codes < x.count;
    for (uint32_t i = 0; i < part.codes && number < x.count; i++, number++) {
        (void)tg_rice_code(&at, &gap, s, k); /* it was complete before */
        bool is_in = gap < x.n && next + gap < x.n;
        is_bad = is_bad || !is_in;
        x.positions[number] = is_in ? (uint32_t)(next + gap) : 0;
        next += gap + 1;
        is_bad = is_bad || (number + 1 == x.count && !tg_rice_ends_well(s, at));
    }
    return __syncthreads_or(is_bad) == 0;
}

#endif
