/* Floats of a few bits on the GPU, times a step that is fitted to a chunk; see quantize/minifloat.c. Three kernels: moments of
 * leaves, the fit of each chunk, rounding.
 *
 * Moments of leaves wait where symbols will be, of chunks that are long enough to have the space. */
#include "exec/cuda/leaf.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/team.h"
#include "exec/cuda/values.h"

extern "C" {
#include "quantize/shapes.h"
}

enum { WARPS = 4, LEAVES_MAX = 256, SYMBOLS_MAX = 247 };
#define TILE (1u * TG_GPU_TILE)
static_assert(TILE == WARPS * TG_LEAF_N, "a warp takes a leaf of a tile");

#define SHORT 8192u /* values of a chunk that a block can sum alone */

/* The table of shapes, as it goes to kernels. */
typedef struct shape_table {
    double rho[TG_SHAPE_N], reach[TG_SHAPE_FORMAT_N][TG_SHAPE_N];
} shape_table;

typedef struct moments {
    double magnitudes, squares;
    uint64_t count; /* of values that are not 0 */
} moments;

/* Whether a chunk is to be quantized here. */
TG_DEVICE bool is_mine(const tg_gpu_pass &p, uint32_t number, bool is_sparse)
{
    const tg_gpu_unit &u = p.units[p.chunks[number].unit];
    return tg_quantize_kind(u) == TG_KIND_MINIFLOAT && tg_unit_sends(u, is_sparse);
}

TG_DEVICE moments *moments_at(const tg_gpu_pass &p, uint32_t number)
{
    uint64_t at = 2 * p.chunks[number].element_at;
    return (moments *)(void *)(p.space.symbols + (at + 7) / 8 * 8);
}

/* The moments of a leaf, by a warp. Lane 0 has them. */
TG_DEVICE moments sum_leaf(const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf)
{
    float v[TG_LANE_N];
    moments m = {0, 0, 0};
    uint32_t count = 0;
    (void)tg_load_leaf(v, p, b, leaf);
    TG_UNROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        m.magnitudes += fabs((double)v[k]);
        m.squares += (double)v[k] * (double)v[k];
        count += v[k] != 0 ? 1 : 0;
    }
    m.magnitudes = tg_fold(m.magnitudes);
    m.squares = tg_fold(m.squares);
    m.count = __reduce_add_sync(TG_ALL_LANES, count);
    return m;
}

/* Chunks that are not short. */
__global__ static void __launch_bounds__(WARPS *TG_WARP)
    sum_moments(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    tg_gpu_tiles s = tg_tiles_of_block(p, blocks_each, is_sparse);
    if (!is_mine(p, s.chunk, is_sparse) || tg_value_count(p, s.chunk) <= SHORT) {
        return;
    }
    for (uint32_t at = s.from; at < min(s.to, tg_value_count(p, s.chunk)); at += s.stride) {
        tg_gpu_bucket b = tg_bucket_of(p, s.chunk, at, TILE, tg_value_count(p, s.chunk));
        unsigned leaf = threadIdx.x / TG_WARP;
        if (leaf * TG_LEAF_N < b.n) {
            moments m = sum_leaf(p, b, leaf);
            if (threadIdx.x % TG_WARP == 0) {
                moments_at(p, s.chunk)[at / TG_LEAF_N + leaf] = m;
            }
        }
    }
}

/* ---- the fit ------------------------------------------------------------------------------------------------------------- */

/* As fit_step in minifloat.c. */
TG_DEVICE float fit_step(uint8_t *shape, double mean, double square, const tg_gpu_minifloat &f, const shape_table &t)
{
    const double *reaches = t.reach[f.in_shapes];
    const unsigned last = TG_SHAPE_N - 1;
    *shape = 0;
    if (mean == 0) {
        return 0.0f;
    }
    double rho = mean * mean / square, reach = 0;
    if (rho <= t.rho[0]) {
        reach = reaches[0] * rho / t.rho[0];
    } else if (rho >= t.rho[last]) {
        uint32_t m = 0;
        *shape = (uint8_t)last;
        while ((double)tg_minifloat_magnitude(f, m) < reaches[last]) {
            m++;
        }
        double share = fmin((rho - t.rho[last]) / (1 - t.rho[last]), 1.0);
        reach = reaches[last];
        reach += share * ((double)tg_minifloat_magnitude(f, m) - reach);
    } else {
        unsigned row = 0;
        while (t.rho[row + 1] <= rho) {
            row++;
        }
        double share = (rho - t.rho[row]) / (t.rho[row + 1] - t.rho[row]);
        *shape = (uint8_t)(row + (share > 0.5 ? 1 : 0));
        reach = reaches[row];
        reach += share * (reaches[row + 1] - reach);
    }
    return (float)fmin(mean / reach, (double)TG_FLOAT_MAX);
}

