/* LGC: gradients in, averages and residuals out, element by element; see exec/host_lgc_vector.c and host_lgc_learn.c. */
#include "exec/cuda/lgc.h"
#include "exec/cuda/load.h"
#include "exec/cuda/sums.h"

enum { THREADS = 256, WARPS = THREADS / 32, TILE = TG_GPU_LGC_TILE };

TG_DEVICE void refuse(const tg_gpu_lgc &l, uint32_t tensor, unsigned kind)
{
    atomicMin((unsigned long long *)&l.verdict->refused, 2ull * tensor + kind);
}

/* use(i) for the elements i of a tile's tensor. */
template <class Use> TG_DEVICE void each(const tg_gpu_lgc &l, const tg_gpu_lgc_tile &tile, Use use)
{
    uint64_t end = l.tensors[tile.of].n - tile.from < TILE ? l.tensors[tile.of].n : tile.from + TILE;
    for (uint64_t i = tile.from + threadIdx.x; i < end; i += THREADS) {
        use(i);
    }
}

/* ---- loading -------------------------------------------------------------------------------------------------------------- */

TG_DEVICE float load_gradient(const tg_gpu_lgc &l, const tg_gpu_lgc_tensor &t, uint32_t tensor, uint64_t i)
{
    float g = tg_load_element(l.grads[tensor], t.dtype, i);
    return l.nonfinite == TG_GPU_ZERO && !tg_is_finite(g) ? 0.0f : g;
}

/* Sums of squares of leaves, a warp each. A tile is a whole number of them. */
__global__ static void square(tg_gpu_lgc l)
{
    const tg_gpu_lgc_tile tile = l.tiles[blockIdx.x];
    const tg_gpu_lgc_tensor &t = l.tensors[tile.of];
    if (t.clip <= 0) {
        return;
    }
    for (uint32_t leaf = threadIdx.x / TG_WARP; leaf < TILE / TG_LEAF_N; leaf += WARPS) {
        uint64_t from = tile.from + leaf * TG_LEAF_N, end = t.n - from < TG_LEAF_N ? t.n : from + TG_LEAF_N;
        if (from >= t.n) {
            continue;
        }
        double part = 0;
        for (uint64_t i = from + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
            double g = (double)load_gradient(l, t, tile.of, i);
            part += g * g;
        }
        part = tg_fold(part);
        if (threadIdx.x % TG_WARP == 0) {
            l.leaves[t.leaf_at + from / TG_LEAF_N] = part;
        }
    }
}

/* The sum of a tree of leaves; one thread. */
TG_DEVICE double add_leaves(const double *leaves, uint64_t n)
{
    tg_leaf_tree tree;
    tree.n = 0;
    for (uint64_t i = 0; i < n; i++) {
        tg_leaf_add(&tree, leaves[i]);
    }
    return tg_leaf_sum(&tree);
}

__global__ static void clip(tg_gpu_lgc l)
{
    uint32_t tensor = blockIdx.x * THREADS + threadIdx.x;
    if (tensor >= l.tensor_n) {
        return;
    }
    const tg_gpu_lgc_tensor &t = l.tensors[tensor];
    double norm = t.clip > 0 ? sqrt(add_leaves(l.leaves + t.leaf_at, (t.n + TG_LEAF_N - 1) / TG_LEAF_N)) : 0;
    l.clips[tensor] = norm > t.clip ? (float)(t.clip / norm) : 1.0f;
}

TG_DEVICE float clipped(float g, float factor)
{
    float scaled = factor * g;
    return factor == 1.0f ? g : !tg_is_finite(scaled) && tg_is_finite(g) ? copysignf(TG_FLOAT_MAX, scaled) : scaled;
}

/* gradient + residual. */
TG_DEVICE float add_residual(const tg_gpu_lgc &l, const tg_gpu_lgc_tensor &t, uint32_t tensor, float g, uint64_t i)
{
    if (t.planes == 0) {
        return g;
    }
    if (g != g) {
        return tg_quiet(g);
    }
    const float *kept = l.kept + t.feedback_at + i;
    float sum = t.feedback == TG_GPU_FEEDBACK_EF ? g + t.factor * kept[0] : kept[0] + (t.factor * kept[t.n] + g);
    if (!tg_is_finite(sum) && tg_is_finite(g)) {
        if (l.nonfinite == TG_GPU_ERROR) {
            refuse(l, tensor, 1);
        }
        sum = sum != sum ? 0.0f : copysignf(TG_FLOAT_MAX, sum);
    }
    return sum;
}

