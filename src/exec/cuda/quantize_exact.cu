/* ORQ with exact levels on the GPU; see quantize/levels.c, whose sums and ties these are.
 *
 * A block takes a bucket and a slot of scratch memory: it sorts the values there, and fills row after row of the table. Within a row
 * the best k ascends with j, so that entries are filled in strides of 2^i, each between those of its neighbours. */
#include "exec/cuda/levels.h"

enum { WARPS = 16, THREADS = WARPS * 32 };

/* A slot, for buckets of up to n values and s levels. */
typedef struct slot {
    float *values;           /* sorted; there is space for a power of two */
    int64_t *sums, *squares; /* prefix sums of x: of all before one */
    int64_t *before, *now;   /* rows of the least error */
    int32_t *x;              /* values as multiples of a 2^22nd of their range */
    uint16_t *from;          /* row after row: the k of the least error */
} slot;

__host__ __device__ static __forceinline__ uint64_t power_from(uint64_t n)
{
    uint64_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

extern "C" uint64_t tg_gpu_quantize_scratch(const tg_gpu_unit *unit)
{
    if (tg_quantize_kind(*unit) % TG_KIND_LONG != TG_KIND_EXACT) {
        return 0;
    }
    uint64_t n = unit->bucket_n, len = 4 * (n + 1) * 8 + 4 * power_from(n) + 4 * n + 2 * n * unit->base;
    return (len + 15) / 16 * 16;
}

TG_DEVICE slot slot_at(uint8_t *at, uint64_t n)
{
    int64_t *words = (int64_t *)(void *)at;
    slot s = {nullptr, words, words + (n + 1), words + 2 * (n + 1), words + 3 * (n + 1), nullptr, nullptr};
    s.values = (float *)(void *)(words + 4 * (n + 1));
    s.x = (int32_t *)(void *)(s.values + power_from(n));
    s.from = (uint16_t *)(void *)(s.x + n);
    return s;
}

/* A bitonic sort of a power of two of values. */
TG_DEVICE void sort(float *values, uint32_t n)
{
    for (uint32_t size = 2; size <= n; size *= 2) {
        for (uint32_t apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (uint32_t t = threadIdx.x; t < n / 2; t += THREADS) {
                uint32_t i = t / apart * 2 * apart + t % apart, j = i + apart;
                float a = values[i], b = values[j];
                if ((a > b) == ((i & size) == 0)) {
                    values[i] = b;
                    values[j] = a;
                }
            }
        }
    }
    __syncthreads();
}

/* The different values, if there are at most s of them; thread 0. */
TG_DEVICE bool take_distinct(float *levels, uint32_t s, const float *x, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && x[i] == x[i - 1]) {
            continue;
        }
        if (count == s) {
            return false;
        }
        levels[count++] = x[i];
    }
    for (; count < s; count++) {
        levels[count] = x[n - 1];
    }
    return true;
}

/* x, and its prefix sums: each thread adds up a part, then begins with the sum of all parts before its own. */
TG_DEVICE void sum_prefixes(const slot &s, uint32_t n)
{
    __shared__ int64_t parts[2][THREADS];
    double low = (double)s.values[0], scale = 0x1p22 / ((double)s.values[n - 1] - low);
    uint32_t each = (n + THREADS - 1) / THREADS, first = min(n, threadIdx.x * each), end = min(n, first + each);
    int64_t sum = 0, squares = 0;
    for (uint32_t i = first; i < end; i++) {
        int64_t x = (int64_t)(((double)s.values[i] - low) * scale);
        s.x[i] = (int32_t)x;
        sum += x;
        squares += x * x;
    }
    parts[0][threadIdx.x] = sum;
    parts[1][threadIdx.x] = squares;
    __syncthreads();
    sum = squares = 0;
    for (unsigned t = 0; t < threadIdx.x; t++) {
        sum += parts[0][t];
        squares += parts[1][t];
    }
    for (uint32_t i = first; i < end; i++) {
        int64_t x = s.x[i];
        s.sums[i] = sum;
        s.squares[i] = squares;
        sum += x;
        squares += x * x;
    }
    if (end == n && first < n) {
        s.sums[n] = sum;
        s.squares[n] = squares;
    }
    __syncthreads();
}

TG_DEVICE int64_t cost(const slot &s, uint32_t k, uint32_t j)
{
    int64_t a = s.x[k], c = s.x[j], count = (int64_t)(j - k);
    int64_t sum = s.sums[j + 1] - s.sums[k + 1], squares = s.squares[j + 1] - s.squares[k + 1];
    return (a + c) * sum - a * c * count - squares;
}

/* Entry j of a row, whose k is known to be in [first, last], by a warp. */
TG_DEVICE void fill_entry(const slot &s, uint16_t *from, uint32_t j, uint32_t first, uint32_t last)
{
    int64_t least = INT64_MAX;
    uint32_t best = 0xffffffffu;
    for (uint32_t k = first + threadIdx.x % TG_WARP; k <= last && k <= j; k += TG_WARP) {
        int64_t error = s.before[k] + cost(s, k, j);
        if (error < least) {
            least = error;
            best = k;
        }
    }
    for (int half = 16; half > 0; half /= 2) {
        int64_t error = __shfl_xor_sync(TG_ALL_LANES, least, half);
        uint32_t k = __shfl_xor_sync(TG_ALL_LANES, best, half);
        bool is_better = error < least || (error == least && k < best);
        least = is_better ? error : least;
        best = is_better ? k : best;
    }
    if (threadIdx.x % TG_WARP == 0) {
        s.now[j] = least;
        from[j] = (uint16_t)best;
    }
}

