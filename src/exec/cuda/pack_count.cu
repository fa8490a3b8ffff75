/* How often each symbol occurs in each tile of a coded chunk. A warp has counters of its own in shared memory, several for a
 * symbol of a small base, so that lanes with the same symbol seldom wait for each other. */
#include "exec/cuda/pack.h"

enum { WARPS = 8, THREADS = WARPS * 32, COUNTERS = 1024 /* of a warp */ };

/* Counters of a symbol: as many as there is space for, a power of two, up to one a lane. */
TG_DEVICE uint32_t copies_of(uint32_t base)
{
    uint32_t copies = TG_WARP;
    while (copies * base > COUNTERS) {
        copies /= 2;
    }
    return copies;
}

/* Counts the symbols in 16 bytes at place `at` of the aligned bytes around a tile, whose own are [from, to). */
TG_DEVICE void count_vector(uint32_t *counters, uint32_t copies, uint4 vector, uint32_t at, uint32_t from, uint32_t to,
                            bool is_wide, uint32_t base)
{
    uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w}, step = is_wide ? 2 : 1;
    uint32_t mask = is_wide ? 0xffffu : 0xffu, own = tg_lane() & (copies - 1);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t b = 0; b < 4; b += step) {
            uint32_t symbol = words[i] >> 8 * b & mask, place = at + 4 * i + b;
            if (place >= from && place < to && symbol < base) {
                atomicAdd(&counters[symbol * copies + own], 1u);
            }
        }
    }
}

/* A block a tile. */
__global__ static void __launch_bounds__(THREADS)
    count_tiles(tg_gpu_pass p, uint8_t *scratch, uint32_t tiles, uint32_t what)
{
    __shared__ uint32_t counters[WARPS * COUNTERS];
    uint32_t chunk = p.first + blockIdx.x / tiles, tile = blockIdx.x % tiles;
    tg_pack_job j;
    if (!tg_pack_job_of(&j, p, scratch, chunk, what) || !j.is_coded || tile >= j.tile_n) {
        return;
    }
    uint32_t copies = copies_of(j.base), step = j.is_wide ? 2 : 1;
    for (uint32_t i = threadIdx.x; i < WARPS * COUNTERS; i += THREADS) {
        counters[i] = 0;
    }
    __syncthreads();
    tg_pack_tile t = tg_pack_tile_of(j, tile);
    const uint8_t *from = j.symbols + t.lo * step;
    uint32_t place = tg_place_of(from), end = place + (t.hi - t.lo) * step;
    const uint4 *vectors = (const uint4 *)(const void *)(from - place);
    uint32_t *own = counters + threadIdx.x / TG_WARP * COUNTERS;
    for (uint32_t v = threadIdx.x; v * 16 < end; v += THREADS) {
        count_vector(own, copies, vectors[v], v * 16, place, end, j.is_wide, j.base);
    }
    __syncthreads();
    uint16_t *counts = tg_pack_scratch_of(p, scratch, chunk).counts + tile * TG_PACK_BASE;
    for (uint32_t s = threadIdx.x; s < j.base; s += THREADS) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < WARPS * copies; i++) {
            uint32_t copy = (i + s) % copies; /* lanes begin in different banks */
            sum += counters[i / copies * COUNTERS + s * copies + copy];
        }
        counts[s] = (uint16_t)sum;
    }
}

void tg_pack_count(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what)
{
    uint32_t tiles = tg_pack_tiles(p);
    TG_LAUNCH(count_tiles, p->chunk_n * tiles, THREADS, p->stream, *p, scratch, tiles, what);
}
