/* Coordinates that are drawn from the seed (docs/format.md section 5), or the leader's: draws those of randomk, counts and lists all.
 *
 * randomk takes the first c draws that differ from all before them. Draws are made in rounds, as many in a round as are still
 * missing: so all different numbers of a round are taken, whatever their order, and a bitmap is all that is needed. Many blocks
 * share the first rounds of a long unit; a block of its own makes the rest. */
#include "exec/cuda/known.h"
#include "exec/cuda/scan.h"

enum { THREADS = 256, ROUNDS = 3 /* by many blocks */ };

/* ---- drawing --------------------------------------------------------------------------------------------------------------- */

/* Whether a unit is drawn now: its first chunk is in the pass. */
TG_DEVICE bool is_drawn_now(const tg_gpu_pass &p, const tg_gpu_selection &s, uint32_t unit, bool own_too)
{
    const tg_gpu_selected &selected = s.units[unit];
    bool is_in = selected.chunk_n > 0 && s.unit_chunks[selected.chunk_first] - p.first < p.chunk_n;
    return is_in && (own_too || p.units[unit].coordinates == TG_GPU_AT_DRAWN);
}

__global__ static void start(tg_gpu_pass p, tg_gpu_selection s, bool own_too)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= s.drawn_n || !is_drawn_now(p, s, s.drawns[i], own_too)) {
        return;
    }
    const tg_gpu_unit &u = p.units[s.drawns[i]];
    tg_gpu_drawing *d = &s.drawings[s.drawns[i]];
    uint64_t n = s.units[s.drawns[i]].n, entries = tg_entries_of(u.select_params[TG_SELECT_RATIO_PARAM], n);
    d->key = tg_coordinate_key(p, u, s.drawns[i]);
    d->is_inverse = entries > n - entries;
    d->wanted = d->batch = d->is_inverse ? n - entries : entries;
    d->drawn = d->found = 0;
}

/* Draws a share of a round; returns how many numbers were new to this thread. */
TG_DEVICE uint32_t draw_some(uint32_t *bits, const tg_gpu_drawing &d, uint64_t n, uint64_t drawn, uint64_t batch,
                             uint64_t from, uint64_t step)
{
    uint32_t found = 0;
    for (uint64_t i = from; i < batch; i += step) {
        uint64_t at = tg_draw_coordinate(d.key, drawn + i, n);
        uint32_t bit = 1u << at % 32;
        found += (atomicOr(&bits[at / 32], bit) & bit) == 0 ? 1 : 0;
    }
    return found;
}

/* Long units: blocks_n blocks each. */
__global__ static void clear_far(tg_gpu_pass p, tg_gpu_selection s, bool own_too)
{
    uint32_t unit = s.drawns[blockIdx.x / s.draw_blocks];
    if (!is_drawn_now(p, s, unit, own_too)) {
        return;
    }
    uint64_t words = (s.units[unit].n + 31) / 32;
    uint32_t *bits = s.bits + s.units[unit].bit_at;
    for (uint64_t w = blockIdx.x % s.draw_blocks * THREADS + threadIdx.x; w < words;
         w += (uint64_t)s.draw_blocks * THREADS) {
        bits[w] = 0;
    }
}

__global__ static void draw_far(tg_gpu_pass p, tg_gpu_selection s, bool own_too)
{
    uint32_t unit = s.drawns[blockIdx.x / s.draw_blocks];
    if (!is_drawn_now(p, s, unit, own_too)) {
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

__global__ static void end_round(tg_gpu_pass p, tg_gpu_selection s, bool own_too)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < s.far_n && is_drawn_now(p, s, s.drawns[i], own_too)) {
        tg_gpu_drawing *d = &s.drawings[s.drawns[i]];
        d->drawn += d->batch;
        d->batch = d->wanted - d->found;
    }
}