/* A block a chunk: its step and shape, to its side. */
__global__ static void __launch_bounds__(LEAVES_MAX) fit_chunks(tg_gpu_pass p, shape_table shapes, bool is_sparse)
{
    __shared__ double magnitudes[LEAVES_MAX], squares[LEAVES_MAX];
    __shared__ uint32_t counts[LEAVES_MAX];
    uint32_t number = p.first + blockIdx.x, count = tg_value_count(p, number), t = threadIdx.x;
    if (!is_mine(p, number, is_sparse) || count == 0) {
        return;
    }
    uint32_t leaves = (count + TG_LEAF_N - 1) / TG_LEAF_N;
    tg_gpu_bucket b = tg_bucket_of(p, number, 0, count, count);
    moments m = {0, 0, 0};
    if (count > SHORT && t < leaves) {
        m = moments_at(p, number)[t];
    }
    if (count <= SHORT && t / TG_WARP < leaves) {
        m = sum_leaf(p, b, t / TG_WARP);
    }
    uint32_t leaf = count > SHORT ? t : t / TG_WARP;
    if (leaf < leaves && (count > SHORT || t % TG_WARP == 0)) {
        magnitudes[leaf] = m.magnitudes;
        squares[leaf] = m.squares;
        counts[leaf] = (uint32_t)m.count;
    }
    double sums[2] = {tg_tree_of(magnitudes, leaves), tg_tree_of(squares, leaves)};
    if (t != 0) {
        return;
    }
    uint32_t some = 0;
    for (uint32_t i = 0; i < leaves; i++) {
        some += counts[i];
    }
    b.side[4] = 0;
    float step = __uint_as_float(0x7fc00000u);
    if (sums[1] < (double)INFINITY) { /* so it is, of finite values */
        double n = (double)some;
        step = fit_step(&b.side[4], n > 0 ? sums[0] / n : 0, n > 0 ? sums[1] / n : 0, tg_minifloat_of(*b.u), shapes);
    }
    tg_store_float(b.side, step);
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* As minifloats in kernels/minifloat_loops.h. */
TG_DEVICE unsigned round_value(float given, const tg_gpu_minifloat &f, float step, double inverse)
{
    const int normal = 1 << f.fraction_bits, largest = (int)f.zero;
    const uint32_t shift = 23 - f.fraction_bits, first = (127 - f.bias) << 23; /* bits of number 0, if it were normal */
    const float unit = tg_power(1 - (int)f.bias - (int)f.fraction_bits), per_unit = 1 / unit;
    double value = (double)given;
    uint32_t sign = __float_as_uint(given) & 0x80000000u;
    float quotient = (float)(fabs(value) * inverse), units = quotient * per_unit;
    units = units < 16 ? units : 16;
    int number = (int)(__float_as_uint(quotient) >> shift) - (int)(first >> shift);
    bool is_normal = number >= normal;
    number = !is_normal ? (int)units : number < largest ? number : largest - 1;
    uint32_t middle = is_normal ? ((uint32_t)number << shift) + first + (1u << (shift - 1))
                                : __float_as_uint(((float)number + 0.5f) * unit);
    double limit = (double)__uint_as_float(middle | sign) * (double)step;
    int lower = sign != 0 ? ~number : number;
    return (unsigned)(largest + lower + (value > limit ? 1 : 0));
}

/* Rounding to a format times a step. The symbol is that of the nearest magnitude, the one with the lower symbol of two, so any way to
 * come within one magnitude of it will do, as long as the last comparison is exact: by binary32 and one fused multiply-add, where no
 * product can underflow, else as above. */
struct rounding {
    tg_gpu_minifloat f;
    float step, factor, unit, per_unit;
    bool is_fast;

    __device__ __forceinline__ unsigned round_fast(float given) const
    {
        const int normal = 1 << f.fraction_bits, largest = (int)f.zero;
        const uint32_t shift = 23 - f.fraction_bits, first = (127 - f.bias) << 23;
        float size = fabsf(given), quotient = size * factor, units = fminf(quotient * per_unit, 16.0f);
        int number = (int)(__float_as_uint(quotient) >> shift) - (int)(first >> shift);
        bool is_normal = number >= normal;
        float rounded = units + 0x1p23f, below = rounded - 0x1p23f; /* the integer near `units`, then the one below it */
        float less = below > units ? 1.0f : 0.0f;
        int small = (int)(__float_as_uint(rounded) & 31u) - (below > units ? 1 : 0);
        number = !is_normal ? small : number < largest ? number : largest - 1;
        float middle = is_normal ? __uint_as_float(((uint32_t)number << shift) + first + (1u << (shift - 1)))
                                 : (below - less + 0.5f) * unit;
        float over = fmaf(middle, step, -size); /* its sign is exact */
        bool is_negative = __float_as_uint(given) >> 31 != 0;
        return (unsigned)(is_negative ? largest - number - (over > 0 ? 0 : 1) : largest + number + (over < 0 ? 1 : 0));
    }
    __device__ __forceinline__ unsigned round(float given) const
    {
        if (is_fast) {
            return round_fast(given);
        }
        return step != step ? 0 : step == 0 ? f.zero : round_value(given, f, step, 1 / (double)step);
    }
};

TG_DEVICE rounding rounding_of(const tg_gpu_minifloat &f, float step)
{
    float unit = tg_power(1 - (int)f.bias - (int)f.fraction_bits);
    return {f, step, (float)(1 / (double)step), unit, 1 / unit, step >= 0x1p-60f && step <= 0x1p60f};
}

/* A leaf by a warp. With feedback, `table` has the value of each symbol. */
TG_DEVICE void round_leaf(const tg_gpu_pass &p, const tg_gpu_bucket &b, unsigned leaf, float step, const float *table)
{
    const rounding r = rounding_of(tg_minifloat_of(*b.u), step);
    float v[TG_LANE_N];
    uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP, bad = 0;
    (void)tg_load_leaf(v, p, b, leaf);
    TG_UNROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        if (from + 32 * k < b.n) {
            unsigned symbol = r.round(v[k]);
            b.symbols[from + 32 * k] = (uint8_t)symbol;
            bool is_fine = b.next == nullptr || tg_keep_residual(b, from + 32 * k, v[k] - table[symbol]);
            bad |= (is_fine ? 0u : 1u) << k;
        }
    }
    tg_refuse_residuals(p, b, from, bad);
}