__global__ static void __launch_bounds__(THREADS) load(tg_gpu_lgc l, bool clips)
{
    const tg_gpu_lgc_tile tile = l.tiles[blockIdx.x];
    const tg_gpu_lgc_tensor &t = l.tensors[tile.of];
    float factor = clips ? l.clips[tile.of] : 1.0f;
    each(l, tile, [&](uint64_t i) {
        float g = load_gradient(l, t, tile.of, i);
        if (l.nonfinite == TG_GPU_ERROR && !tg_is_finite(g)) {
            refuse(l, tile.of, 0);
        }
        g = clipped(g, factor);
        l.g[t.at + i] = g;
        l.u[t.at + i] = add_residual(l, t, tile.of, g, i);
    });
}

void tg_gpu_lgc_load(const tg_gpu_lgc *l, int clips)
{
    if (clips) {
        TG_LAUNCH(square, l->tile_n, THREADS, l->stream, *l);
        TG_LAUNCH(clip, (l->tensor_n + THREADS - 1) / THREADS, THREADS, l->stream, *l);
    }
    TG_LAUNCH(load, l->tile_n, THREADS, l->stream, *l, clips != 0);
}

/* ---- checking averages ---------------------------------------------------------------------------------------------------- */

TG_DEVICE bool is_whole(const tg_gpu_lgc &l, const tg_gpu_lgc_tensor &t)
{
    return l.is_dense || t.role == TG_GPU_LGC_WHOLE;
}

TG_DEVICE void check_average(const tg_gpu_lgc &l, uint32_t tensor, float *average)
{
    if (tg_is_finite(*average)) {
        return;
    }
    if (l.nonfinite == TG_GPU_ERROR) {
        refuse(l, tensor, 0);
    } else if (l.nonfinite == TG_GPU_ZERO) {
        *average = 0;
    }
}

__global__ static void check_whole(tg_gpu_lgc l, float *average)
{
    const tg_gpu_lgc_tile tile = l.tiles[blockIdx.x];
    const tg_gpu_lgc_tensor &t = l.tensors[tile.of];
    if (is_whole(l, t)) {
        each(l, tile, [&](uint64_t i) { check_average(l, tile.of, &average[(l.is_dense ? t.at : t.whole_at) + i]); });
    }
}

/* The value of an entry among those of a rank. */
TG_DEVICE uint64_t value_of(const tg_gpu_lgc &l, uint64_t entry, uint32_t *tensor)
{
    *tensor = l.entry_tensor[entry];
    const tg_gpu_lgc_tensor &t = l.tensors[*tensor];
    return t.value_at + (entry - t.entry_at);
}

__global__ static void check_means(tg_gpu_lgc l, float *means, bool subtracts)
{
    uint64_t entry = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t tensor;
    if (entry >= l.entry_n) {
        return;
    }
    uint64_t value = value_of(l, entry, &tensor);
    check_average(l, tensor, &means[value]);
    bool is_subtracted = subtracts && l.tensors[tensor].role == TG_GPU_LGC_CODED;
    if (is_subtracted && l.nonfinite == TG_GPU_ERROR && !tg_is_finite(l.own[value] - means[value])) {
        refuse(l, tensor, 1);
    }
}

static uint32_t entry_blocks(const tg_gpu_lgc *l)
{
    return (uint32_t)((l->entry_n + THREADS - 1) / THREADS);
}

void tg_gpu_lgc_check(const tg_gpu_lgc *l, float *average, float *means, int subtracts)
{
    TG_LAUNCH(check_whole, l->tile_n, THREADS, l->stream, *l, average);
    if (!l->is_dense) {
        TG_LAUNCH(check_means, entry_blocks(l), THREADS, l->stream, *l, means, subtracts != 0);
    }
}

/* ---- the end of a step ---------------------------------------------------------------------------------------------------- */

/* What is kept: 0 where the policy is not to refuse what is not finite. */
TG_DEVICE float kept(const tg_gpu_lgc &l, float value)
{
    return l.nonfinite != TG_GPU_ERROR && !tg_is_finite(value) ? 0.0f : value;
}

