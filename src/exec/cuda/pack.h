/* What the packing kernels share: which chunks are coded and how, their part of the scratch buffer, their tiles, and copies of
 * bytes between memory and shared memory at any alignment. Only pack*.cu include it, and add.cu, which adds words of lossless coding. */
#ifndef TG_EXEC_CUDA_PACK_H
#define TG_EXEC_CUDA_PACK_H

#include "exec/cuda/kernels.h"
#include "exec/cuda/layout.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"

enum { TG_PACK_BASE = 512 };

/* A tile is what one block counts or writes. */
enum { TG_PACK_TILE = 8192 };

/* Coded symbols are in parts, which are coded without each other: segments of rANS, of up to 32 states, or streams of prefix codes. */
enum { TG_PACK_PARTS = 256, TG_PACK_LANES = 32, TG_PACK_ROUNDS = 1024 /* symbols of a state at most */ };
enum { TG_PACK_STREAM = 1024 /* symbols */, TG_PACK_STREAM_WORDS = 768 /* of 16 bits, of its codes at most */ };

/* What is found out about a chunk before it is coded; in its scratch. */
typedef struct tg_pack_code {
    union {
        uint4 plans[TG_PACK_BASE]; /* huffman: codes, in x; read, slots */
        uint2 pairs[TG_PACK_BASE]; /* rans: what the coder needs to know of a symbol */
    };
    uint32_t part_len[TG_PACK_PARTS]; /* bytes of each part, which wait in scratch */
    uint32_t is_coded;                /* 0: it is written in the plain form */
    uint32_t form, head_len;          /* bytes before the lengths of parts, without the form */
    uint32_t bits, lane_n, each;      /* rans: precision, states of a segment, symbols of a segment */
    uint32_t part_n;                  /* 0: of one symbol alone */
} tg_pack_code;

/* Scratch of a chunk: its code, counts of each tile (u16), then for each element the upper byte of a word, then words of parts.
 * Every chunk has TG_PACK_CHUNK bytes, and TG_PACK_ELEMENT for an element. */
enum { TG_PACK_COUNTS = 2 * TG_PACK_BASE, TG_PACK_CHUNK = 16384, TG_PACK_ELEMENT = 4 };

typedef struct tg_pack_scratch {
    tg_pack_code *code;
    uint16_t *counts; /* TG_PACK_BASE a tile */
    uint8_t *uppers;
    uint16_t *words;
} tg_pack_scratch;

TG_DEVICE tg_pack_scratch tg_pack_scratch_of(const tg_gpu_pass &p, uint8_t *scratch, uint32_t chunk)
{
    uint64_t before = p.chunks[chunk].element_at - p.chunks[p.first].element_at;
    uint32_t n = p.chunks[chunk].n;
    uint8_t *at = scratch + ((TG_PACK_ELEMENT * before + (uint64_t)TG_PACK_CHUNK * (chunk - p.first)) & ~(uint64_t)255);
    tg_pack_scratch s;
    s.code = (tg_pack_code *)(void *)at;
    at += (sizeof(tg_pack_code) + 255) / 256 * 256;
    s.counts = (uint16_t *)(void *)at;
    at += (uint64_t)TG_PACK_COUNTS * (n / TG_PACK_TILE + 1);
    s.uppers = at;
    s.words = (uint16_t *)(void *)(at + (n + 15) / 16 * 16);
    return s;
}