__global__ static void __launch_bounds__(WARPS *TG_WARP)
    round_chunks(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    __shared__ float table[SYMBOLS_MAX];
    tg_gpu_tiles t = tg_tiles_of_block(p, blocks_each, is_sparse);
    if (!is_mine(p, t.chunk, is_sparse) || t.from >= tg_value_count(p, t.chunk)) {
        return;
    }
    const tg_gpu_unit &u = p.units[p.chunks[t.chunk].unit];
    if (!is_sparse && tg_rounds_leaves(p, u)) {
        return;
    }
    float step = tg_read_float(p.space.out[t.chunk] + p.space.views[t.chunk].side);
    if (u.planes > 0) {
        for (unsigned s = threadIdx.x; s < u.base; s += WARPS * TG_WARP) {
            table[s] = tg_minifloat_value(tg_minifloat_of(u), step, s);
        }
    }
    __syncthreads();
    for (uint32_t at = t.from; at < min(t.to, tg_value_count(p, t.chunk)); at += t.stride) {
        tg_gpu_bucket b = tg_bucket_of(p, t.chunk, at, TILE, tg_value_count(p, t.chunk));
        unsigned leaf = threadIdx.x / TG_WARP;
        if (leaf * TG_LEAF_N < b.n) {
            round_leaf(p, b, leaf, step, table);
        }
    }
}

