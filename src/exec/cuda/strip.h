/* Elements of a unit while a warp reads them: a strip of 512, gradients and gradients plus residuals. A lane has four times four
 * elements side by side, fours 128 apart, so that all loads of a warp are whole and in flight at once. Strips at the ends of a
 * unit, in several tensors, or with elements that are not finite go element by element through load.h. */
#ifndef TG_EXEC_CUDA_STRIP_H
#define TG_EXEC_CUDA_STRIP_H

#include "exec/cuda/load.h"
#include "exec/cuda/routes.h"
#include "exec/cuda/select.h"

enum { TG_FOURS = 4, TG_EACH = 4 * TG_FOURS, TG_FOUR_STEP = 128 };

/* A patch, and where its element 0 is; elements before `lead` and from `end` on are not there. */
typedef struct tg_region {
    tg_gpu_patch patch;
    const tg_gpu_unit *u;
    const void *grad; /* NULL: element by element */
    const float *now;
    float *next;
    uint32_t dtype;
    bool keeps;    /* next residuals are written */
    bool is_plain; /* fp32 gradients, at most one plane of residuals, and both can be loaded four at a time */
} tg_region;

TG_DEVICE uint32_t tg_key_of(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

TG_DEVICE tg_region tg_region_of(const tg_gpu_pass &p, const tg_gpu_patch &patch)
{
    tg_region r;
    r.patch = patch;
    r.u = &p.units[patch.unit];
    r.dtype = p.flat != nullptr ? 0 : patch.dtype;
    r.keeps = r.u->planes > 0 && r.u->route != TG_GPU_ROUTE_LEADER;
    r.now = p.now + patch.residual_at;
    r.next = p.next + patch.residual_at;
    r.grad = nullptr;
    if (p.flat != nullptr) {
        r.grad = p.flat + r.u->flat_at + (patch.at - r.u->lo);
    } else if (patch.is_one) {
        r.grad = (const uint8_t *)tg_grad_of(p, patch.tensor) + (int64_t)patch.tensor_at * (patch.dtype == 0 ? 4 : 2);
    }
    r.grad = p.space.clips[patch.unit] == 1.0f ? r.grad : nullptr;
    r.is_plain = r.grad != nullptr && r.dtype == 0 && r.u->planes <= 1 && (uintptr_t)r.grad % 16 == 0 &&
                 (r.u->planes == 0 || (uintptr_t)r.now % 16 == 0);
    return r;
}

/* Patches ahead of a block's own whose gradients and residuals it asks for, so that memory is busy while blocks wait and compute: as many
 * as run at a time on a GPU of 132 processors. 0: none. */
#ifndef TG_PATCHES_AHEAD
#define TG_PATCHES_AHEAD 528
#endif

/* What a block has to know of a patch ahead: where its elements [lead, end) are. */
typedef struct tg_patch_ahead {
    uint64_t residual_at, tensor_at;
    uint32_t tensor, lead, end; /* end = 0: there is none, or it is not one stretch of fp32 */
} tg_patch_ahead;

/* The patch ahead of number `number`, of those below `limit`. */
TG_DEVICE tg_patch_ahead tg_patch_ahead_of(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t number,
                                           uint32_t limit)
{
    tg_patch_ahead a = {0, 0, 0, 0, 0};
    if (TG_PATCHES_AHEAD > 0 && p.flat == nullptr && limit - number > TG_PATCHES_AHEAD) {
        const tg_gpu_patch &patch = s.patches[number + TG_PATCHES_AHEAD];
        a = {patch.residual_at, patch.tensor_at, patch.tensor, patch.lead, patch.end};
        a.end = patch.is_one && patch.dtype == 0 ? a.end : 0;
    }
    return a;
}

/* Asks for it, a line a thread: half of TG_GPU_PATCH / 16 threads for gradients, half for residuals, if there are some. */
TG_DEVICE void tg_patch_prefetch(const tg_gpu_pass &p, const tg_patch_ahead &a, bool has_residuals)
{
    enum { LINE = 32, HALF = TG_GPU_PATCH / LINE };
    const bool is_residual = threadIdx.x >= HALF;
    uint32_t i = threadIdx.x % HALF * LINE;
    i = i < a.lead ? a.lead : i;
    if (i < a.end && threadIdx.x < 2 * HALF && (has_residuals || !is_residual)) {
        const float *from =
            is_residual ? p.now + a.residual_at : (const float *)tg_grad_of(p, a.tensor) + (int64_t)a.tensor_at;
        TG_PREFETCH(from + i);
    }
}

/* The element of the patch that number k of this lane is, in the strip that begins at `base`. */
TG_DEVICE uint32_t tg_strip_element(uint32_t base, unsigned k)
{
    return base + k / 4 * TG_FOUR_STEP + threadIdx.x % TG_WARP * 4 + k % 4;
}

/* ---- four at a time -------------------------------------------------------------------------------------------------------- */

TG_DEVICE void tg_get_four(float *v, const float *from)
{
    float4 four = __ldcs((const float4 *)(const void *)from);
    v[0] = four.x;
    v[1] = four.y;
    v[2] = four.z;
    v[3] = four.w;
}

TG_DEVICE void tg_get_four(uint16_t *v, const uint16_t *from)
{
    uint2 four = __ldcs((const uint2 *)(const void *)from);
    v[0] = (uint16_t)four.x;
    v[1] = (uint16_t)(four.x >> 16);
    v[2] = (uint16_t)four.y;
    v[3] = (uint16_t)(four.y >> 16);
}

/* Elements [first, end) of those that begin at `from`; 0 for others. */
template <class T>
TG_DEVICE void tg_strip_get(T (&v)[TG_EACH], const T *from, uint32_t base, uint32_t first, uint32_t end)
{
    if (base >= first && base + TG_GPU_STRIP <= end && (uintptr_t)from % (4 * sizeof(T)) == 0) {
        TG_UNROLL
        for (unsigned j = 0; j < TG_FOURS; j++) {
            tg_get_four(v + 4 * j, from + tg_strip_element(base, 4 * j));
        }
        return;
    }
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        uint32_t i = tg_strip_element(base, k);
        v[k] = i >= first && i < end ? from[(int32_t)i] : (T)0;
    }
}

