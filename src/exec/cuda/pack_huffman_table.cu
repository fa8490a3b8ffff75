/* Codes of huffman (pack/huffman.c) on the GPU: a block a chunk finds the optimal lengths, or takes those of the quantizer's model,
 * decides the form and writes the lengths of codes. */
#include "exec/cuda/pack_prefix.h"

enum { THREADS = 512 };

typedef struct table_space {
    uint32_t counts[TG_PACK_BASE];
    uint32_t leaves[TG_PACK_BASE];                 /* sorted: count, and the symbol in the low 9 bits */
    alignas(16) uint32_t row[2][2 * TG_PACK_BASE]; /* weights of package-merge, in turn; before, keys of symbols */
    uint16_t place[TG_PREFIX_BITS][TG_PACK_BASE];  /* of a leaf in the row of a level */
    uint8_t lengths[TG_PACK_BASE];
    uint32_t codes[TG_PACK_BASE];
} table_space;

/* ---- optimal code lengths ------------------------------------------------------------------------------------------------------ */

/* Sorts the symbols that occur by count, then by symbol; returns their number. */
TG_DEVICE uint32_t sort_leaves(table_space *t, uint32_t base)
{
    uint32_t own = 0, *keys = t->row[0];
    for (uint32_t s = threadIdx.x; s < TG_PACK_BASE; s += THREADS) {
        keys[s] = t->counts[s] == 0 ? ~0u : t->counts[s] << 9 | s; /* counts are 0 from the base on */
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < base; s += THREADS) {
        uint32_t place = 0, key = keys[s];
        if (key == ~0u) {
            continue;
        }
        for (uint32_t other = 0; other < base; other += 4) {
            uint4 four = *(const uint4 *)(const void *)(keys + other);
            place += (four.x < key ? 1u : 0u) + (four.y < key ? 1u : 0u);
            place += (four.z < key ? 1u : 0u) + (four.w < key ? 1u : 0u);
        }
        t->leaves[place] = key;
        own++;
    }
    return tg_sum_block(own);
}

/* How many of n ascending numbers, each shifted right, are below a number, or not above it if `or_equal`. */
TG_DEVICE uint32_t count_below(const uint32_t *numbers, uint32_t n, uint32_t shift, uint32_t number, bool or_equal)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = (low + high) / 2, here = numbers[middle] >> shift;
        bool is_below = or_equal ? here <= number : here < number;
        low = is_below ? middle + 1 : low;
        high = is_below ? high : middle;
    }
    return low;
}

/* Package-merge, as the host does it. A row merges the leaves and the pairs of the row before, a leaf before a pair of the same
 * weight: the place of each is found by a search in the others. Half of the threads begin with leaves and half with pairs. */
TG_DEVICE void merge_rows(table_space *t, uint32_t n)
{
    uint32_t pair_n = 0;
    for (uint32_t level = 0; level < TG_PREFIX_BITS; level++) {
        uint32_t *before = t->row[level % 2], *row = t->row[(level + 1) % 2];
        uint32_t *pairs = before; /* the sums take the place of what they are of, after all have read it */
        uint32_t sums[TG_PACK_BASE / THREADS];
        for (uint32_t i = 0; i < TG_PACK_BASE / THREADS; i++) {
            uint32_t pair = threadIdx.x + i * THREADS;
            sums[i] = pair < pair_n ? before[2 * pair] + before[2 * pair + 1] : 0;
        }
        __syncthreads();
        for (uint32_t i = 0; i < TG_PACK_BASE / THREADS; i++) {
            pairs[threadIdx.x + i * THREADS] = sums[i];
        }
        __syncthreads();
        for (uint32_t leaf = threadIdx.x; leaf < n; leaf += THREADS) {
            uint32_t weight = t->leaves[leaf] >> 9, place = leaf + count_below(pairs, pair_n, 0, weight, false);
            row[place] = weight;
            t->place[level][leaf] = (uint16_t)place;
        }
        for (uint32_t pair = (threadIdx.x + THREADS / 2) % THREADS; pair < pair_n; pair += THREADS) {
            row[pair + count_below(t->leaves, n, 9, pairs[pair], true)] = pairs[pair];
        }
        pair_n = (n + pair_n) / 2;
        __syncthreads();
    }
}