void tg_launch_minifloat(const tg_gpu_pass *p, bool is_sparse)
{
    uint32_t each = is_sparse ? tg_blocks_each(p->chunk_n) : 1, blocks = is_sparse ? p->chunk_n * each : p->tile_n;
    if (p->chunk_n == 0 || !tg_pass_has(p, TG_KIND_MINIFLOAT)) {
        return;
    }
    shape_table shapes;
    for (int i = 0; i < TG_SHAPE_N; i++) {
        shapes.rho[i] = tg_shapes[i].rho;
        for (int f = 0; f < TG_SHAPE_FORMAT_N; f++) {
            shapes.reach[f][i] = tg_shapes[i].format[f].reach;
        }
    }
    TG_LAUNCH(sum_moments, blocks, WARPS * TG_WARP, p->stream, *p, each, is_sparse);
    TG_LAUNCH(fit_chunks, p->chunk_n, LEAVES_MAX, p->stream, *p, shapes, is_sparse);
    if (is_sparse || p->leaves == nullptr || (p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        TG_LAUNCH(round_chunks, blocks, WARPS * TG_WARP, p->stream, *p, each, is_sparse);
    }
}

/* ---- symbols of a byte: leaves of the frame -------------------------------------------------------------------------------- */

/* What a warp makes of values: those of a leaf of the frame, from number `first` of the chunk on, to bytes in shared memory. */
TG_DEVICE void round_to_leaf(uint8_t *bytes, const tg_gpu_pass &p, const tg_gpu_bucket &b, float step, const float *table)
{
    const rounding r = rounding_of(tg_minifloat_of(*b.u), step);
    TG_ROLL
    for (unsigned leaf = 0; leaf * TG_LEAF_N < b.n; leaf++) {
        float v[TG_LANE_N];
        uint32_t from = leaf * TG_LEAF_N + threadIdx.x % TG_WARP, bad = 0;
        (void)tg_load_leaf(v, p, b, leaf);
        TG_UNROLL
        for (unsigned k = 0; k < TG_LANE_N; k++) {
            if (from + 32 * k < b.n) {
                unsigned symbol = r.round(v[k]);
                bytes[from + 32 * k] = (uint8_t)symbol;
                bool is_fine = b.next == nullptr || tg_keep_residual(b, from + 32 * k, v[k] - table[symbol]);
                bad |= (is_fine ? 0u : 1u) << k;
            }
        }
        tg_refuse_residuals(p, b, from, bad);
    }
}

/* A warp a leaf, of chunks whose symbols are whole bytes. Its first bytes may be what travels beside them. */
__global__ static void __launch_bounds__(WARPS *TG_WARP) round_leaves(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaves[WARPS][TG_LEAF_VECTORS];
    __shared__ float tables[WARPS][SYMBOLS_MAX + 1];
    uint32_t warp = threadIdx.x / TG_WARP, lane = threadIdx.x % TG_WARP, i = blockIdx.x * WARPS + warp;
    if (i >= p.leaf_n) {
        return;
    }
    const tg_gpu_leaf at = p.leaves[i];
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (!tg_unit_rounds_leaves(u)) {
        return;
    }
    uint8_t *out = p.space.out[at.chunk], *bytes = (uint8_t *)(void *)leaves[warp];
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    uint32_t side = chunk.side_len > from ? chunk.side_len - from : 0;
    float step = tg_read_float(out);
    for (uint32_t s = lane; u.planes > 0 && s < u.base; s += TG_WARP) {
        tables[warp][s] = tg_minifloat_value(tg_minifloat_of(u), step, s);
    }
    if (lane < side) {
        bytes[lane] = out[lane];
    }
    __syncwarp();
    tg_gpu_bucket b = tg_bucket_of(p, at.chunk, from + side - chunk.side_len, len - side, chunk.n);
    round_to_leaf(bytes + side, p, b, step, tables[warp]);
    tg_leaf_end(hashes + (uint64_t)(at.chunk - p.first) * leaf_cap + at.number, out + from, leaves[warp], len);
}

void tg_launch_minifloat_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_MINIFLOAT)) {
        TG_LAUNCH(round_leaves, (p->leaf_n + WARPS - 1) / WARPS, WARPS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
}
