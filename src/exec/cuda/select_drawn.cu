/* Coordinates that are drawn from the seed (docs/format.md section 5), or the leader's, and how many of them each chunk has.
 *
 * randomk takes the first c draws that differ from all before them. Draws are made in rounds, as many in a round as are still
 * missing: so all different numbers of a round are taken, whatever their order, and a bitmap is all that is needed. Many blocks
 * share the first rounds of a long unit; a block of its own makes the rest. */
#include "exec/cuda/known.h"
#include "exec/cuda/load.h"
#include "exec/cuda/scan.h"
#include "exec/cuda/select.h"

enum { THREADS = 256, ROUNDS = 3 /* by many blocks */, RATIO = 2 /* parameter */ };

/* ---- random numbers -------------------------------------------------------------------------------------------------------- */

typedef struct four {
    uint32_t word[4];
} four;

TG_DEVICE four philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    enum { PHILOX_ROUNDS = 7 };
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint32_t low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0);
        uint32_t low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* Draw number i below a limit. */
TG_DEVICE uint64_t draw_below(uint64_t key, uint64_t i, uint64_t limit)
{
    four o = philox(key, (uint32_t)(i / 2), (uint32_t)(i / 2 >> 32), 0, 0);
    unsigned at = (unsigned)(i % 2) * 2;
    return __umul64hi(o.word[at] | (uint64_t)o.word[at + 1] << 32, limit);
}

/* ---- drawing --------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint64_t entries_of(double ratio, uint64_t n)
{
    double entries = floor(ratio * (double)n + 0.5);
    return entries < 1.0 ? 1 : entries >= (double)n ? n : (uint64_t)entries;
}

/* Whether a unit is drawn now. */
TG_DEVICE bool is_drawn_now(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t unit, uint32_t first,
                            uint32_t end, bool own_too)
{
    uint32_t patch = s.units[unit].patch_n == 0 ? end : s.unit_patches[s.units[unit].patch_first];
    return patch >= first && patch < end && (own_too || p.units[unit].coordinates == TG_GPU_AT_DRAWN);
}

/* The start of a unit: its stream and, of randomblock, its block. */
TG_DEVICE void start_unit(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t unit)
{
    const tg_gpu_unit &u = p.units[unit];
    tg_gpu_drawing *d = &s.drawings[unit];
    uint64_t n = s.units[unit].n, entries = entries_of(u.select_params[RATIO], n);
    uint32_t who = u.coordinates == TG_GPU_AT_DRAWN ? 0 : p.rank + 1;
    four o = philox(p.seed, (uint32_t)p.step, (uint32_t)(p.step >> 32), unit, who);
    d->key = o.word[0] | (uint64_t)o.word[1] << 32;
    d->is_inverse = entries > n - entries;
    d->wanted = d->batch = d->is_inverse ? n - entries : entries;
    d->drawn = d->found = 0;
    if (u.select == TG_GPU_SELECT_RANDOMBLOCK) {
        uint64_t from = draw_below(d->key, 0, n), before_end = n - from < entries ? n - from : entries;
        d->from[0] = from;
        d->to[0] = from + before_end;
        d->from[1] = 0;
        d->to[1] = entries - before_end;
        d->wanted = d->batch = 0;
    }
}

__global__ static void start(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, bool own_too)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < s.drawn_n && is_drawn_now(p, s, s.drawns[i], first, end, own_too)) {
        start_unit(p, s, s.drawns[i]);
    }
}

/* Draws a share of a round; returns how many numbers were new to this thread. */
TG_DEVICE uint32_t draw_some(uint32_t *bits, const tg_gpu_drawing &d, uint64_t n, uint64_t drawn, uint64_t batch,
                             uint64_t from, uint64_t step)
{
    uint32_t found = 0;
    for (uint64_t i = from; i < batch; i += step) {
        uint64_t at = draw_below(d.key, drawn + i, n);
        uint32_t bit = 1u << at % 32;
        found += (atomicOr(&bits[at / 32], bit) & bit) == 0 ? 1 : 0;
    }
    return found;
}

/* Long units: blocks_n blocks each. */
__global__ static void clear_far(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, bool own_too)
{
    uint32_t unit = s.drawns[blockIdx.x / s.draw_blocks];
    if (!is_drawn_now(p, s, unit, first, end, own_too)) {
        return;
    }
    uint64_t words = (s.units[unit].n + 31) / 32;
    uint32_t *bits = s.bits + s.units[unit].bit_at;
    for (uint64_t w = blockIdx.x % s.draw_blocks * THREADS + threadIdx.x; w < words;
         w += (uint64_t)s.draw_blocks * THREADS) {
        bits[w] = 0;
    }
}

__global__ static void draw_far(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, bool own_too)
{
    uint32_t unit = s.drawns[blockIdx.x / s.draw_blocks];
    if (!is_drawn_now(p, s, unit, first, end, own_too)) {
        return;
    }
    tg_gpu_drawing *d = &s.drawings[unit];
    uint64_t from = blockIdx.x % s.draw_blocks * THREADS + threadIdx.x, step = (uint64_t)s.draw_blocks * THREADS;
    uint32_t found =
        tg_block_sum(draw_some(s.bits + s.units[unit].bit_at, *d, s.units[unit].n, d->drawn, d->batch, from, step));
    if (threadIdx.x == 0 && found > 0) {
        atomicAdd(&d->found, (unsigned long long)found);
    }
}

__global__ static void end_round(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, bool own_too)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < s.far_n && is_drawn_now(p, s, s.drawns[i], first, end, own_too)) {
        tg_gpu_drawing *d = &s.drawings[s.drawns[i]];
        d->drawn += d->batch;
        d->batch = d->wanted - d->found;
    }
}