/* Stores elements [first, end) alone. */
TG_DEVICE void tg_strip_put(float *to, const float (&v)[TG_EACH], uint32_t base, uint32_t first, uint32_t end)
{
    if (base >= first && base + TG_GPU_STRIP <= end && (uintptr_t)to % 16 == 0) {
        TG_UNROLL
        for (unsigned j = 0; j < TG_FOURS; j++) {
            *(float4 *)(void *)(to + tg_strip_element(base, 4 * j)) =
                make_float4(v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3]);
        }
        return;
    }
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        uint32_t i = tg_strip_element(base, k);
        if (i >= first && i < end) {
            to[(int32_t)i] = v[k];
        }
    }
}

/* ---- gradient + residual --------------------------------------------------------------------------------------------------- */

/* One element, and its gradient. */
TG_DEVICE float tg_region_sum(float *gradient, const tg_gpu_pass &p, const tg_region &r, uint32_t i)
{
    const tg_gpu_piece *piece = tg_piece_at(p, *r.u, r.patch.at + i);
    *gradient = tg_load_gradient(p, *r.u, r.patch.unit, piece, r.patch.at + i);
    return tg_add_residual(p, *r.u, piece, *gradient, r.patch.at + i);
}

/* v[k] = value, for a k that is not known when this is compiled, so that v stays in registers. */
TG_DEVICE void tg_strip_set(float (&v)[TG_EACH], unsigned k, float value)
{
    TG_UNROLL
    for (unsigned j = 0; j < TG_EACH; j++) {
        v[j] = j == k ? value : v[j];
    }
}

/* Element by element; velocities, too. */
TG_DEVICE void tg_strip_sums_slowly(float (&g)[TG_EACH], float (&u)[TG_EACH], const tg_gpu_pass &p, const tg_region &r,
                                    uint32_t base)
{
    TG_ROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        uint32_t i = tg_strip_element(base, k);
        float gradient = 0, sum = 0;
        if (i >= r.patch.lead && i < r.patch.end) {
            sum = tg_region_sum(&gradient, p, r, i);
            if (r.keeps && i - r.patch.skip < r.patch.n) {
                tg_keep_state(p, *r.u, gradient, r.patch.at + i, false);
            }
        }
        tg_strip_set(g, k, gradient);
        tg_strip_set(u, k, sum);
    }
}

