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

/* Counts a symbol. */
TG_DEVICE void count_symbol(uint32_t *counters, uint32_t copies, uint32_t symbol, uint32_t base)
{
    if (symbol < base) {
        atomicAdd(&counters[symbol * copies + (tg_lane() & (copies - 1))], 1u);
    }
}

/* Counts the symbols in 16 bytes. */
TG_DEVICE void count_vector(uint32_t *counters, uint32_t copies, uint4 vector, bool is_wide, uint32_t base)
{
    uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
    for (uint32_t i = 0; i < 4; i++) {
        if (is_wide) {
            count_symbol(counters, copies, words[i] & 0xffff, base);
            count_symbol(counters, copies, words[i] >> 16, base);
        } else {
            for (uint32_t b = 0; b < 4; b++) {
                count_symbol(counters, copies, words[i] >> 8 * b & 0xff, base);
            }
        }
    }
}

/* Counts one tile, all threads of a block together. */
TG_DEVICE void count_tile(uint16_t *counts, uint32_t *counters, const tg_pack_job &j, uint32_t tile)
{
    uint32_t copies = copies_of(j.base), step = j.is_wide ? 2 : 1;
    tg_pack_tile t = tg_pack_tile_of(j, tile);
    const uint8_t *from = j.symbols + t.lo * step;
    uint32_t place = tg_place_of(from), end = place + (t.hi - t.lo) * step;
    const uint8_t *start = from - place;
    uint32_t *own = counters + threadIdx.x / TG_WARP * COUNTERS;
    for (uint32_t i = threadIdx.x; i < WARPS * COUNTERS; i += THREADS) {
        counters[i] = 0;
    }
    __syncthreads();
    for (uint32_t v = threadIdx.x; v * 16 < end; v += THREADS) {
        if (v * 16 >= place && v * 16 + 16 <= end) {
            count_vector(own, copies, ((const uint4 *)(const void *)start)[v], j.is_wide, j.base);
            continue;
        }
        for (uint32_t b = max(v * 16, place); b < min(v * 16 + 16, end); b += step) {
            count_symbol(own, copies, j.is_wide ? start[b] | (uint32_t)start[b + 1] << 8 : start[b], j.base);
        }
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < j.base; s += THREADS) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < WARPS * copies; i++) {
            uint32_t copy = (i + s) % copies; /* lanes begin in different banks */
            sum += counters[i / copies * COUNTERS + s * copies + copy];
        }
        counts[s] = (uint16_t)sum;
    }
    __syncthreads();
}

__global__ static void __launch_bounds__(THREADS) count_tiles(tg_gpu_pass p, uint8_t *scratch, uint32_t what)
{
    __shared__ uint32_t counters[WARPS * COUNTERS];
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, what) || !j.is_coded) {
        return;
    }
    uint16_t *counts = tg_pack_scratch_of(p, scratch, j.chunk).counts;
    for (; tile < j.tile_n; tile += tiles) {
        count_tile(counts + tile * TG_PACK_BASE, counters, j, tile);
    }
}

void tg_pack_count(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what)
{
    TG_LAUNCH(count_tiles, p->tile_n, THREADS, p->stream, *p, scratch, what);
}
