/* What a block does with a whole matrix: scales Q before a step, makes the columns of P orthonormal, takes over Q after a step. */
#include "exec/cuda/factor_load.h"
#include "exec/cuda/philox.h"
#include "exec/cuda/sums.h"

enum { THREADS = 512, WARPS = THREADS / 32, LEAF = TG_GPU_FACTOR_LEAF, RANK_MAX = TG_GPU_FACTOR_RANK_MAX };
enum { KEPT = 8192 /* floats of P in shared memory */, SUMS = 512 /* leaves of dot products there */ };

typedef struct workspace {
    float p[KEPT];
    double sums[SUMS];
    double shares[RANK_MAX + 1];
} workspace;

/* A matrix while its columns become orthonormal. */
typedef struct columns {
    float *p;     /* where P is: in shared memory, if it fits */
    double *sums; /* space for sums of leaves, likewise */
    double *shares;
    uint64_t rows, leaves;
} columns;

/* ---- dot products ---------------------------------------------------------------------------------------------------------- */

/* The sum of a leaf of the product of two columns, in binary64. A warp; lane 0 has the sum. */
TG_DEVICE double dot_leaf(const float *a, const float *b, uint32_t n)
{
    double part = 0;
    for (uint32_t i = threadIdx.x % TG_WARP; i < n; i += TG_WARP) {
        part += (double)a[i] * (double)b[i];
    }
    return tg_fold(part);
}