/* Gradients alone, without the policy. */
TG_DEVICE void tg_strip_gradients(float (&g)[TG_EACH], const tg_region &r, uint32_t base)
{
    if (r.dtype == 0) {
        tg_strip_get(g, (const float *)r.grad, base, r.patch.lead, r.patch.end);
        return;
    }
    uint16_t halves[TG_EACH];
    tg_strip_get(halves, (const uint16_t *)r.grad, base, r.patch.lead, r.patch.end);
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        g[k] = r.dtype == 1 ? tg_fp16_to_float(halves[k]) : tg_bf16_to_float(halves[k]);
    }
}

/* Adds velocity and residual to u = g, and stores the next velocity as if nothing were sent. */
TG_DEVICE void tg_strip_add_momentum(float (&u)[TG_EACH], const tg_region &r, uint32_t base)
{
    const uint64_t plane = r.u->hi - r.u->lo;
    float other[TG_EACH], factor = (float)r.u->feedback_params[0];
    tg_strip_get(other, r.now + plane, base, r.patch.lead, r.patch.end);
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        u[k] = factor * other[k] + u[k];
    }
    if (r.keeps) {
        TG_UNROLL
        for (unsigned k = 0; k < TG_EACH; k++) { /* a sum that is not finite is taken again */
            other[k] = tg_is_finite(u[k]) ? u[k] : 0.0f;
        }
        tg_strip_put(r.next + plane, other, base, r.patch.skip, r.patch.skip + r.patch.n);
    }
    tg_strip_get(other, r.now, base, r.patch.lead, r.patch.end);
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        u[k] = other[k] + u[k];
    }
}

/* What most strips are: one tensor in fp32, at most one plane, all loads known beforehand. */
TG_DEVICE void tg_strip_sums_plainly(float (&g)[TG_EACH], float (&u)[TG_EACH], const tg_region &r, uint32_t base)
{
    float residual[TG_EACH], factor = (float)r.u->feedback_params[0];
    bool has_residual = r.u->planes > 0;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        tg_get_four(g + 4 * j, (const float *)r.grad + tg_strip_element(base, 4 * j));
    }
    if (has_residual) {
        TG_UNROLL
        for (unsigned j = 0; j < TG_FOURS; j++) {
            tg_get_four(residual + 4 * j, r.now + tg_strip_element(base, 4 * j));
        }
    }
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        u[k] = has_residual ? g[k] + factor * residual[k] : g[k];
    }
}

/* Gradients g and sums u of this lane's elements of a strip, 0 for those that are not there. With two planes the next velocities
 * are stored, as if nothing were sent. Returns whether all sums are finite, unless it cannot tell at once: then false. */
TG_DEVICE bool tg_strip_sums(float (&g)[TG_EACH], float (&u)[TG_EACH], const tg_gpu_pass &p, const tg_region &r,
                             uint32_t base)
{
    bool is_finite = r.grad != nullptr;
    if (r.is_plain && base >= r.patch.lead && base + TG_GPU_STRIP <= r.patch.end) {
        tg_strip_sums_plainly(g, u, r, base);
    } else if (is_finite) {
        float factor = (float)r.u->feedback_params[0];
        tg_strip_gradients(g, r, base);
        TG_UNROLL
        for (unsigned k = 0; k < TG_EACH; k++) {
            u[k] = g[k];
        }
        if (r.u->planes == 2) {
            tg_strip_add_momentum(u, r, base);
        } else if (r.u->planes == 1) {
            float residual[TG_EACH];
            tg_strip_get(residual, r.now, base, r.patch.lead, r.patch.end);
            TG_UNROLL
            for (unsigned k = 0; k < TG_EACH; k++) {
                u[k] = u[k] + factor * residual[k];
            }
        }
    }
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        is_finite = is_finite && tg_is_finite(u[k]);
    }
    if (!is_finite) {
        tg_strip_sums_slowly(g, u, p, r, base);
    }
    return is_finite;
}

/* ---- what is kept ------------------------------------------------------------------------------------------------------------ */

