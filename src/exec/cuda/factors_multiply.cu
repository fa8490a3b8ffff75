/* P = M Q. A warp takes four rows and a leaf of 1,024 columns: lane l has the partial sums l, which are folded as by the host. M is
 * read once for four columns of Q, which stay in the L1 cache. */
#include "exec/cuda/factor_load.h"

enum { THREADS = TG_GPU_FACTOR_THREADS, WARPS = THREADS / 32, LEAF = TG_GPU_FACTOR_LEAF };
enum { ROWS = TG_GPU_FACTOR_ROWS / WARPS /* of a warp */, AHEAD = 2 /* columns of a lane that are read before they are used */ };

/* Folds the partial sums of a leaf by halves. Lane 0 has the sum. */
TG_DEVICE float fold(float part)
{
    TG_UNROLL
    for (unsigned half = 16; half > 0; half /= 2) {
        part += __shfl_down_sync(TG_ALL_LANES, part, half);
    }
    return part;
}

/* Notes an element that is refused. */
TG_DEVICE void refuse(const tg_gpu_factors &f, const tg_gpu_matrix &m, uint64_t row, float g)
{
    uint64_t key = (uint64_t)m.number << (TG_GPU_FACTOR_KEY_ROW_BITS + 1) | row << 1 | (tg_is_finite(g) ? 1u : 0u);
    atomicMin((unsigned long long *)f.beyond, (unsigned long long)key);
}

/* Sums of a leaf of this warp's rows with columns [k, k + K) of Q. `n` columns of the leaf are there, and `row_n` rows. */
template <unsigned K, class Source>
TG_DEVICE void sum_leaf(float (&sums)[ROWS][K], const tg_gpu_factors &f, const tg_gpu_matrix &m, const Source &source,
                        uint64_t row, uint32_t row_n, uint64_t column, uint32_t n, const float *q)
{
    unsigned lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (unsigned i = 0; i < ROWS; i++) {
        TG_UNROLL
        for (unsigned k = 0; k < K; k++) {
            sums[i][k] = 0;
        }
    }
    for (uint32_t first = lane; first < n; first += AHEAD * TG_WARP) {
        float g[AHEAD][ROWS], r[AHEAD][ROWS];
        TG_UNROLL
        for (unsigned a = 0; a < AHEAD; a++) {
            uint32_t j = first + a * TG_WARP < n ? first + a * TG_WARP : first;
            TG_UNROLL
            for (unsigned i = 0; i < ROWS; i++) {
                uint64_t at = (row + (i < row_n ? i : 0)) * m.columns + column + j;
                g[a][i] = source.gradient(at);
                r[a][i] = source.kept(at);
            }
        }
        TG_UNROLL
        for (unsigned a = 0; a < AHEAD; a++) {
            uint32_t j = first + a * TG_WARP;
            if (j >= n) {
                break;
            }
            float factor[K];
            TG_UNROLL
            for (unsigned k = 0; k < K; k++) {
                factor[k] = q[k * m.columns + j];
            }
            TG_UNROLL
            for (unsigned i = 0; i < ROWS; i++) {
                float value = source.sum(g[a][i], r[a][i]);
                if (source.is_beyond(value)) {
                    if (f.beyond != nullptr) {
                        refuse(f, m, row + (i < row_n ? i : 0), g[a][i]);
                    }
                    value = source.bounded(g[a][i], r[a][i]);
                }
                TG_UNROLL
                for (unsigned k = 0; k < K; k++) {
                    sums[i][k] += value * factor[k];
                }
            }
        }
    }
}