/* All units: a block draws what is missing. Those that many blocks did not draw from are cleared first. */
__global__ static void draw_rest(tg_gpu_pass p, tg_gpu_selection s, bool own_too)
{
    uint32_t unit = s.drawns[blockIdx.x];
    if (!is_drawn_now(p, s, unit, own_too)) {
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
    bool own = own_too != 0;
    if (s->drawn_n == 0) {
        return;
    }
    TG_LAUNCH(start, (s->drawn_n + THREADS - 1) / THREADS, THREADS, p->stream, *p, *s, own);
    if (s->far_n > 0) {
        TG_LAUNCH(clear_far, s->far_n * s->draw_blocks, THREADS, p->stream, *p, *s, own);
    }
    for (int round = 0; s->far_n > 0 && round < ROUNDS; round++) {
        TG_LAUNCH(draw_far, s->far_n * s->draw_blocks, THREADS, p->stream, *p, *s, own);
        TG_LAUNCH(end_round, (s->far_n + THREADS - 1) / THREADS, THREADS, p->stream, *p, *s, own);
    }
    TG_LAUNCH(draw_rest, s->drawn_n, THREADS, p->stream, *p, *s, own);
}

/* ---- counting and listing ---------------------------------------------------------------------------------------------------- */

/* A block a chunk. */
__global__ static void __launch_bounds__(THREADS) count(tg_gpu_pass p, tg_gpu_selection s)
{
    uint32_t number = p.first + blockIdx.x, marks = 0;
    const tg_gpu_chunk &chunk = p.chunks[number];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (tg_is_block(u)) {
        marks = tg_block_within(tg_block_of(p, u, chunk.unit, s.units[chunk.unit].n), chunk);
    } else if (u.route == TG_GPU_ROUTE_DRAWN) {
        tg_known known = tg_known_of(p, s, u, chunk.unit);
        for (uint32_t at = threadIdx.x * 32; at < chunk.n; at += THREADS * 32) {
            marks += (uint32_t)__popc(tg_known_word(known, chunk.at + at, chunk.n - at));
        }
        marks = tg_block_sum(marks);
    }
    if (threadIdx.x == 0) {
        s.known_n[number] = marks;
    }
}

void tg_gpu_count_known(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    if (p->chunk_n > 0) {
        TG_LAUNCH(count, p->chunk_n, THREADS, p->stream, *p, *s);
    }
}

/* Coordinates of a block, by `each` blocks of threads. */
TG_DEVICE void list_block(uint32_t *positions, const tg_gpu_block &b, const tg_gpu_chunk &chunk, uint32_t each)
{
    uint32_t count = tg_block_within(b, chunk);
    const tg_gpu_ranges r = tg_block_ranges(b, chunk);
    for (uint32_t i = blockIdx.x % each * THREADS + threadIdx.x; i < count; i += each * THREADS) {
        positions[i] = tg_block_position(r, i);
    }
}

/* `each` blocks a chunk whose coordinates are not in the frame, of which the first lists marks. */
__global__ static void __launch_bounds__(THREADS) list(tg_gpu_pass p, tg_gpu_selection s, uint32_t each)
{
    const tg_gpu_chunk &chunk = p.chunks[p.first + blockIdx.x / each];
    const tg_gpu_unit &u = p.units[chunk.unit];
    bool is_block = tg_is_block(u);
    if (u.route != TG_GPU_ROUTE_DRAWN || u.coordinates == TG_GPU_AT_INDICES || (!is_block && blockIdx.x % each != 0)) {
        return;
    }
    tg_known known = tg_known_of(p, s, u, chunk.unit);
    uint32_t *positions = p.space.positions + chunk.element_at, done = 0;
    if (is_block) {
        list_block(positions, known.block, chunk, each);
        return;
    }
    for (uint32_t from = 0; from < chunk.n; from += THREADS * 32) {
        uint32_t at = from + threadIdx.x * 32, total;
        uint32_t word = at < chunk.n ? tg_known_word(known, chunk.at + at, chunk.n - at) : 0;
        uint32_t number = done + tg_block_scan((uint32_t)__popc(word), &total);
        for (; word != 0; word &= word - 1) {
            positions[number++] = at + (uint32_t)__ffs((int)word) - 1;
        }
        done += total;
    }
}

void tg_gpu_list_known(const tg_gpu_pass *p, const tg_gpu_selection *s)
{
    const uint32_t each = s->has_blocks ? 16 : 1;
    if (p->chunk_n > 0) {
        TG_LAUNCH(list, p->chunk_n * each, THREADS, p->stream, *p, *s, each);
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
