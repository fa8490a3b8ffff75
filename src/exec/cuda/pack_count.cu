/* How often each symbol occurs in each tile of a coded chunk; pack_lossless.cu counts those of words. Lanes count for themselves, in
 * bytes of shared memory, so that none waits for another: byte l of a symbol's row is lane l's. The most that a lane counts in a tile is
 * below 256. */
#include "exec/cuda/pack.h"

enum { WARPS = 4, THREADS = WARPS * 32, ROW = 32 /* bytes */, NARROW = 256 /* symbols */ };
#define ONES 0x01010101u

/* Rows of each warp for symbols of a byte. Symbols of two bytes, which are rare, are counted by atomic additions instead. */
typedef union count_space {
    uint8_t rows[WARPS][NARROW * ROW];
    uint32_t counts[TG_PACK_BASE];
    uint4 vectors[WARPS * NARROW * ROW / 16];
} count_space;

TG_DEVICE void count_narrow(uint8_t *own, uint32_t word)
{
#pragma unroll
    for (uint32_t b = 0; b < 4; b++) {
        own[(word >> 8 * b & 0xff) * ROW]++;
    }
}

TG_DEVICE uint32_t sum_row(const count_space *c, uint32_t symbol)
{
    uint32_t sum = 0;
    TG_UNROLL
    for (uint32_t i = 0; i < WARPS * ROW / 16; i++) {
        uint32_t at = (i + symbol) % (WARPS * ROW / 16); /* lanes begin in different banks */
        uint4 v = c->vectors[at / 2 * (NARROW * ROW / 16) + symbol * (ROW / 16) + at % 2];
        sum = __dp4a(v.w, ONES, __dp4a(v.z, ONES, __dp4a(v.y, ONES, __dp4a(v.x, ONES, sum))));
    }
    return sum;
}

/* Counts the symbols of a byte in [from, from + n). */
TG_DEVICE void count_bytes(count_space *c, const uint8_t *from, uint32_t n)
{
    uint8_t *own = c->rows[threadIdx.x / TG_WARP] + tg_lane();
    uint32_t place = tg_place_of(from), end = place + n;
    const uint8_t *start = from - place;
#pragma unroll 4
    for (uint32_t v = threadIdx.x; v * 16 < end; v += THREADS) {
        if (v * 16 >= place && v * 16 + 16 <= end) {
            uint4 vector = ((const uint4 *)(const void *)start)[v];
            count_narrow(own, vector.x);
            count_narrow(own, vector.y);
            count_narrow(own, vector.z);
            count_narrow(own, vector.w);
        } else {
            for (uint32_t b = max(v * 16, place); b < min(v * 16 + 16, end); b++) {
                own[start[b] * ROW]++;
            }
        }
    }
}

TG_DEVICE void count_pairs(count_space *c, const uint16_t *from, uint32_t n)
{
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        atomicAdd(&c->counts[from[i] % TG_PACK_BASE], 1u);
    }
}

/* Counts one tile, all threads of a block together. */
TG_DEVICE void count_tile(uint16_t *counts, count_space *c, const tg_pack_job &j, uint32_t tile)
{
    uint32_t lo = tile * TG_PACK_TILE, n = min(j.count - lo, (uint32_t)TG_PACK_TILE);
    uint32_t used = (j.is_wide ? TG_PACK_BASE * 4 : j.base * ROW) / 16; /* vectors of a warp */
    for (uint32_t i = tg_lane(); i < used; i += TG_WARP) {
        c->vectors[threadIdx.x / TG_WARP * (NARROW * ROW / 16) + i] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
    if (j.is_wide) {
        count_pairs(c, (const uint16_t *)(const void *)j.symbols + lo, n);
    } else {
        count_bytes(c, j.symbols + lo, n);
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < j.base; s += THREADS) {
        counts[s] = (uint16_t)(j.is_wide ? c->counts[s] : sum_row(c, s));
    }
    __syncthreads();
}

__global__ static void __launch_bounds__(THREADS) count_tiles(tg_gpu_pass p, uint8_t *scratch)
{
    __shared__ count_space c;
    const tg_gpu_tile &here = p.tiles[blockIdx.x];
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (here.from / TG_GPU_TILE * TG_PACK_TILE >= p.chunks[here.chunk].n) {
        return; /* tiles of a pass are shorter, so there are more of them */
    }
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, TG_PACK_SYMBOLS) || !j.is_coded) {
        return;
    }
    uint16_t *counts = tg_pack_scratch_of(p, scratch, j.chunk).counts;
    for (; tile < j.tile_n; tile += tiles) {
        count_tile(counts + tile * TG_PACK_BASE, &c, j, tile);
    }
}

void tg_pack_count(const tg_gpu_pass *p, uint8_t *scratch)
{
    TG_LAUNCH_EARLY(count_tiles, p->overlaps, p->tile_n, THREADS, p->stream, *p, scratch);
}