/* Where the words of a segment end: they are written backwards, at most one a symbol, and two a state. */
TG_DEVICE uint16_t *tg_pack_segment_end(const tg_pack_scratch &s, const tg_pack_code &c, uint32_t count, uint32_t part)
{
    return s.words + min((part + 1) * c.each, count) + (part + 1) * 2 * c.lane_n;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------------- */

/* What a launch is about: symbols of a base, or words of a plain quantizer. */
enum { TG_PACK_SYMBOLS, TG_PACK_WORDS };

TG_DEVICE bool tg_pack_concerns(const tg_gpu_pass &p, const tg_gpu_unit &u, uint32_t what)
{
    bool has_values =
        p.has_values && u.route != TG_GPU_ROUTE_NONE && u.route != TG_GPU_ROUTE_LEADER && !tg_unit_lists_signs(u);
    return has_values && (what == TG_PACK_SYMBOLS ? u.base != 0 : u.base == 0 && u.coded);
}

/* Bytes of `count` symbols or words in the plain form. */
TG_DEVICE uint32_t tg_pack_plain_len(const tg_gpu_unit &u, uint32_t count)
{
    return u.base == 0 ? count * u.plain_len : ((count + u.group_n - 1) / u.group_n * u.group_bits + 7) / 8;
}

/* A chunk as coders see it. The symbols of words are their upper bytes, of base 256. */
typedef struct tg_pack_job {
    const tg_gpu_unit *unit;
    uint32_t chunk, count, base;
    bool is_wide; /* symbols are of 2 bytes in memory */
    bool is_coded;
    uint32_t plain_len;
    uint32_t lower_len;     /* bytes between the form and the coded symbols: the lower bytes of words */
    const uint8_t *symbols; /* in memory, or where they go */
    const uint8_t *words;   /* likewise */
    uint32_t tile_n;
} tg_pack_job;

/* Whether the chunk is the concern of a launch, and what it is. */
TG_DEVICE bool tg_pack_job_of(tg_pack_job *j, const tg_gpu_pass &p, uint8_t *scratch, uint32_t chunk, uint32_t what)
{
    const tg_gpu_unit &u = p.units[p.chunks[chunk].unit];
    if (!tg_pack_concerns(p, u, what) || p.space.views[chunk].count == 0) {
        return false;
    }
    uint64_t at = p.chunks[chunk].element_at;
    j->unit = &u;
    j->chunk = chunk;
    j->count = p.space.views[chunk].count;
    j->base = what == TG_PACK_SYMBOLS ? u.base : 256;
    j->is_wide = j->base > 256;
    j->is_coded = u.coded;
    j->plain_len = tg_pack_plain_len(u, j->count);
    j->lower_len = what == TG_PACK_SYMBOLS ? 0 : j->count * (u.plain_len - 1);
    j->symbols = what == TG_PACK_SYMBOLS ? p.space.symbols + 2 * at : tg_pack_scratch_of(p, scratch, chunk).uppers;
    j->words = p.space.words + 4 * at;
    j->tile_n = (j->count + TG_PACK_TILE - 1) / TG_PACK_TILE;
    return true;
}

/* The same for a block of a launch over tiles of the pass. Those are shorter than tiles here, of which the block takes number
 * *tile, and every *tiles-th after it. */
TG_DEVICE bool tg_pack_tile_job_of(tg_pack_job *j, uint32_t *tile, uint32_t *tiles, const tg_gpu_pass &p,
                                   uint8_t *scratch, uint32_t what)
{
    tg_gpu_tile t = p.tiles[blockIdx.x];
    *tile = t.from / TG_GPU_TILE;
    *tiles = (p.chunks[t.chunk].n + TG_GPU_TILE - 1) / TG_GPU_TILE;
    return tg_pack_job_of(j, p, scratch, t.chunk, what);
}

/* The same for a launch of `share` blocks a chunk, or over tiles if that is 0. */
TG_DEVICE bool tg_pack_share_job_of(tg_pack_job *j, uint32_t *tile, uint32_t *tiles, const tg_gpu_pass &p,
                                    uint8_t *scratch, uint32_t what, uint32_t share)
{
    if (share == 0) {
        return tg_pack_tile_job_of(j, tile, tiles, p, scratch, what);
    }
    *tile = blockIdx.x % share;
    *tiles = share;
    return tg_pack_job_of(j, p, scratch, p.first + blockIdx.x / share, what);
}

/* ---- words --------------------------------------------------------------------------------------------------------------- */

/* An aligned word of bytes that end at `end`, zeros after them: nothing is read there. */
TG_DEVICE uint32_t tg_word_before(const uint32_t *at, const uint8_t *end)
{
    const uint8_t *bytes = (const uint8_t *)at;
    if (bytes + 4 <= end) {
        return *at;
    }
    uint32_t word = 0;
    for (uint32_t i = 0; bytes + i < end; i++) {
        word |= (uint32_t)bytes[i] << 8 * i;
    }
    return word;
}

/* ---- bytes at any alignment ------------------------------------------------------------------------------------------------ */

/* Bytes keep their place within 16 (tg_place_of), so that a copy moves whole aligned vectors. A buffer in shared memory needs 16 bytes
 * more than it holds. The whole block takes part; the caller synchronises. */

/* Copies `len` bytes from memory to shared + tg_place_of(from). */
TG_DEVICE void tg_stage_in(uint4 *shared, const uint8_t *from, uint32_t len)
{
    uint32_t place = tg_place_of(from), end = place + len;
    const uint8_t *start = from - place;
    for (uint32_t v = threadIdx.x; v * 16 < end; v += blockDim.x) {
        if (v * 16 >= place && v * 16 + 16 <= end) {
            shared[v] = ((const uint4 *)(const void *)start)[v];
        } else {
            for (uint32_t b = max(v * 16, place); b < min(v * 16 + 16, end); b++) {
                ((uint8_t *)(void *)shared)[b] = start[b];
            }
        }
    }
}

/* Copies `len` bytes from shared + tg_place_of(to) to memory. */
TG_DEVICE void tg_stage_out(uint8_t *to, const uint4 *shared, uint32_t len)
{
    uint32_t place = tg_place_of(to), end = place + len;
    uint8_t *start = to - place;
    for (uint32_t v = threadIdx.x; v * 16 < end; v += blockDim.x) {
        if (v * 16 >= place && v * 16 + 16 <= end) {
            ((uint4 *)(void *)start)[v] = shared[v];
        } else {
            for (uint32_t b = max(v * 16, place); b < min(v * 16 + 16, end); b++) {
                start[b] = ((const uint8_t *)(const void *)shared)[b];
            }
        }
    }
}

/* Copies `len` bytes from any place in shared memory to any place in memory. Up to 19 bytes after them are read. */
TG_DEVICE void tg_copy_out(uint8_t *to, const uint8_t *shared, uint32_t len)
{
    tg_copy_by(to, shared, len, threadIdx.x, blockDim.x);
}

/* Adds up the counts of all tiles of a chunk, two symbols a thread and many loads at a time; 0 from the base on. */
TG_DEVICE void tg_pack_sum_counts(uint32_t *sums, const uint16_t *counts, uint32_t tile_n, uint32_t base)
{
    enum { AT_ONCE = 32 }; /* tiles of the longest chunk */
    const uint32_t *pairs = (const uint32_t *)(const void *)counts;
    for (uint32_t i = threadIdx.x; i < TG_PACK_BASE / 2; i += blockDim.x) {
        uint32_t low = 0, high = 0;
        for (uint32_t tile = 0; 2 * i < base && tile < tile_n; tile += AT_ONCE) {
            uint32_t loaded[AT_ONCE];
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                loaded[k] = tile + k < tile_n ? pairs[(tile + k) * (TG_PACK_BASE / 2) + i] : 0;
            }
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                low += loaded[k] & 0xffff;
                high += loaded[k] >> 16;
            }
        }
        sums[2 * i] = 2 * i < base ? low : 0;
        sums[2 * i + 1] = 2 * i + 1 < base ? high : 0;
    }
}

