/* LGC: coordinates as bytes, in chunks as in a frame, by the kernels that write and read indices of frames. What differs from a frame:
 * chunks are of one list of coordinates, nothing but indices is in them, and each has its header before it. */
#include "exec/cuda/lgc.h"
#include "exec/cuda/kernel.h"
#include "exec/cuda/scan.h"

enum { THREADS = 256, CHUNK = TG_GPU_LGC_CHUNK, HEADER = TG_GPU_LGC_HEADER };

/* ---- writing -------------------------------------------------------------------------------------------------------------- */

/* The first of k coordinates, which are ascending, that is not below `limit`. */
TG_DEVICE uint64_t first_from(const uint64_t *coordinates, uint64_t k, uint64_t limit)
{
    uint64_t low = 0, high = k;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (coordinates[middle] < limit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

__global__ static void cut_chunks(tg_gpu_lgc_mask m, const uint64_t *coordinates)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < m.chunk_n) {
        uint64_t first = first_from(coordinates, m.k, i * CHUNK), end = first_from(coordinates, m.k, (i + 1) * CHUNK);
        tg_view v = {};
        v.count = (uint32_t)(end - first);
        m.chunks[i].element_at = first;
        m.pass.space.views[i] = v;
    }
    if (i < m.k) {
        m.pass.space.positions[i] = (uint32_t)(coordinates[i] % CHUNK);
    }
}

/* Where chunks go: one block. */
__global__ static void __launch_bounds__(THREADS) place_chunks(tg_gpu_lgc_mask m, tg_gpu_lgc_verdict *verdict)
{
    uint64_t done = 0;
    for (uint32_t from = 0; from < m.chunk_n; from += THREADS) {
        uint32_t i = from + threadIdx.x;
        uint64_t all, len = i < m.chunk_n ? HEADER + m.pass.space.views[i].index_len : 0;
        uint64_t at = done + tg_block_scan(len, &all);
        if (i < m.chunk_n) {
            m.offsets[i] = at;
        }
        done += all;
    }
    if (threadIdx.x == 0) {
        m.offsets[m.chunk_n] = done;
        verdict->mask_len = done;
    }
}

/* Each after a header of its own. */
__global__ static void __launch_bounds__(THREADS) move_chunk(uint8_t *out, tg_gpu_lgc_mask m)
{
    const tg_view &v = m.pass.space.views[blockIdx.x];
    const uint8_t *from = m.pass.space.out[blockIdx.x];
    out += m.offsets[blockIdx.x];
    if (threadIdx.x == 0) {
        tg_store_bytes(out, v.count | (uint32_t)v.mode << 24, 4);
        tg_store_bytes(out + 4, v.index_len, 2);
    }
    for (uint64_t i = threadIdx.x; i < v.index_len; i += THREADS) {
        out[HEADER + i] = from[i];
    }
}

static uint32_t blocks_for(uint64_t n)
{
    return (uint32_t)((n + THREADS - 1) / THREADS);
}

void tg_gpu_lgc_write_mask(uint8_t *out, const tg_gpu_lgc_mask *m, const uint64_t *coordinates, tg_gpu_lgc_verdict *verdict,
                           void *stream)
{
    TG_LAUNCH(cut_chunks, blocks_for(m->k > m->chunk_n ? m->k : m->chunk_n), THREADS, stream, *m, coordinates);
    tg_gpu_write_indices(&m->pass);
    TG_LAUNCH(place_chunks, 1, THREADS, stream, *m, verdict);
    TG_LAUNCH(move_chunk, m->chunk_n, THREADS, stream, out, *m);
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

/* The header of a chunk. False: it makes no sense. */
TG_DEVICE bool read_header(tg_view *v, const uint8_t *bytes, uint64_t at, uint64_t len, uint64_t n)
{
    if (len - at < HEADER) {
        return false;
    }
    uint32_t word = tg_load32(bytes + at), index_len = bytes[at + 4] | (uint32_t)bytes[at + 5] << 8;
    v->count = word & 0xffffffu;
    v->mode = (uint8_t)(word >> 24);
    v->index_len = (uint16_t)index_len;
    v->indices = at + HEADER;
    return v->count <= n && len - at - HEADER >= index_len && (v->count > 0 || (word == 0 && index_len == 0));
}

/* Lengths stand in the chunks: one thread walks from one to the next. After a bad one all are empty. */
__global__ static void find_chunks(tg_gpu_lgc_mask m, const uint8_t *bytes, uint64_t len, uint64_t rest_len,
                                   tg_gpu_lgc_verdict *verdict)
{
    uint64_t at = 0, entries = 0;
    bool is_sound = true;
    if (threadIdx.x != 0) {
        return;
    }
    for (uint32_t i = 0; i < m.chunk_n; i++) {
        uint64_t n = m.n - (uint64_t)i * CHUNK < CHUNK ? m.n - (uint64_t)i * CHUNK : (uint64_t)CHUNK;
        tg_view v = {};
        is_sound = is_sound && read_header(&v, bytes, at, len, n) && m.k - entries >= v.count;
        m.pass.space.views[i] = is_sound ? v : tg_view{};
        m.chunks[i].element_at = entries;
        at += is_sound ? HEADER + v.index_len : 0;
        entries += is_sound ? v.count : 0;
    }
    verdict->mask_len = at;
    if (!is_sound || entries != m.k || len - at != rest_len) {
        verdict->is_bad = 1;
    }
}

__global__ static void __launch_bounds__(THREADS) take_chunk(uint64_t *coordinates, tg_gpu_lgc_mask m)
{
    uint64_t at = m.chunks[blockIdx.x].element_at;
    for (uint32_t i = threadIdx.x; i < m.pass.space.views[blockIdx.x].count; i += THREADS) {
        coordinates[at + i] = (uint64_t)blockIdx.x * CHUNK + m.pass.space.positions[at + i];
    }
}

/* Coordinates of a bad message are whatever was there. */
__global__ static void confine(uint64_t *coordinates, tg_gpu_lgc_mask m, tg_gpu_lgc_verdict *verdict)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i == 0 && m.pass.verdict->bad_chunk != 0) {
        verdict->is_bad = 1;
    }
    if (i < m.k && coordinates[i] >= m.n) {
        coordinates[i] = 0;
    }
}

void tg_gpu_lgc_read_mask(uint64_t *coordinates, const tg_gpu_lgc_mask *m, const uint8_t *bytes, uint64_t len, uint64_t rest_len,
                          tg_gpu_lgc_verdict *verdict, void *stream)
{
    TG_LAUNCH(find_chunks, 1, TG_WARP, stream, *m, bytes, len, rest_len, verdict);
    tg_gpu_read_indices(&m->pass, bytes, &m->selection);
    TG_LAUNCH(take_chunk, m->chunk_n, THREADS, stream, coordinates, *m);
    TG_LAUNCH(confine, blocks_for(m->k), THREADS, stream, coordinates, *m, verdict);
}

__global__ static void check_entries(tg_gpu_lgc l)
{
    uint64_t entry = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (entry >= l.entry_n) {
        return;
    }
    const tg_gpu_lgc_tensor &t = l.tensors[l.entry_tensor[entry]];
    uint64_t coordinate = l.coordinates[entry];
    if (coordinate < t.sparse_at || coordinate - t.sparse_at >= t.n) {
        l.verdict->is_bad = 1;
        l.coordinates[entry] = t.sparse_at;
    }
}

void tg_gpu_lgc_check_entries(const tg_gpu_lgc *l)
{
    TG_LAUNCH(check_entries, blocks_for(l->entry_n), THREADS, l->stream, *l);
}
