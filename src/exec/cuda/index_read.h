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

/* ---- Rice codes ----------------------------------------------------------------------------------------------------------------
 *
 * Where a code begins is known when those before have been read. So a thread first finds out, for all that codes before its words may have
 * left, what codes leave to the words after them. That is a state: the number of low bits of a code that come next, at most k; 0: ones, or
 * the zero after them, come next. A map has the state after some words for each state before them. When maps of all threads are joined, each
 * thread knows its state, and reads its codes: those whose zero is in its words. */

/* Byte i of all words is what becomes of state i, of 4 N. */
template <unsigned N> struct tg_rice_map {
    uint32_t to[N];
};

template <unsigned N> TG_DEVICE uint32_t tg_rice_state(const tg_rice_map<N> &map, uint32_t state)
{
    uint32_t after = __byte_perm(map.to[0], map.to[1], state % 8);
    if (N > 2 && state >= 8) {
        after = state < 16 ? __byte_perm(map.to[2 % N], map.to[3 % N], state % 8)
                           : __byte_perm(map.to[N - 1], 0, state % 8);
    }
    return after & 255;
}

/* The map of words [first, end). Plane j has bit j of the state after them, at bit 31 - i for a code that begins at bit i of the word. Planes
 * begin with what is after the last word, where state i means that a code begins at bit i. A round sets them right for codes with their
 * zero in k + 1 bits more, from the last ones on: to where zeros are from the starts of the next codes, and from there to the ones before
 * them, which an addition reaches. */
template <unsigned N, class Stream>
TG_DEVICE tg_rice_map<N> tg_rice_map_of(const Stream &s, uint32_t k, uint32_t first, uint32_t end)
{
    enum { PLANES = N == 2 ? 3 : 5 };
    uint32_t planes[5] = {0x55555555u, 0x33333333u, 0x0f0f0f0fu, 0x00ff00ffu, 0x0000ffffu}, after[PLANES], sums[PLANES];
    TG_ROLL
    for (uint32_t w = end; w-- > first;) {
        uint32_t ones = __brev(s.word(w));
        TG_UNROLL
        for (unsigned j = 0; j < PLANES; j++) {
            after[j] = planes[j] >> (31 - k);
            sums[j] = ones + (planes[j] >> 31); /* ones at the end of the word go on in the next one */
            planes[j] = 0;
        }
        TG_ROLL
        for (uint32_t bits = 0; bits < 32; bits += k + 1) {
            TG_UNROLL
            for (unsigned j = 0; j < PLANES; j++) {
                uint32_t zeros = (planes[j] << (k + 1) | after[j]) & ~ones;
                planes[j] = zeros | (ones & ~(sums[j] + 2 * zeros));
            }
        }
    }
    tg_rice_map<N> map;
    TG_UNROLL
    for (unsigned r = 0; r < N; r++) {
        map.to[r] = 0;
        TG_UNROLL
        for (unsigned j = 0; j < PLANES; j++) { /* bit i of four to bit j of byte i */
            map.to[r] |= ((__brev(planes[j]) >> 4 * r & 15) * (0x00204081u << j)) & (0x01010101u << j);
        }
    }
    return map;
}

/* 255 in bytes with that bit. */
TG_DEVICE uint32_t tg_bytes_with(uint32_t bytes, unsigned bit)
{
    return (bytes >> bit & 0x01010101u) * 255;
}

/* One map, then the other. */
template <unsigned N> TG_DEVICE tg_rice_map<N> tg_rice_join(const tg_rice_map<N> &map, const tg_rice_map<N> &then)
{
    tg_rice_map<N> joined;
    TG_UNROLL
    for (unsigned r = 0; r < N; r++) {
        uint32_t low = map.to[r] & 0x07070707u, select = __byte_perm(low | low >> 4, 0, 0x20);
        joined.to[r] = __byte_perm(then.to[0], then.to[1], select);
        if (N > 2) { /* and states from 8 on, from 16 on */
            uint32_t eights = tg_bytes_with(map.to[r], 3), sixteens = tg_bytes_with(map.to[r], 4);
            joined.to[r] = (joined.to[r] & ~eights) | (__byte_perm(then.to[2 % N], then.to[3 % N], select) & eights);
            joined.to[r] = (joined.to[r] & ~sixteens) | (__byte_perm(then.to[N - 1], 0, select) & sixteens);
        }
    }
    return joined;
}