/* All units: a block draws what is missing. Those that many blocks did not draw from are cleared first. */
__global__ static void draw_rest(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end, bool own_too)
{
    uint32_t unit = s.drawns[blockIdx.x];
    if (!is_drawn_now(p, s, unit, first, end, own_too) || p.units[unit].select == TG_GPU_SELECT_RANDOMBLOCK) {
        return;
    }
    const tg_gpu_drawing &d = s.drawings[unit];
    uint64_t n = s.units[unit].n, drawn = d.drawn, batch = d.batch;
    uint32_t *bits = s.bits + s.units[unit].bit_at;
    for (uint64_t w = threadIdx.x; blockIdx.x >= s.far_n && w < (n + 31) / 32; w += THREADS) {
        bits[w] = 0;
    }
    __syncthreads();
    while (batch > 0) {
        uint32_t found = tg_block_sum(draw_some(bits, d, n, drawn, batch, threadIdx.x, THREADS));
        drawn += batch;
        batch -= found;
    }
}

void tg_gpu_draw_coordinates(const tg_gpu_pass *p, const tg_gpu_selection *s, int own_too)
{
    uint32_t first, end;
    bool own = own_too != 0;
    tg_gpu_selection_range(&first, &end, s, p);
    if (s->drawn_n == 0) {
        return;
    }
    TG_LAUNCH(start, (s->drawn_n + THREADS - 1) / THREADS, THREADS, p->stream, *p, *s, first, end, own);
    if (s->far_n > 0) {
        TG_LAUNCH(clear_far, s->far_n * s->draw_blocks, THREADS, p->stream, *p, *s, first, end, own);
    }
    for (int round = 0; s->far_n > 0 && round < ROUNDS; round++) {
        TG_LAUNCH(draw_far, s->far_n * s->draw_blocks, THREADS, p->stream, *p, *s, first, end, own);
        TG_LAUNCH(end_round, (s->far_n + THREADS - 1) / THREADS, THREADS, p->stream, *p, *s, first, end, own);
    }
    TG_LAUNCH(draw_rest, s->drawn_n, THREADS, p->stream, *p, *s, first, end, own);
}

/* ---- counting -------------------------------------------------------------------------------------------------------------- */

/* A warp a patch. */
__global__ static void count_patches(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end)
{
    uint32_t number = first + blockIdx.x * (THREADS / TG_WARP) + threadIdx.x / TG_WARP, count = 0;
    if (number >= end) {
        return;
    }
    const tg_gpu_patch &patch = s.patches[number];
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (u.route != TG_GPU_ROUTE_DRAWN) {
        return;
    }
    for (uint32_t w = threadIdx.x % TG_WARP; w * 32 < patch.n; w += TG_WARP) {
        count += (uint32_t)__popc(tg_patch_word(s, u, chunk.unit, patch, chunk.at, w));
    }
    count = __reduce_add_sync(TG_ALL_LANES, count);
    if (threadIdx.x % TG_WARP == 0) {
        s.counts[number] = count;
    }
}

/* The last patch of a chunk, a warp, adds up. */
__global__ static void count_chunks(tg_gpu_pass p, tg_gpu_selection s, uint32_t first, uint32_t end)
{
    uint32_t number = first + blockIdx.x * (THREADS / TG_WARP) + threadIdx.x / TG_WARP, count = 0;
    if (number >= end) {
        return;
    }
    const tg_gpu_patch &patch = s.patches[number];
    const tg_gpu_chunk &chunk = p.chunks[patch.chunk];
    if (patch.at + patch.n != chunk.n) {
        return;
    }
    bool is_known = p.units[chunk.unit].route == TG_GPU_ROUTE_DRAWN;
    for (uint32_t i = patch.first + threadIdx.x % TG_WARP; is_known && i <= number; i += TG_WARP) {
        count += s.counts[i];
    }
    count = __reduce_add_sync(TG_ALL_LANES, count);
    if (threadIdx.x % TG_WARP == 0) {
        s.known_n[patch.chunk] = count;
    }
}

void tg_gpu_count_known(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    uint32_t first, end;
    tg_gpu_selection_range(&first, &end, s, p);
    uint32_t blocks = (end - first + THREADS / TG_WARP - 1) / (THREADS / TG_WARP);
    if (blocks > 0) {
        TG_LAUNCH(count_patches, blocks, THREADS, p->stream, *p, *s, first, end);
        TG_LAUNCH(count_chunks, blocks, THREADS, p->stream, *p, *s, first, end);
    }
}

/* ---- the leader's ---------------------------------------------------------------------------------------------------------- */

/* A block a chunk. Chunks of the leader's plan, which has one slice, begin at whole words. */
__global__ static void follow(tg_gpu_pass p, tg_gpu_selection s)
{
    uint32_t number = p.first + blockIdx.x;
    const tg_gpu_chunk &chunk = p.chunks[number];
    if (p.units[chunk.unit].route != TG_GPU_ROUTE_LEADER) {
        return;
    }
    uint32_t *bits = s.bits + s.units[chunk.unit].bit_at + chunk.at / 32;
    for (uint32_t w = threadIdx.x; w < (chunk.n + 31) / 32; w += THREADS) {
        bits[w] = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.space.views[number].count; i += THREADS) {
        uint32_t at = p.space.positions[chunk.element_at + i];
        atomicOr(&bits[at / 32], 1u << at % 32);
    }
}

void tg_gpu_follow_leader(const tg_gpu_pass *leader, const tg_gpu_selection *s)
{
    TG_LAUNCH(follow, leader->chunk_n, THREADS, leader->stream, *leader, *s);
}
