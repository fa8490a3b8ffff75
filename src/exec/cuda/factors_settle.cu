/* P Q', and what is left of M; copies of tensors that are sent as they are. A warp takes four rows at a time and 128 columns, four a
 * lane, side by side where they can be. */
#include "exec/cuda/factor_load.h"

enum { THREADS = TG_GPU_FACTOR_THREADS, WARPS = THREADS / 32, ROWS = 4 /* of a warp at a time */ };
enum { COLUMNS = TG_GPU_FACTOR_COLUMNS, EACH = COLUMNS / 32 /* of a lane */ };

/* Averages of four columns in the tensor's dtype. */
template <class Columns>
TG_DEVICE void store(void *tensor, uint32_t dtype, uint64_t row, const Columns &columns, const float (&values)[EACH])
{
    if constexpr (Columns::BESIDE) {
        if (!columns.is_in[0]) {
            return;
        }
        if (dtype == 0) {
            *(float4 *)((float *)tensor + row + columns.at[0]) = make_float4(values[0], values[1], values[2], values[3]);
            return;
        }
    }
    TG_UNROLL
    for (unsigned c = 0; c < EACH; c++) {
        uint64_t at = row + (Columns::BESIDE ? columns.at[0] + c : columns.at[c]);
        if (!columns.is_in[c]) {
            continue;
        }
        if (dtype == 0) {
            ((float *)tensor)[at] = values[c];
        } else {
            ((uint16_t *)tensor)[at] = dtype == 1 ? tg_float_to_fp16(values[c]) : tg_float_to_bf16(values[c]);
        }
    }
}

/* The product of this warp's rows with its columns: one sum over the rank, which begins as the first product. */
template <class Columns>
TG_DEVICE void multiply(float (&sums)[ROWS][EACH], const tg_gpu_matrix &m, uint64_t row, uint32_t row_n, const Columns &columns)
{
    for (uint32_t k = 0; k < m.rank; k++) {
        float q[EACH];
        columns.get(q, m.q_next + k * m.columns);
        TG_UNROLL
        for (unsigned i = 0; i < ROWS; i++) {
            float p = m.p[k * m.rows + row + (i < row_n ? i : 0)];
            TG_UNROLL
            for (unsigned c = 0; c < EACH; c++) {
                float product = p * q[c];
                sums[i][c] = k == 0 ? product : sums[i][c] + product;
            }
        }
    }
}

/* Some rows of this warp: writes averages and, with KEEPS, residuals. */
template <bool KEEPS, class Source, class Columns>
TG_DEVICE void settle_rows(const tg_gpu_factors &f, const tg_gpu_matrix &m, uint64_t row, uint32_t row_n, const Source &source,
                           const Columns &columns)
{
    float sums[ROWS][EACH], g[ROWS][EACH], r[ROWS][EACH];
    TG_UNROLL
    for (unsigned i = 0; KEEPS && i < ROWS; i++) {
        source.four(g[i], r[i], (row + (i < row_n ? i : 0)) * m.columns, columns);
    }
    multiply(sums, m, row, row_n, columns);
    TG_UNROLL
    for (unsigned i = 0; i < ROWS; i++) {
        if (i >= row_n) {
            break;
        }
        uint64_t at = (row + i) * m.columns;
        float left[EACH];
        TG_UNROLL
        for (unsigned c = 0; c < EACH; c++) {
            left[c] = KEEPS ? source.value(g[i][c], r[i][c]) - sums[i][c] : 0;
            left[c] = f.nonfinite == TG_GPU_PASS && !tg_is_finite(left[c]) ? 0.0f : left[c];
            sums[i][c] = tg_unify_nan(sums[i][c]);
        }
        if (KEEPS) {
            store(m.residual, 0, at, columns, left);
        }
        store(f.grads[m.tensor], m.dtype, at, columns, sums[i]);
    }
}

template <bool KEEPS, class Source, class Columns>
TG_DEVICE void settle_tile(const tg_gpu_factors &f, const tg_gpu_matrix &m, const tg_gpu_factor_tile &tile, const Source &source,
                           const Columns &columns)
{
    for (uint32_t first = threadIdx.x / TG_WARP * ROWS; first < TG_GPU_FACTOR_SETTLE; first += WARPS * ROWS) {
        uint64_t row = tile.row + first;
        if (row >= m.rows) {
            return;
        }
        uint32_t row_n = m.rows - row < ROWS ? (uint32_t)(m.rows - row) : (uint32_t)ROWS;
        settle_rows<KEEPS>(f, m, row, row_n, source, columns);
    }
}

__global__ static void __launch_bounds__(THREADS) settle(tg_gpu_factors f)
{
    const tg_gpu_factor_tile tile = f.tiles[blockIdx.x];
    const tg_gpu_matrix &m = f.matrices[tile.matrix];
    tg_with_columns(f, m, tile.column, [&](const auto &source, const auto &columns) {
        if (m.residual != nullptr) {
            settle_tile<true>(f, m, tile, source, columns);
        } else {
            settle_tile<false>(f, m, tile, source, columns);
        }
    });
}

__global__ static void __launch_bounds__(THREADS) average(tg_gpu_factors f)
{
    const tg_gpu_factor_tile tile = f.tiles[blockIdx.x];
    const tg_gpu_matrix &m = f.matrices[tile.matrix];
    tg_with_columns(f, m, tile.column, [&](const auto &source, const auto &columns) {
        settle_tile<false>(f, m, tile, source, columns);
    });
}

void tg_gpu_factors_settle(const tg_gpu_factors *f)
{
    TG_LAUNCH(settle, f->n, THREADS, f->stream, *f);
}

void tg_gpu_factors_average(const tg_gpu_factors *f)
{
    TG_LAUNCH(average, f->n, THREADS, f->stream, *f);
}

/* ---- copies ---------------------------------------------------------------------------------------------------------------- */

__global__ static void __launch_bounds__(THREADS) copy(tg_gpu_factors f, bool back)
{
    const tg_gpu_factor_copy &c = f.copies[blockIdx.x];
    uint8_t *there = (uint8_t *)f.grads[c.tensor] + c.at, *to = back ? there : c.to;
    const uint8_t *from = back ? c.to : there;
    for (uint32_t i = threadIdx.x; i < c.len / 2; i += THREADS) { /* elements have at least two bytes */
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[i];
    }
}

void tg_gpu_factors_copy(const tg_gpu_factors *f, int back)
{
    TG_LAUNCH(copy, f->n, THREADS, f->stream, *f, back != 0);
}