/* The state before a thread's words [first, end). `maps` are in shared memory. All threads. */
template <unsigned N, class Stream>
TG_DEVICE uint32_t tg_rice_start(tg_rice_map<5> (&maps)[TG_INDEX_THREADS / TG_WARP], const Stream &s, uint32_t k,
                                 uint32_t first, uint32_t end)
{
    uint32_t lane = threadIdx.x % TG_WARP, warp = threadIdx.x / TG_WARP, state = 0;
    tg_rice_map<N> map = tg_rice_map_of<N>(s, k, first, end), lower;
    TG_ROLL
    for (unsigned by = 1; by < TG_WARP; by *= 2) {
        TG_UNROLL
        for (unsigned r = 0; r < N; r++) {
            lower.to[r] = __shfl_up_sync(TG_ALL_LANES, map.to[r], by);
        }
        map = lane >= by ? tg_rice_join(lower, map) : map;
    }
    TG_UNROLL
    for (unsigned r = 0; r < N; r++) {
        if (lane == TG_WARP - 1) {
            maps[warp].to[r] = map.to[r];
        }
    }
    __syncthreads();
    TG_ROLL
    for (uint32_t w = 0; w < warp; w++) {
        state = ((const uint8_t *)(const void *)maps[w].to)[state];
    }
    uint32_t before = __shfl_up_sync(TG_ALL_LANES, tg_rice_state(map, state), 1);
    return lane > 0 ? before : state;
}

/* use(bit, low) for codes whose zero is in words [first, end): the zero's place in the stream, and the low bits after it. */
template <class Stream, class Use>
TG_DEVICE void tg_rice_each(const Stream &s, uint32_t k, uint32_t first, uint32_t end, uint32_t state, Use use)
{
    uint32_t word = first < end ? s.word(first) : 0, at = state; /* where a code begins in the word */
    TG_ROLL
    for (uint32_t w = first; w < end; w++) {
        uint32_t next = s.word(w + 1), above = next >> 1, below = __funnelshift_r(word, next, 1);
        TG_ROLL
        while (at < 32) {
            uint32_t zero = (word + (1u << at)) & ~word; /* the sum carries through the ones */
            if (zero == 0) {
                at = 32;
                break;
            }
            uint32_t place = 31 - (uint32_t)__clz((int)zero);
            use(32 * w + place, __funnelshift_r(below, above, place) & ((1u << k) - 1));
            at = place + 1 + k;
        }
        at -= 32;
        word = next;
    }
}

/* A code's position follows from the place of its zero, which tells how many ones come before, and from the sum of low bits. `list`: shared
 * memory for all positions, so that those side by side go to memory together; NULL: there is none. */
template <class Stream>
TG_DEVICE bool tg_read_rice(const tg_indices &x, tg_rice_map<5> (&maps)[TG_INDEX_THREADS / TG_WARP], const Stream &s,
                            uint32_t k, uint32_t *list)
{
    const uint32_t bit_n = x.len * 8, word_n = (x.len + 3) / 4, each = tg_index_share(word_n);
    const uint32_t first = min(threadIdx.x * each, word_n), end = min(first + each, word_n);
    uint32_t start = k < 8 ? tg_rice_start<2>(maps, s, k, first, end) : tg_rice_start<5>(maps, s, k, first, end);
    uint64_t found = 0, all; /* codes from bit 40 on, and the sum of low bits */
    tg_rice_each(s, k, first, end, start,
                 [&](uint32_t bit, uint32_t low) { found += bit + 1 + k <= bit_n ? 1ull << 40 | low : 0; });
    uint64_t before = tg_block_scan(found, &all), lows = before & ((1ull << 40) - 1);
    uint32_t number = (uint32_t)(before >> 40);
    uint32_t *positions = list != nullptr ? list : x.positions;
    bool is_bad = all >> 40 < x.count;
    tg_rice_each(s, k, first, end, start, [&](uint32_t bit, uint32_t low) {
        lows += low;
        uint64_t position = ((uint64_t)(bit - number * (k + 1)) << k) + lows + number;
        if (number < x.count) {
            positions[number] = (uint32_t)position;
        }
        if (number + 1 == x.count) { /* positions ascend; only the zero bits that fill the last byte follow */
            uint32_t rest = bit + 1 + k;
            is_bad = is_bad || position >= x.n || bit_n - rest >= 8 || s.word(rest / 32) >> rest % 32 != 0;
        }
        number++;
    });
    if (__syncthreads_or(is_bad)) {
        return false;
    }
    for (uint32_t i = threadIdx.x; list != nullptr && i < x.count; i += TG_INDEX_THREADS) {
        x.positions[i] = list[i];
    }
    return true;
}

#endif