/* What a decoder does not see of a value that is sent as it is or in half precision. */
TG_DEVICE float tg_rest_of(const tg_gpu_unit &u, float value)
{
    switch (u.quantize) {
    case TG_GPU_FP16: return value - tg_fp16_to_float(tg_float_to_fp16(value));
    case TG_GPU_BF16: return value - tg_bf16_to_float(tg_float_to_bf16(value));
    default: return 0.0f;
    }
}

/* The next residual of a strip: sums, less what is sent of those with a bit in `sent`, where that is known already. Velocities
 * of what is sent are cleared. is_finite: what tg_strip_sums returned. */
TG_DEVICE void tg_strip_keep(const float (&u)[TG_EACH], const tg_region &r, uint32_t base, uint32_t sent,
                             bool is_finite)
{
    if (!r.keeps) {
        return;
    }
    float kept[TG_EACH];
    uint32_t subtracted = r.u->plain_len != 0 ? sent : 0;
    TG_UNROLL
    for (unsigned k = 0; k < TG_EACH; k++) {
        kept[k] = u[k];
    }
    if (subtracted != 0 || !is_finite) {
        TG_UNROLL
        for (unsigned k = 0; k < TG_EACH; k++) {
            kept[k] = (subtracted >> k & 1) != 0 ? tg_rest_of(*r.u, u[k]) : u[k];
            kept[k] =
                tg_is_finite(u[k]) ? kept[k] : 0.0f; /* so is what remains of it; and with the policy error, u is */
        }
    }
    tg_strip_put(r.next, kept, base, r.patch.skip, r.patch.skip + r.patch.n);
    if (r.u->planes > 1 && sent != 0) {
        float *velocity = r.next + (r.u->hi - r.u->lo);
        TG_UNROLL
        for (unsigned k = 0; k < TG_EACH; k++) {
            if ((sent >> k & 1) != 0) {
                velocity[(int32_t)tg_strip_element(base, k)] = 0.0f;
            }
        }
    }
}

/* ---- lists ------------------------------------------------------------------------------------------------------------------- */

/* The number of marks of lower lanes in each four of a strip, and of all lanes: a byte each. */
TG_DEVICE uint32_t tg_strip_ranks(uint32_t marks, uint32_t *totals)
{
    uint32_t counts = 0, lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (unsigned j = 0; j < TG_FOURS; j++) {
        counts |= (uint32_t)__popc(marks >> 4 * j & 15) << 8 * j;
    }
    uint32_t sum = counts;
    TG_UNROLL
    for (unsigned by = 1; by < TG_WARP; by *= 2) {
        uint32_t lower = __shfl_up_sync(TG_ALL_LANES, sum, by);
        sum += lane >= by ? lower : 0;
    }
    *totals = __shfl_sync(TG_ALL_LANES, sum, (int)TG_WARP - 1);
    return sum - counts;
}

/* Lists the marked elements of a strip: its number in `s`, places from its first own element on, and values. All lanes of the
 * warp; all marked elements are the patch's own. */
TG_DEVICE void tg_strip_list(const tg_gpu_pass &p, const tg_gpu_selection &s, const tg_region &r, uint32_t base,
                             uint32_t marks, const float (&u)[TG_EACH])
{
    uint32_t strip = r.patch.strip_at + base / TG_GPU_STRIP, first = base > r.patch.skip ? base : r.patch.skip;
    uint32_t totals = 0, number = 0;
    if (__any_sync(TG_ALL_LANES, marks != 0)) {
        uint32_t ranks = tg_strip_ranks(marks, &totals);
        uint64_t list = r.patch.list_at + first;
        TG_UNROLL
        for (unsigned j = 0; j < TG_FOURS; j++) {
            uint64_t at = list + number + (ranks >> 8 * j & 255);
            uint32_t place = tg_strip_element(base, 4 * j) - first;
            if ((marks >> 4 * j & 15) != 0) {
                TG_UNROLL
                for (unsigned c = 0; c < 4; c++) {
                    if ((marks >> (4 * j + c) & 1) != 0) {
                        p.space.strip_places[at] = (uint16_t)(place + c);
                        p.space.strip_values[at++] = u[4 * j + c];
                    }
                }
            }
            number += totals >> 8 * j & 255;
        }
    }
    if (threadIdx.x % TG_WARP == 0) {
        s.counts[strip] = number;
    }
}

#endif