TG_DEVICE void fill_row(const slot &s, uint16_t *from, uint32_t n)
{
    for (uint32_t stride = (uint32_t)power_from(n / 2 + 1); stride > 0; stride /= 2) {
        uint32_t warp = threadIdx.x / TG_WARP;
        for (uint64_t j = stride - 1 + 2ull * stride * warp; j < n; j += 2ull * stride * WARPS) {
            uint32_t first = j >= stride ? from[j - stride] : 0;
            uint32_t last = j + stride < n ? from[j + stride] : n - 1;
            fill_entry(s, from, (uint32_t)j, first, last);
        }
        __syncthreads();
    }
}

/* Levels that are not simply the values; all threads. */
TG_DEVICE void find_levels(float *levels, uint32_t level_n, slot s, uint32_t n)
{
    sum_prefixes(s, n);
    for (uint32_t j = threadIdx.x; j < n; j += THREADS) {
        s.now[j] = cost(s, 0, j); /* level 0 is the first value, level 1 is value j */
    }
    __syncthreads();
    for (uint32_t level = 2; level < level_n; level++) {
        int64_t *swap = s.before;
        s.before = s.now;
        s.now = swap;
        fill_row(s, s.from + (uint64_t)level * n, n);
    }
    if (threadIdx.x == 0) {
        uint32_t at = n - 1;
        for (uint32_t level = level_n - 1; level > 0; level--) {
            levels[level] = s.values[at];
            at = level >= 2 ? s.from[(uint64_t)level * n + at] : 0;
        }
        levels[0] = s.values[0];
    }
    __syncthreads();
}

struct exact : tg_levels {
    static constexpr unsigned KIND = TG_KIND_EXACT;

    template <class Team> __device__ __forceinline__ void fit(Team &team, const tg_gpu_unit &u)
    {
        __shared__ tg_level_space space;
        __shared__ bool is_done;
        slot s = slot_at(team.scratch, u.bucket_n);
        uint32_t n = team.b.n, power = (uint32_t)power_from(n);
        team.clip_to(u.quantize_params[TG_ORQ_CLIP]);
        __syncthreads();
        team.each([&](float x, uint32_t i) { s.values[i] = x; });
        for (uint32_t i = n + threadIdx.x; i < power; i += THREADS) {
            s.values[i] = INFINITY;
        }
        sort(s.values, power);
        if (threadIdx.x == 0) {
            is_done = take_distinct(space.chosen, u.base, s.values, n);
        }
        __syncthreads();
        if (!is_done) {
            find_levels(space.chosen, u.base, s, n);
        }
        take(team, space, u);
    }
};

/* Blocks take buckets in turns: of dense chunks by tiles, of sparse ones by chunks. */
__global__ static void __launch_bounds__(THREADS) quantize_exact(tg_gpu_pass p, bool is_sparse)
{
    __shared__ tg_team_space space;
    __shared__ uint4 draws[WARPS][TG_DRAW_BLOCKS];
    uint32_t turn = 0;
    for (uint32_t i = 0; i < (is_sparse ? p.chunk_n : p.tile_n); i++) {
        tg_gpu_tile tile = is_sparse ? tg_gpu_tile{p.first + i, 0, 0, 0, 0, 0, 0} : p.tiles[i];
        const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
        const tg_gpu_unit &u = p.units[chunk.unit];
        if (tg_quantize_kind(u) % TG_KIND_LONG != TG_KIND_EXACT || !tg_unit_sends(u, is_sparse)) {
            continue;
        }
        uint32_t count = tg_value_count(p, tile.chunk), end = is_sparse ? count : min(count, tile.from + TG_GPU_TILE);
        uint64_t key = tg_stream_key(p.seed, tg_step_of(p), chunk.unit, p.rank + 1);
        for (uint32_t at = (tile.from + u.bucket_n - 1) / u.bucket_n * u.bucket_n; at < end; at += u.bucket_n, turn++) {
            if (turn % gridDim.x != blockIdx.x) {
                continue;
            }
            float values[TG_LANE_N];
            tg_gpu_bucket b = tg_bucket_of(p, tile.chunk, at, u.bucket_n, count);
            tg_team<WARPS, false> team(p, b, space, values);
            team.scratch = p.space.slots + blockIdx.x * p.space.slot_len;
            team.load();
            tg_quantize_bucket<exact>(team, draws[threadIdx.x / TG_WARP], key);
        }
    }
}

void tg_launch_exact(const tg_gpu_pass *p, bool is_sparse)
{
    if (p->chunk_n > 0 && p->space.slot_n > 0 &&
        (tg_pass_has(p, TG_KIND_EXACT) || tg_pass_has(p, TG_KIND_EXACT + TG_KIND_LONG))) {
        TG_LAUNCH(quantize_exact, p->space.slot_n, THREADS, p->stream, *p, is_sparse);
    }
}