/* ---- warps -------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint32_t tg_lane(void)
{
    return threadIdx.x % TG_WARP;
}

/* The sum of the values of all lanes before this one. */
TG_DEVICE uint32_t tg_sum_before(uint32_t value)
{
    uint32_t sum = value;
    for (uint32_t by = 1; by < TG_WARP; by *= 2) {
        uint32_t other = __shfl_up_sync(TG_ALL_LANES, sum, by);
        sum += tg_lane() >= by ? other : 0;
    }
    return sum - value;
}

/* Of a block of up to 32 warps: the sum of the values of all threads before this one, and of all. Synchronises. */
TG_DEVICE uint32_t tg_sum_before_in_block(uint32_t value, uint32_t *all)
{
    __shared__ uint32_t sums[TG_WARP];
    uint32_t warp = threadIdx.x / TG_WARP, before = tg_sum_before(value), total = 0;
    __syncthreads();
    if (tg_lane() == TG_WARP - 1) {
        sums[warp] = before + value;
    }
    __syncthreads();
    for (uint32_t w = 0; w < blockDim.x / TG_WARP; w++) {
        before += w < warp ? sums[w] : 0;
        total += sums[w];
    }
    *all = total;
    return before;
}

TG_DEVICE uint32_t tg_sum_block(uint32_t value)
{
    uint32_t all = 0;
    (void)tg_sum_before_in_block(value, &all);
    return all;
}

TG_DEVICE uint64_t tg_sum_lanes(uint64_t value)
{
    for (int by = 16; by > 0; by /= 2) {
        value += __shfl_xor_sync(TG_ALL_LANES, value, by);
    }
    return value;
}

/* ---- launches of one file that another one makes --------------------------------------------------------------------------------- */

/* Blocks a chunk where most have little to do, because chunks are coded; 0: as many as there are tiles. */
uint32_t tg_pack_share(const tg_gpu_pass *p);

/* Counts of all tiles of chunks with coded symbols. */
void tg_pack_count(const tg_gpu_pass *p, uint8_t *scratch);

/* Tables of coders: decides the form of each chunk and writes what precedes its symbols; then the coders. */
void tg_pack_rans_table(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what);
void tg_pack_rans_encode(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what);
void tg_pack_huffman_table(const tg_gpu_pass *p, uint8_t *scratch);
void tg_pack_huffman_encode(const tg_gpu_pass *p, uint8_t *scratch);

/* What is packed as bits and the parts of coded chunks go to their place; the end of symbols goes to the views. */
void tg_pack_place(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what);

/* Reading: each file reads the chunks in its own forms, and refuses those that are damaged. */
void tg_pack_read_plain(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch, uint32_t what);
void tg_pack_rans_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch, uint32_t what);
void tg_pack_huffman_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch);

/* pack_lossless.cu: lower bytes of words to the frame, upper bytes and their counts to scratch; and back. */
void tg_pack_split(const tg_gpu_pass *p, uint8_t *scratch);
void tg_pack_join(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch);

#endif
