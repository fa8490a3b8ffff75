/* Adds the values of a body's sparse chunks to sums at their coordinates, or sets them. */
#include "exec/cuda/kernels.h"
#include "exec/cuda/known.h"
#include "exec/cuda/plain_values.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

enum { THREADS = 512, AT_ONCE = 4 /* values of a thread whose loads are under way together */ };

/* Where the values of a chunk are, and their coordinates. */
typedef struct listed {
    const tg_gpu_chunk *chunk;
    const tg_gpu_unit *u;
    const uint8_t *plain; /* NULL: symbols */
    const uint8_t *symbols, *side;
    const uint32_t *positions; /* NULL: those of a block */
    tg_gpu_ranges ranges;
    uint32_t bucket_n;
} listed;

/* With `is_found`, the ranges of a block are in space. */
TG_DEVICE listed listed_of(const tg_gpu_pass &p, uint32_t number, const uint8_t *body, bool is_found)
{
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    const tg_view &view = p.space.views[number];
    listed l = {&chunk, &u, nullptr, p.space.symbols + 2 * chunk.element_at, body + view.side, nullptr, {0, 0}, 0};
    l.plain = u.plain_len == 0 ? nullptr : tg_plain_bytes(p, u, number, body);
    l.bucket_n = u.bucket_n == 0 ? view.count : u.bucket_n;
    if (!tg_is_block(u) || u.coordinates == TG_GPU_AT_INDICES) {
        l.positions = p.space.positions + chunk.element_at;
    } else if (is_found) {
        l.ranges = p.space.ranges[number];
    } else {
        const tg_gpu_piece &last = p.pieces[u.piece_first + u.piece_n - 1];
        l.ranges = tg_block_ranges(tg_block_of(p, u, chunk.unit, last.at + last.n), chunk);
    }
    return l;
}

TG_DEVICE uint32_t position_of(const listed &l, uint32_t i)
{
    return l.positions != nullptr ? l.positions[i] : tg_block_position(l.ranges, i);
}

TG_DEVICE float value_of(const listed &l, uint32_t i)
{
    if (l.plain != nullptr) {
        return tg_plain_value(*l.u, l.plain, i);
    }
    unsigned symbol = l.u->base > 256 ? ((const uint16_t *)(const void *)l.symbols)[i] : l.symbols[i];
    return tg_symbol_value(*l.u, l.side + (uint64_t)(i / l.bucket_n) * l.u->side_len, symbol);
}

/* `each` blocks a chunk. */
__global__ static void __launch_bounds__(THREADS)
    add_listed(tg_gpu_pass p, const uint8_t *body, float weight, bool sets, uint32_t each)
{
    uint32_t number = p.first + blockIdx.x / each, step = each * THREADS, count = p.space.views[number].count;
    uint32_t first = blockIdx.x % each * THREADS + threadIdx.x;
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    if (first - threadIdx.x >= count || tg_quantize_kind(u) == TG_KIND_BLOCKS || !tg_unit_sends(u, true)) {
        return;
    }
    listed l = listed_of(p, number, body, false);
    for (; first < count; first += AT_ONCE * step) {
        float *to[AT_ONCE], value[AT_ONCE], sum[AT_ONCE];
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            uint32_t i = first + k * step;
            bool is_there = i < count;
            to[k] = is_there ? tg_sum_at(p, u, l.chunk->at + position_of(l, i)) : nullptr;
            value[k] = is_there ? value_of(l, i) : 0.0f;
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            sum[k] = !sets && to[k] != nullptr ? *to[k] : 0.0f;
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            if (to[k] != nullptr) {
                *to[k] = sets ? value[k] : tg_plus(sum[k], tg_times(weight, value[k]));
            }
        }
    }
}

extern "C" void tg_gpu_add_sparse(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets)
{
    uint32_t each = tg_blocks_each(p->chunk_n);
    if (p->chunk_n > 0) {
        TG_LAUNCH(add_listed, p->chunk_n * each, THREADS, p->stream, *p, body, weight, sets != 0, each);
        tg_launch_add_blocks(p, body, weight, sets != 0, true);
    }
}

/* ---- lists that are checked and added at once -------------------------------------------------------------------------------- */

enum { ADDERS = 256, ADDER_BLOCKS = 528 };

/* The chunk of the pass that value `number` of all lists is in. */
TG_DEVICE uint32_t chunk_of(const uint32_t *first, uint32_t chunk_n, uint32_t number)
{
    uint32_t low = 0, high = chunk_n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        bool is_below = first[middle] <= number;
        low = is_below ? middle : low;
        high = is_below ? high : middle;
    }
    return low;
}

/* Values are shared out by their number in all chunks, so that blocks have as many, whatever chunks have; those of a block are side by side,
 * mostly of one chunk. */
__global__ static void __launch_bounds__(ADDERS, 2)
    add_lists(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight)
{
    __shared__ uint32_t first[TG_GPU_LISTS_MAX + 1];
    const bool may_add = tg_may_add(p);
    for (uint32_t i = threadIdx.x; i <= p.chunk_n; i += ADDERS) { /* both loads are under way together */
        first[i] = p.space.list_first[i];
    }
    __syncthreads();
    if (!may_add) {
        return;
    }
    const uint32_t total = first[p.chunk_n], each = (total + gridDim.x - 1) / gridDim.x;
    const uint32_t end = min((blockIdx.x + 1) * each, total);
    for (uint32_t from = blockIdx.x * each + threadIdx.x; from < end; from += AT_ONCE * ADDERS) {
        float *to[AT_ONCE], value[AT_ONCE], sum[AT_ONCE];
        uint32_t c = 0;
        listed l = {};
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            uint32_t i = from + k * ADDERS;
            to[k] = nullptr;
            value[k] = 0;
            if (i < end) {
                if (k == 0 || i >= first[c + 1]) {
                    c = chunk_of(first, p.chunk_n, i);
                    l = listed_of(p, p.first + c, body, true);
                }
                to[k] = tg_sum_at(p, *l.u, l.chunk->at + position_of(l, i - first[c]));
                value[k] = value_of(l, i - first[c]);
            }
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            sum[k] = to[k] != nullptr ? *to[k] : 0.0f;
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            if (to[k] != nullptr) {
                *to[k] = tg_plus(sum[k], tg_times(weight, value[k]));
            }
        }
    }
}

extern "C" void tg_gpu_add_lists(const tg_gpu_pass *p, const uint8_t *body, float weight)
{
    TG_LAUNCH_EARLY(add_lists, p->overlaps, ADDER_BLOCKS, ADDERS, p->stream, *p, body, weight);
}