/* Lengths of an optimal code for the counts. */
TG_DEVICE void best_lengths(table_space *t, uint32_t base)
{
    uint32_t n = sort_leaves(t, base);
    for (uint32_t s = threadIdx.x; s < base; s += THREADS) {
        t->lengths[s] = 0;
    }
    __syncthreads();
    if (n == 1) { /* a single symbol: a second, unused one makes the code complete */
        if (threadIdx.x == 0) {
            uint32_t only = t->leaves[0] & 511;
            t->lengths[only] = t->lengths[only == 0 ? 1 : only - 1] = 1;
        }
        return;
    }
    merge_rows(t, n);
    uint32_t taken = 2 * n - 2, length[TG_PACK_BASE / THREADS] = {};
    for (uint32_t level = TG_PREFIX_BITS; level-- > 0;) {
        uint32_t leaves = 0;
        for (uint32_t i = 0; i < TG_PACK_BASE / THREADS; i++) {
            uint32_t leaf = threadIdx.x + i * THREADS;
            bool is_taken = leaf < n && t->place[level][leaf] < taken;
            length[i] += is_taken ? 1 : 0;
            leaves += (uint32_t)__syncthreads_count(is_taken);
        }
        taken = 2 * (taken - leaves);
    }
    for (uint32_t i = 0; i < TG_PACK_BASE / THREADS; i++) {
        uint32_t leaf = threadIdx.x + i * THREADS;
        if (leaf < n) {
            t->lengths[t->leaves[leaf] & 511] = (uint8_t)length[i];
        }
    }
}

/* ---- the form ----------------------------------------------------------------------------------------------------------- */

/* Lengths into shared memory; returns whether they are those of the model. */
TG_DEVICE bool find_lengths(table_space *t, const tg_pack_job &j, const tg_prefix_models &models, const uint8_t *side)
{
    const uint8_t *model = tg_prefix_model_of(models, *j.unit, side);
    if (model == nullptr) {
        best_lengths(t, j.base);
    } else {
        for (uint32_t s = threadIdx.x; s < j.base; s += THREADS) {
            t->lengths[s] = model[s / 2] >> s % 2 * 4 & 15;
        }
    }
    __syncthreads();
    return model != nullptr;
}

__global__ static void __launch_bounds__(THREADS)
    make_tables(tg_gpu_pass p, uint8_t *scratch, const __grid_constant__ tg_prefix_models models)
{
    __shared__ table_space t;
    uint32_t chunk = p.first + blockIdx.x;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_job_of(&j, p, scratch, chunk, TG_PACK_SYMBOLS) || !j.is_coded || j.unit->symbol != TG_GPU_HUFFMAN) {
        return;
    }
    tg_pack_scratch s = tg_pack_scratch_of(p, scratch, chunk);
    const tg_view *v = &p.space.views[chunk];
    uint8_t *out = p.space.out[chunk] + v->symbols;
    tg_pack_sum_counts(t.counts, s.counts, j.tile_n, j.base);
    __syncthreads();
    bool by_model = find_lengths(&t, j, models, p.space.out[chunk] + v->side);
    bool is_complete = tg_prefix_make_codes(t.codes, t.lengths, j.base);
    uint32_t own = 0;
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        own += t.counts[i] * t.lengths[i];
    }
    uint32_t bits = tg_sum_block(own), head = by_model ? 0 : (j.base + 1) / 2;
    uint32_t stream_n = (j.count + TG_PACK_STREAM - 1) / TG_PACK_STREAM;
    /* Each stream has a length, but for the last, and is rounded up to whole bytes. */
    bool is_coded = is_complete && 1 + head + 3 * (stream_n - 1) + (bits + 7) / 8 <= j.plain_len;
    for (uint32_t i = threadIdx.x; i < j.base && is_coded; i += THREADS) {
        s.code->plans[i].x = t.codes[i];
    }
    for (uint32_t i = threadIdx.x; i < head && is_coded; i += THREADS) {
        uint32_t high = 2 * i + 1 < j.base ? t.lengths[2 * i + 1] : 0u;
        out[1 + i] = (uint8_t)(t.lengths[2 * i] | high << 4);
    }
    if (threadIdx.x == 0) {
        s.code->is_coded = is_coded ? 1 : 0;
        s.code->form = by_model ? TG_FORM_MODEL : TG_FORM_COUNTS;
        s.code->head_len = head;
        s.code->part_n = stream_n;
    }
}

void tg_pack_huffman_table(const tg_gpu_pass *p, uint8_t *scratch)
{
    static const tg_prefix_models models = tg_prefix_models_pack();
    TG_LAUNCH_EARLY(make_tables, p->overlaps, p->chunk_n, THREADS, p->stream, *p, scratch, models);
}
