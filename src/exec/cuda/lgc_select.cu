/* The k largest magnitudes of each of some segments, ties to lower places, exactly: the k-th largest key is found by its upper 11 bits,
 * then the next 10, then the last 10; then coordinates are listed in order. All segments are in every launch. */
#include "exec/cuda/lgc.h"
#include "exec/cuda/scan.h"

enum { THREADS = 256, TILE = TG_GPU_LGC_TILE, CELLS = TG_GPU_LGC_CELLS, ROUNDS = TG_GPU_LGC_ROUNDS };
enum { EACH = CELLS / THREADS };

TG_DEVICE uint32_t key_of(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

/* Bits of a key below those of a round, and the cells of a round. */
TG_DEVICE unsigned shift_of(unsigned round)
{
    return round == 0 ? 20 : round == 1 ? 10 : 0;
}

TG_DEVICE unsigned cells_of(unsigned round)
{
    return round == 0 ? 1u << 11 : 1u << 10;
}

TG_DEVICE uint32_t *cells_at(const tg_gpu_lgc_selection &s, uint32_t segment, unsigned round)
{
    return s.cells + ((uint64_t)segment * ROUNDS + round) * CELLS;
}

/* use(i) for the places i of a tile. */
template <class Use> TG_DEVICE void each(const tg_gpu_lgc_segment &segment, const tg_gpu_lgc_tile &tile, Use use)
{
    uint64_t end = segment.n - tile.from < TILE ? segment.n : tile.from + TILE;
    for (uint64_t i = tile.from + threadIdx.x; i < end; i += THREADS) {
        use(i);
    }
}

/* Counts keys that begin as the k-th does, by their next bits. */
__global__ static void __launch_bounds__(THREADS) count_keys(tg_gpu_lgc_selection s, unsigned round)
{
    __shared__ uint32_t counts[CELLS];
    const tg_gpu_lgc_tile tile = s.tiles[blockIdx.x];
    const tg_gpu_lgc_segment &segment = s.segments[tile.of];
    unsigned shift = shift_of(round), cells = cells_of(round);
    uint32_t begins = round == 0 ? 0 : s.kth[tile.of];
    for (unsigned i = threadIdx.x; i < cells; i += THREADS) {
        counts[i] = 0;
    }
    __syncthreads();
    each(segment, tile, [&](uint64_t i) {
        uint32_t key = key_of(segment.values[i]);
        if (round == 0 || key >> shift_of(round - 1) == begins) {
            atomicAdd(&counts[key >> shift & (cells - 1)], 1u);
        }
    });
    __syncthreads();
    for (unsigned i = threadIdx.x; i < cells; i += THREADS) {
        if (counts[i] > 0) {
            atomicAdd(&cells_at(s, tile.of, round)[i], counts[i]);
        }
    }
}

/* Finds the cell of the k-th largest key: a block a segment. */
__global__ static void __launch_bounds__(THREADS) find_cell(tg_gpu_lgc_selection s, unsigned round)
{
    uint32_t segment = blockIdx.x, *counts = cells_at(s, segment, round), cells = cells_of(round), total;
    uint32_t own[EACH], sum = 0;
    uint64_t rank = round == 0 ? s.segments[segment].k : s.rank[segment];
    uint32_t begins = round == 0 ? 0 : s.kth[segment];
    for (unsigned j = 0; j < EACH; j++) { /* from the largest keys on */
        unsigned cell = threadIdx.x * EACH + j;
        own[j] = cell < cells ? counts[cells - 1 - cell] : 0;
        sum += own[j];
    }
    uint64_t before = tg_block_scan(sum, &total);
    __syncthreads(); /* all have read the rank */
    for (unsigned j = 0; j < EACH; j++) {
        if (before < rank && before + own[j] >= rank) {
            s.kth[segment] = begins << (round == 0 ? 11 : 10) | (cells - 1 - (threadIdx.x * EACH + j));
            s.rank[segment] = rank - before;
        }
        before += own[j];
    }
}

/* Keys of a tile above the k-th, and equal to it. */
__global__ static void __launch_bounds__(THREADS) count_tile(tg_gpu_lgc_selection s)
{
    const tg_gpu_lgc_tile tile = s.tiles[blockIdx.x];
    const tg_gpu_lgc_segment &segment = s.segments[tile.of];
    uint32_t kth = s.kth[tile.of], counts = 0;
    each(segment, tile, [&](uint64_t i) {
        uint32_t key = key_of(segment.values[i]);
        counts += key > kth ? 1 : key == kth ? 1u << 16 : 0;
    });
    counts = tg_block_sum(counts);
    if (threadIdx.x == 0) {
        s.counts[2 * blockIdx.x] = counts & 0xffffu;
        s.counts[2 * blockIdx.x + 1] = counts >> 16;
    }
}

/* Where the entries of each tile begin, and how many equal ones are taken: a block a segment. */
__global__ static void __launch_bounds__(THREADS) place_tiles(tg_gpu_lgc_selection s)
{
    const tg_gpu_lgc_segment &segment = s.segments[blockIdx.x];
    uint64_t above = 0, equal = 0, rank = s.rank[blockIdx.x];
    for (uint32_t from = 0; from < segment.tile_n; from += THREADS) {
        uint32_t tile = segment.tile_first + from + threadIdx.x;
        bool is_in = from + threadIdx.x < segment.tile_n;
        uint64_t all_above, all_equal, own_equal = is_in ? s.counts[2 * tile + 1] : 0;
        uint64_t above_before = above + tg_block_scan<uint64_t>(is_in ? s.counts[2 * tile] : 0, &all_above);
        uint64_t equal_before = equal + tg_block_scan<uint64_t>(own_equal, &all_equal);
        uint64_t taken_before = equal_before < rank ? equal_before : rank, left = rank - taken_before;
        if (is_in) {
            s.starts[2 * tile] = segment.entry_at + above_before + taken_before;
            s.starts[2 * tile + 1] = own_equal < left ? own_equal : left;
        }
        above += all_above;
        equal += all_equal;
    }
}

__global__ static void __launch_bounds__(THREADS) list(uint64_t *coordinates, tg_gpu_lgc_selection s)
{
    const tg_gpu_lgc_tile tile = s.tiles[blockIdx.x];
    const tg_gpu_lgc_segment &segment = s.segments[tile.of];
    uint64_t end = segment.n - tile.from < TILE ? segment.n : tile.from + TILE, start = s.starts[2 * blockIdx.x];
    uint32_t kth = s.kth[tile.of], takes = (uint32_t)s.starts[2 * blockIdx.x + 1], above = 0, equal = 0;
    if (s.counts[2 * blockIdx.x] == 0 && takes == 0) {
        return;
    }
    for (uint64_t from = tile.from; from < end; from += THREADS) {
        uint64_t i = from + threadIdx.x;
        uint32_t key = i < end ? key_of(segment.values[i]) : 0, total;
        bool is_above = i < end && key > kth, is_equal = i < end && key == kth;
        uint32_t before = tg_block_scan(is_above ? 1u : is_equal ? 1u << 16 : 0, &total);
        uint32_t above_before = above + (before & 0xffffu), equal_before = equal + (before >> 16);
        if (is_above || (is_equal && equal_before < takes)) {
            coordinates[start + above_before + (equal_before < takes ? equal_before : takes)] = segment.base + i;
        }
        above += total & 0xffffu;
        equal += total >> 16;
    }
}

void tg_gpu_lgc_select(uint64_t *coordinates, const tg_gpu_lgc_selection *s, void *stream)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        TG_LAUNCH(count_keys, s->tile_n, THREADS, stream, *s, round);
        TG_LAUNCH(find_cell, s->segment_n, THREADS, stream, *s, round);
    }
    TG_LAUNCH(count_tile, s->tile_n, THREADS, stream, *s);
    TG_LAUNCH(place_tiles, s->segment_n, THREADS, stream, *s);
    TG_LAUNCH(list, s->tile_n, THREADS, stream, coordinates, *s);
}