TG_DEVICE void store(const tg_gpu_lgc &l, const tg_gpu_lgc_tensor &t, uint32_t tensor, uint64_t i, float value)
{
    if (t.dtype == 0) {
        ((float *)l.grads[tensor])[i] = value;
    } else {
        ((uint16_t *)l.grads[tensor])[i] = t.dtype == 1 ? tg_float_to_fp16(value) : tg_float_to_bf16(value);
    }
}

/* All elements, as if nothing was selected. */
__global__ static void settle_all(tg_gpu_lgc l, const float *average)
{
    const tg_gpu_lgc_tile tile = l.tiles[blockIdx.x];
    const tg_gpu_lgc_tensor &t = l.tensors[tile.of];
    bool whole = is_whole(l, t);
    each(l, tile, [&](uint64_t i) {
        float *residual = l.kept + t.feedback_at + i;
        if (t.planes > 1) {
            residual[t.n] = kept(l, t.factor * residual[t.n] + l.g[t.at + i]);
        }
        if (t.planes > 0) {
            residual[0] = whole ? 0.0f : kept(l, l.u[t.at + i]);
        }
        store(l, t, tile.of, i, whole ? average[(l.is_dense ? t.at : t.whole_at) + i] : 0.0f);
    });
}

/* Then the elements that are selected. */
__global__ static void settle_entries(tg_gpu_lgc l, const float *means, const float *sent_coded)
{
    uint64_t entry = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t tensor;
    if (entry >= l.entry_n) {
        return;
    }
    uint64_t value = value_of(l, entry, &tensor);
    const tg_gpu_lgc_tensor &t = l.tensors[tensor];
    uint64_t i = l.coordinates[entry] - t.sparse_at;
    float sent = t.role == TG_GPU_LGC_CODED ? sent_coded[value] : l.own[value];
    float *residual = l.kept + t.feedback_at + i;
    if (t.planes > 0) {
        residual[0] = kept(l, l.u[t.at + i] - sent);
    }
    if (t.planes > 1) {
        residual[t.n] = 0;
    }
    store(l, t, tensor, i, means[value]);
}

void tg_gpu_lgc_settle(const tg_gpu_lgc *l, const float *average, const float *means, const float *sent_coded)
{
    TG_LAUNCH(settle_all, l->tile_n, THREADS, l->stream, *l, average);
    if (!l->is_dense) {
        TG_LAUNCH(settle_entries, entry_blocks(l), THREADS, l->stream, *l, means, sent_coded);
    }
}

/* A block a tensor. */
__global__ static void __launch_bounds__(THREADS) update_scales(tg_gpu_lgc l, const float *means)
{
    const tg_gpu_lgc_tensor &t = l.tensors[blockIdx.x];
    uint64_t leaf_n = (t.k + TG_LEAF_N - 1) / TG_LEAF_N;
    if (t.role != TG_GPU_LGC_CODED || t.k == 0) {
        return;
    }
    for (uint64_t leaf = threadIdx.x / TG_WARP; leaf < leaf_n; leaf += WARPS) {
        uint64_t end = t.k - leaf * TG_LEAF_N < TG_LEAF_N ? t.k : (leaf + 1) * TG_LEAF_N;
        double part = 0;
        for (uint64_t i = leaf * TG_LEAF_N + threadIdx.x % TG_WARP; i < end; i += TG_WARP) {
            double mean = (double)means[t.value_at + i];
            part += mean * mean;
        }
        part = tg_fold(part);
        if (threadIdx.x % TG_WARP == 0) {
            l.leaves[t.leaf_at + leaf] = part;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float *scale = &l.scales[blockIdx.x], rms = (float)sqrt(add_leaves(l.leaves + t.leaf_at, leaf_n) / (double)t.k);
        float next = *scale > 0 ? 0.9f * *scale + 0.1f * rms : rms;
        *scale = tg_is_finite(next) ? next : *scale;
    }
}

void tg_gpu_lgc_update_scales(const tg_gpu_lgc *l, const float *means)
{
    TG_LAUNCH(update_scales, l->tensor_n, THREADS, l->stream, *l, means);
}