template <class Source>
TG_DEVICE void multiply_rows(const tg_gpu_factors &f, const tg_gpu_matrix &m, const tg_gpu_factor_tile &tile,
                             const Source &source)
{
    uint64_t row = tile.row + threadIdx.x / TG_WARP * ROWS;
    if (row >= m.rows) {
        return;
    }
    uint32_t row_n = m.rows - row < ROWS ? (uint32_t)(m.rows - row) : (uint32_t)ROWS;
    uint32_t n = m.columns - tile.column < LEAF ? (uint32_t)(m.columns - tile.column) : (uint32_t)LEAF;
    bool is_alone = m.columns <= LEAF;
    float *out = is_alone ? m.p : m.sums + tile.column / LEAF * m.rank * m.rows;
    tg_each_columns(m.rank, [&](uint32_t k, auto width) {
        constexpr unsigned K = decltype(width)::value;
        float sums[ROWS][K];
        sum_leaf(sums, f, m, source, row, row_n, tile.column, n, m.q_next + k * m.columns + tile.column);
        TG_UNROLL
        for (unsigned i = 0; i < ROWS; i++) {
            TG_UNROLL
            for (unsigned j = 0; j < K; j++) {
                float sum = fold(sums[i][j]);
                if (threadIdx.x % TG_WARP == 0 && i < row_n) {
                    out[(k + j) * m.rows + row + i] = is_alone ? tg_unify_nan(sum) : sum;
                }
            }
        }
    });
}

__global__ static void __launch_bounds__(THREADS) multiply(tg_gpu_factors f)
{
    const tg_gpu_factor_tile tile = f.tiles[blockIdx.x];
    const tg_gpu_matrix &m = f.matrices[tile.matrix];
    tg_with_source(f, m, [&](const auto &source) { multiply_rows(f, m, tile, source); });
}

void tg_gpu_factors_multiply(const tg_gpu_factors *f)
{
    TG_LAUNCH(multiply, f->n, THREADS, f->stream, *f);
}

/* ---- sums over leaves ------------------------------------------------------------------------------------------------------ */

/* Adds n numbers, `stride` apart, as a binary tree of neighbours. Level l holds the sum of 2^l numbers. */
TG_DEVICE float add_tree(const float *numbers, uint64_t stride, uint64_t n)
{
    float levels[40];
    for (uint64_t i = 0; i < n; i++) {
        float sum = numbers[i * stride];
        unsigned level = 0;
        for (; (i >> level & 1) != 0; level++) {
            sum += levels[level];
        }
        levels[level] = sum;
    }
    unsigned level = 0;
    while ((n >> level & 1) == 0) {
        level++;
    }
    float sum = levels[level];
    for (level++; n >> level != 0; level++) {
        if ((n >> level & 1) != 0) {
            sum += levels[level];
        }
    }
    return sum;
}

__global__ static void __launch_bounds__(THREADS) add_leaves(tg_gpu_factors f)
{
    const tg_gpu_factor_tile tile = f.tiles[blockIdx.x];
    const tg_gpu_matrix &m = f.matrices[tile.matrix];
    uint64_t i = tile.row + threadIdx.x, n = m.rank * m.rows, leaves = (m.columns + LEAF - 1) / LEAF;
    if (i < n) {
        m.p[i] = tg_unify_nan(add_tree(m.sums + i, n, leaves));
    }
}

void tg_gpu_factors_add_leaves(const tg_gpu_factors *f)
{
    TG_LAUNCH(add_leaves, f->n, THREADS, f->stream, *f);
}

__global__ static void __launch_bounds__(THREADS) add_back(tg_gpu_factors f)
{
    enum { TILE_ROWS = TG_GPU_FACTOR_ROWS * TG_GPU_FACTOR_LEAVES };
    const tg_gpu_factor_tile tile = f.tiles[blockIdx.x];
    const tg_gpu_matrix &m = f.matrices[tile.matrix];
    uint64_t i = tile.column + threadIdx.x, n = m.rank * m.columns, tiles = (m.rows + TILE_ROWS - 1) / TILE_ROWS;
    if (i < n) {
        m.q_next[i] = tg_unify_nan(add_tree(m.sums + i, n, tiles));
    }
}

void tg_gpu_factors_add_back(const tg_gpu_factors *f)
{
    TG_LAUNCH(add_back, f->n, THREADS, f->stream, *f);
}
