/* Q = M' P. A warp takes a leaf of 32 rows and 128 columns, four a lane, side by side where they can be; the eight leaves of a block are added in shared memory, as
 * the part of the tree that they are. */
#include "exec/cuda/factor_load.h"

enum { THREADS = TG_GPU_FACTOR_THREADS, ROWS = TG_GPU_FACTOR_ROWS, LEAVES = TG_GPU_FACTOR_LEAVES };
enum { COLUMNS = TG_GPU_FACTOR_COLUMNS, EACH = COLUMNS / 32 /* of a lane */, WIDTH = 4 /* columns of P at a time */ };
enum { TILE_ROWS = ROWS * LEAVES, AHEAD = 4 /* rows that are read before they are used */ };

typedef struct workspace {
    float p[WIDTH][TILE_ROWS];           /* columns of P, the tile's rows */
    float sums[LEAVES][WIDTH][COLUMNS]; /* of leaves */
} workspace;

/* Columns [k, k + K) of P to shared memory. All threads. */
template <unsigned K>
TG_DEVICE void load_factor(workspace *w, const tg_gpu_matrix &m, uint64_t row, uint32_t row_n, uint32_t k)
{
    for (uint32_t i = threadIdx.x; i < row_n; i += THREADS) {
        TG_UNROLL
        for (unsigned j = 0; j < K; j++) {
            w->p[j][i] = m.p[(k + j) * m.rows + row + i];
        }
    }
    __syncthreads();
}

/* The sums of this warp's leaf, of row_n rows, which are read some at a time. */
template <unsigned K, class Source, class Columns>
TG_DEVICE void sum_leaf(workspace *w, const tg_gpu_matrix &m, const Source &source, const Columns &columns, uint64_t row,
                        uint32_t row_n)
{
    unsigned leaf = threadIdx.x / TG_WARP;
    float sums[EACH][K];
    TG_UNROLL
    for (unsigned i = 0; i < EACH * K; i++) {
        sums[i / K][i % K] = 0;
    }
    for (uint32_t first = 0; first < row_n; first += AHEAD) {
        float g[AHEAD][EACH], r[AHEAD][EACH];
        TG_UNROLL
        for (unsigned i = 0; i < AHEAD; i++) {
            uint32_t here = first + i < row_n ? first + i : row_n - 1;
            source.four(g[i], r[i], (row + here) * m.columns, columns);
        }
        TG_UNROLL
        for (unsigned i = 0; i < AHEAD; i++) {
            if (first + i >= row_n) {
                break;
            }
            TG_UNROLL
            for (unsigned c = 0; c < EACH; c++) {
                float value = source.value(g[i][c], r[i][c]);
                TG_UNROLL
                for (unsigned j = 0; j < K; j++) {
                    sums[c][j] += value * w->p[j][leaf * ROWS + first + i];
                }
            }
        }
    }
    TG_UNROLL
    for (unsigned c = 0; c < EACH; c++) {
        TG_UNROLL
        for (unsigned j = 0; j < K; j++) {
            w->sums[leaf][j][Columns::place(c)] = sums[c][j];
        }
    }
}

/* The sum of n <= 8 leaves, as a tree of neighbours. */
TG_DEVICE float add_leaves(const workspace *w, unsigned j, unsigned column, unsigned n)
{
    float sums[LEAVES];
    TG_UNROLL
    for (unsigned i = 0; i < LEAVES; i++) {
        sums[i] = i < n ? w->sums[i][j][column] : 0.0f;
    }
    TG_UNROLL
    for (unsigned step = 1; step < LEAVES; step *= 2) {
        TG_UNROLL
        for (unsigned i = 0; i + step < LEAVES; i += 2 * step) {
            sums[i] = i + step < n ? sums[i] + sums[i + step] : sums[i];
        }
    }
    return sums[0];
}

template <class Source, class Columns>
TG_DEVICE void multiply_tile(workspace *w, const tg_gpu_matrix &m, const tg_gpu_factor_tile &tile, const Source &source,
                             const Columns &columns)
{
    uint32_t row_n = m.rows - tile.row < TILE_ROWS ? (uint32_t)(m.rows - tile.row) : (uint32_t)TILE_ROWS;
    uint32_t before = threadIdx.x / TG_WARP * ROWS, leaf_n = (row_n + ROWS - 1) / ROWS;
    uint32_t own_n = before >= row_n ? 0 : row_n - before < ROWS ? row_n - before : (uint32_t)ROWS;
    bool is_alone = m.rows <= TILE_ROWS;
    float *out = is_alone ? m.q_next : m.sums + tile.row / TILE_ROWS * m.rank * m.columns;
    tg_each_columns(m.rank, [&](uint32_t k, auto width) {
        constexpr unsigned K = decltype(width)::value;
        load_factor<K>(w, m, tile.row, row_n, k);
        sum_leaf<K>(w, m, source, columns, tile.row + before, own_n);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < K * COLUMNS; i += THREADS) {
            uint32_t j = i / COLUMNS, column = i % COLUMNS;
            float sum = add_leaves(w, j, column, leaf_n);
            if (tile.column + column < m.columns) {
                out[(k + j) * m.columns + tile.column + column] = is_alone ? tg_unify_nan(sum) : sum;
            }
        }
        __syncthreads();
    });
}

__global__ static void __launch_bounds__(THREADS) multiply_back(tg_gpu_factors f)
{
    __shared__ workspace w;
    const tg_gpu_factor_tile tile = f.tiles[blockIdx.x];
    const tg_gpu_matrix &m = f.matrices[tile.matrix];
    tg_with_columns(f, m, tile.column,
                    [&](const auto &source, const auto &columns) { multiply_tile(&w, m, tile, source, columns); });
}

void tg_gpu_factors_back(const tg_gpu_factors *f)
{
    TG_LAUNCH(multiply_back, f->n, THREADS, f->stream, *f);
}