/* shares[b] is the product of column k with column b, for b in [from, to). All threads; ends with a barrier. */
TG_DEVICE void dot_columns(const columns &c, uint32_t k, uint32_t from, uint32_t to)
{
    uint64_t jobs = (to - from) * c.leaves;
    for (uint64_t job = threadIdx.x / TG_WARP; job < jobs; job += WARPS) {
        uint32_t b = from + (uint32_t)(job / c.leaves);
        uint64_t at = job % c.leaves * LEAF;
        uint32_t n = c.rows - at < LEAF ? (uint32_t)(c.rows - at) : (uint32_t)LEAF;
        double sum = dot_leaf(c.p + k * c.rows + at, c.p + b * c.rows + at, n);
        if (threadIdx.x % TG_WARP == 0) {
            c.sums[job] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < to - from) {
        tg_leaf_tree tree;
        tree.n = 0;
        for (uint64_t leaf = 0; leaf < c.leaves; leaf++) {
            tg_leaf_add(&tree, c.sums[threadIdx.x * c.leaves + leaf]);
        }
        c.shares[from + threadIdx.x] = tg_leaf_sum(&tree);
    }
    __syncthreads();
}

/* ---- columns --------------------------------------------------------------------------------------------------------------- */

/* Subtracts the shares of the columns before it from column k. */
TG_DEVICE void project(const columns &c, uint32_t k)
{
    float *column = c.p + k * c.rows;
    for (uint64_t i = threadIdx.x; i < c.rows; i += THREADS) {
        double value = (double)column[i];
        for (uint32_t b = 0; b < k; b++) {
            value -= c.shares[b] * (double)c.p[b * c.rows + i];
        }
        column[i] = (float)value;
    }
    __syncthreads();
}

/* As make_orthogonal of exec/factorization.c. All threads; ends with a barrier. */
TG_DEVICE bool make_orthogonal(const columns &c, uint32_t k)
{
    float *column = c.p + k * c.rows;
    dot_columns(c, k, 0, k + 1);
    double before = c.shares[k], square = before;
    if (k > 0) {
        project(c, k);
        dot_columns(c, k, 0, k);
        project(c, k);
        dot_columns(c, k, k, k + 1);
        square = c.shares[k];
    }
    __syncthreads(); /* all have read the shares */
    double norm = sqrt(square);
    if (!(norm * norm > 1e-12 * before) || norm < 1e-30) {
        return false;
    }
    for (uint64_t i = threadIdx.x; i < c.rows; i += THREADS) {
        column[i] = (float)((double)column[i] / norm);
    }
    __syncthreads();
    return true;
}

/* Replaces column k by random numbers. */
TG_DEVICE void draw_column(const columns &c, uint32_t k, uint64_t key)
{
    for (uint64_t i = threadIdx.x; i < c.rows; i += THREADS) {
        uint64_t at = k * c.rows + i;
        uint4 o = tg_philox(key, (uint32_t)(at / 4), (uint32_t)(at / 4 >> 32), 1, 2);
        uint32_t word = at % 4 == 0 ? o.x : at % 4 == 1 ? o.y : at % 4 == 2 ? o.z : o.w;
        c.p[at] = (float)((double)word * 0x1p-31 - 1.0);
    }
    __syncthreads();
}

__global__ static void __launch_bounds__(THREADS) orthonormalise(tg_gpu_factors f)
{
    __shared__ workspace w;
    const tg_gpu_matrix &m = f.matrices[f.tiles[blockIdx.x].matrix];
    uint64_t n = m.rank * m.rows, leaves = (m.rows + LEAF - 1) / LEAF;
    columns c = {n <= KEPT ? w.p : m.p, leaves * (m.rank + 1) <= SUMS ? w.sums : m.dots, w.shares, m.rows, leaves};
    for (uint64_t i = threadIdx.x; c.p == w.p && i < n; i += THREADS) {
        w.p[i] = m.p[i];
    }
    __syncthreads();
    for (uint32_t k = 0; k < m.rank; k++) {
        if (!make_orthogonal(c, k)) {
            draw_column(c, k, tg_stream_key(f.seed, f.step, m.tensor, 0));
            (void)make_orthogonal(c, k);
        }
    }
    for (uint64_t i = threadIdx.x; c.p == w.p && i < n; i += THREADS) {
        m.p[i] = w.p[i];
    }
}

void tg_gpu_factors_orthonormalise(const tg_gpu_factors *f)
{
    TG_LAUNCH(orthonormalise, f->n, THREADS, f->stream, *f);
}

/* ---- Q --------------------------------------------------------------------------------------------------------------------- */

/* The largest key of all threads. */
TG_DEVICE uint32_t largest_of(uint32_t key)
{
    __shared__ uint32_t keys[WARPS];
    key = __reduce_max_sync(TG_ALL_LANES, key);
    if (threadIdx.x % TG_WARP == 0) {
        keys[threadIdx.x / TG_WARP] = key;
    }
    __syncthreads();
    for (unsigned i = 0; i < WARPS; i++) {
        key = max(key, keys[i]);
    }
    return key;
}

/* 2^-e, where a positive number is in [2^(e-1), 2^e); 1 if it is 0 or not finite. The number is normal. */
TG_DEVICE double power_below(double number)
{
    uint64_t bits = (uint64_t)__double_as_longlong(number);
    int biased = (int)(bits >> 52 & 0x7ff);
    return biased == 0 || biased == 0x7ff ? 1.0 : __longlong_as_double((long long)(2045 - biased) << 52);
}

__global__ static void __launch_bounds__(THREADS) begin(tg_gpu_factors f)
{
    const tg_gpu_matrix &m = f.matrices[f.tiles[blockIdx.x].matrix];
    uint64_t n = m.columns * m.rank;
    uint32_t key = 0;
    for (uint64_t i = threadIdx.x; i < n; i += THREADS) {
        key = max(key, __float_as_uint(m.q[i]) & 0x7fffffffu);
    }
    double scale = power_below((double)__uint_as_float(largest_of(key)) * (double)m.columns);
    for (uint64_t i = threadIdx.x; i < n; i += THREADS) {
        m.q_next[i] = (float)((double)m.q[i] * scale);
    }
}

void tg_gpu_factors_begin(const tg_gpu_factors *f)
{
    TG_LAUNCH(begin, f->n, THREADS, f->stream, *f);
}

__global__ static void __launch_bounds__(THREADS) end(tg_gpu_factors f)
{
    const tg_gpu_matrix &m = f.matrices[f.tiles[blockIdx.x].matrix];
    uint64_t n = m.columns * m.rank;
    bool is_finite = true;
    for (uint64_t i = threadIdx.x; i < n; i += THREADS) {
        is_finite = is_finite && tg_is_finite(m.q_next[i]);
    }
    if (__syncthreads_and(is_finite) == 0) {
        return; /* it has diverged */
    }
    for (uint64_t i = threadIdx.x; i < n; i += THREADS) {
        m.q[i] = m.q_next[i];
    }
}

void tg_gpu_factors_end(const tg_gpu_factors *f)
{
    TG_LAUNCH(end, f->n, THREADS, f->stream, *f);
}
