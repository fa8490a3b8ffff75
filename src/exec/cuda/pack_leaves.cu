/* Symbols of chunks of fixed length to the frame, leaf by leaf, and back. A block makes a leaf: a warp copies the symbols of 256 bytes to
 * shared memory, and each lane makes 8 of these bytes from the groups whose bits are in them; a group that two words share is computed
 * for both. One warp then hashes the leaf. When a frame is checked, a warp takes a leaf. */
#include "exec/cuda/bits.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/load.h"
#include "exec/cuda/pack_words.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/routes.h"

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

enum {
    PACKERS = 8,             /* warps of a block */
    ROUND = 8 * 32,          /* bytes that a warp packs at a time ... */
    STAGE = ROUND * 8 / 16 + 6 /* ... from up to so many vectors of symbols: at least a bit each, and those of groups at the ends */
};

/* Copies `n` symbols from number `first` on, with zeros after the last one. Returns where the first one is. By a warp. */
TG_DEVICE const uint8_t *stage_symbols(uint4 *stage, const tg_gpu_digits &d, uint32_t first, uint32_t n)
{
    const uint8_t *from = d.symbols + (uint64_t)first * d.width;
    uint32_t skew = tg_place_of(from), have = skew + (d.count > first ? d.count - first : 0u) * d.width;
    const uint8_t *aligned = from - skew;
    __syncwarp(); /* readers of the last ones are done */
    for (uint32_t v = threadIdx.x % TG_WARP; v * 16 < skew + n * d.width; v += TG_WARP) {
        if (v * 16 + 16 <= have) {
            stage[v] = ((const uint4 *)(const void *)aligned)[v];
        } else {
            uint8_t *bytes = (uint8_t *)(void *)(stage + v);
            for (uint32_t b = 0; b < 16; b++) {
                bytes[b] = v * 16 + b < have && v * 16 + b >= skew ? aligned[v * 16 + b] : (uint8_t)0;
            }
        }
    }
    __syncwarp();
    return (const uint8_t *)(const void *)stage + skew;
}

/* Bytes `first` to first + 255 of the packed symbols: this lane's word of them. */
TG_DEVICE uint64_t pack_word(uint4 *stage, const tg_gpu_digits &d, uint32_t first)
{
    uint32_t group = (uint32_t)((uint64_t)first * 8 / d.bits), group_n = ROUND * 8 / d.bits + 2;
    const uint8_t *symbols = stage_symbols(stage, d, group * d.group_n, group_n * d.group_n);
    uint32_t skipped = (uint32_t)((uint64_t)first * 8 - (uint64_t)group * d.bits);
    return tg_word_of(d, symbols, skipped + 64 * (threadIdx.x % TG_WARP));
}

/* The leaf of a chunk of symbols: what travels beside them, which is in the frame already, and their bits. By a block. */
TG_DEVICE void pack_leaf(uint8_t *bytes, uint4 *stage, const tg_gpu_chunk &chunk, const tg_gpu_digits &d, const uint8_t *out,
                         uint32_t from, uint32_t len)
{
    uint32_t side = chunk.side_len > from ? min(chunk.side_len - from, len) : 0, warp = threadIdx.x / TG_WARP;
    for (uint32_t i = threadIdx.x; i < side; i += PACKERS * TG_WARP) {
        bytes[i] = out[from + i];
    }
    /* words are counted from the first symbol on, so that the first and the last one may lie across the leaf's ends */
    uint32_t place = from + side - chunk.side_len, end = from + len - chunk.side_len;
    bool is_aligned = (side - place) % 4 == 0;
    for (uint32_t first = place / 8 * 8 + ROUND * warp; side < len && first < end; first += ROUND * PACKERS) {
        uint64_t word = pack_word(stage, d, first);
        uint32_t at = first + 8 * (threadIdx.x % TG_WARP);
        if (is_aligned && at >= place && at + 8 <= end) {
            uint32_t *to = (uint32_t *)(void *)(bytes + (side + at - place));
            to[0] = (uint32_t)word;
            to[1] = (uint32_t)(word >> 32);
        } else {
            for (uint32_t b = at < place ? place - at : 0; b < 8 && at + b < end; b++) {
                bytes[side + (at + b) - place] = (uint8_t)(word >> 8 * b);
            }
        }
    }
}

__global__ static void __launch_bounds__(PACKERS *TG_WARP) pack_leaves(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaf[TG_LEAF_VECTORS], stages[PACKERS][STAGE];
    tg_after_previous();
    tg_next_may_begin();
    const tg_gpu_leaf at = p.leaves[blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[at.unit];
    if (u.plain_len != 0 || tg_makes_leaves(p, u) || tg_packs_buckets(p, u)) {
        return;
    }
    uint8_t *out = p.space.out[at.chunk];
    tg_gpu_digits d = {p.space.symbols + 2 * chunk.element_at, chunk.n, u.base, u.group_n, u.group_bits, u.base > 256 ? 2u : 1u};
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    pack_leaf((uint8_t *)(void *)leaf, stages[threadIdx.x / TG_WARP], chunk, d, out, from, len);
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        tg_leaf_end(hashes + (uint64_t)(at.chunk - p.first) * leaf_cap + at.number, out + from, leaf, len);
    }
}

/* ---- symbols that were packed by bucket ------------------------------------------------------------------------------------- */

enum { WARPS = 4 };

/* A group that a bucket shares with the one before it, from what both have left of it. */
typedef struct seam {
    uint32_t at, number; /* its first byte in the chunk; `at` is the end of the leaf if there is none before that */
} seam;

TG_DEVICE seam seam_of(const tg_gpu_pass &p, const tg_gpu_chunk &chunk, const tg_gpu_unit &u, uint32_t bucket, uint32_t end)
{
    uint32_t first = bucket * u.bucket_n, group = first / u.group_n, at = chunk.side_len + group * (u.group_bits / 8);
    bool has = first < chunk.n && at < end;
    if (!has || first == group * u.group_n) {
        return {has ? 0xffffffffu : end, 0}; /* nothing is shared, but may be later */
    }
    return {at, tg_seams_of(p, chunk, first - u.bucket_n)[1] + (uint32_t)tg_seams_of(p, chunk, first)[0]};
}

/* The hash of a leaf, with groups that two buckets share put in their places. They are loaded while the leaf is. By a warp. */
TG_DEVICE uint64_t mend_leaf(uint4 *leaf, const tg_gpu_pass &p, const tg_gpu_chunk &chunk, const tg_gpu_unit &u, uint8_t *out,
                             uint32_t from, uint32_t len)
{
    uint32_t side = chunk.side_len, whole = u.group_bits / 8, end = from + len;
    uint32_t start = from > side + whole ? (from - side - whole) / whole * u.group_n / u.bucket_n : 0; /* a bucket before it, or in it */
    uint32_t bucket = max(start, 1u) + threadIdx.x % TG_WARP;
    seam s = seam_of(p, chunk, u, bucket, end);
    tg_leaf_load(leaf, out + from, len);
    while (s.at != end) {
        for (uint32_t b = 0; s.at != 0xffffffffu && b < whole; b++) {
            if (s.at + b >= from && s.at + b < end) {
                uint8_t byte = (uint8_t)(s.number >> 8 * b);
                out[s.at + b] = byte;
                ((uint8_t *)(void *)leaf)[s.at + b - from] = byte;
            }
        }
        bucket += TG_WARP;
        s = seam_of(p, chunk, u, bucket, end);
    }
    __syncwarp();
    return tg_hash_aligned(leaf, len);
}

/* ---- scales of signs --------------------------------------------------------------------------------------------------------- */

enum { NODES = TG_GPU_ROW / 32, LEAF_NODES = TG_GPU_SUMMED_LATE / 1024 / 32 /* of a lane: chunks, leaves */ };

/* Where a lane finds the sums of its chunks, of all of a unit, which are side by side (tg_gpu_pass.has_rows), or those of their leaves. */
typedef struct lane_row {
    uint32_t n;         /* chunks or leaves of the unit; 0: its scale is not asked for */
    uint32_t at[NODES]; /* in space.magnitudes; of the first leaf alone */
} lane_row;

/* Of the unit of a chunk, from tables of the plan alone. */
TG_DEVICE lane_row row_of(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_chunk &chunk, uint32_t number)
{
    const uint64_t each = 64 * TG_GPU_TILE, unit = tg_is_summed_late(p, u) ? 1024 : each; /* of all chunks but the last one */
    const uint32_t first = number - (uint32_t)((chunk.at - u.lo) / each), lane = threadIdx.x % TG_WARP;
    lane_row row;
    row.n = (uint32_t)((u.hi - u.lo + unit - 1) / unit);
    TG_UNROLL
    for (uint32_t k = 0; k < NODES; k++) {
        row.at[k] = p.chunks[unit < each ? first : first + min(NODES * lane + k, row.n - 1)].leaf_at;
    }
    return row;
}

/* The sum of n neighbours of a tree, of which each lane has N side by side. Lane 0 has it. */
template <uint32_t N> TG_DEVICE double tree_of_nodes(double sums[N], uint32_t n)
{
    const uint32_t lane = threadIdx.x % TG_WARP, own = min(n - min(n, N * lane), N);
    TG_UNROLL
    for (uint32_t half = 1; half < N; half *= 2) {
        TG_UNROLL
        for (uint32_t k = 0; k < N; k += 2 * half) {
            sums[k] = k + half < own ? sums[k] + sums[k + half] : sums[k];
        }
    }
    double sum = sums[0];
    TG_UNROLL
    for (uint32_t half = 1; half < TG_WARP; half *= 2) {
        const double other = __shfl_down_sync(TG_ALL_LANES, sum, half);
        sum = lane % (2 * half) == 0 && N * (lane + half) < n ? sum + other : sum;
    }
    return sum;
}

TG_DEVICE double sum_of_row(const tg_gpu_pass &p, const tg_gpu_unit &u, const lane_row &row)
{
    const uint32_t lane = threadIdx.x % TG_WARP;
    if (tg_is_summed_late(p, u)) {
        const double *from = p.space.magnitudes + row.at[0];
        double sums[LEAF_NODES];
        TG_UNROLL
        for (uint32_t k = 0; k < LEAF_NODES; k++) {
            sums[k] = __ldcg(from + min(LEAF_NODES * lane + k, row.n - 1));
        }
        return tree_of_nodes<LEAF_NODES>(sums, row.n);
    }
    double sums[NODES];
    TG_UNROLL
    for (uint32_t k = 0; k < NODES; k++) {
        sums[k] = __ldcg(p.space.magnitudes + row.at[k]);
    }
    return tree_of_nodes<NODES>(sums, row.n);
}

/* The mean magnitude of a unit, from the sums of its chunks or leaves: a tree of neighbours. All lanes of a warp; lane 0 has it. */
TG_DEVICE float scale_of_row(const tg_gpu_pass &p, const tg_gpu_unit &u, const lane_row &row)
{
    if (u.scale != TG_GPU_SCALE_MEAN) {
        return 1.0f;
    }
    const float scale = (float)(sum_of_row(p, u, row) / (double)(u.hi - u.lo));
    return scale != scale ? __uint_as_float(0x7fc00000u) : scale; /* a GPU has a NaN of its own */
}

/* Writes the scale before the signs of a chunk; that of a unit's first chunk is kept for the next step, too. All lanes of a warp. */
TG_DEVICE void put_scale(uint8_t *out, const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_chunk &chunk, const lane_row &row)
{
    const float scale = row.n > 0 ? scale_of_row(p, u, row) : p.space.scales[chunk.unit];
    if (threadIdx.x % TG_WARP != 0) {
        return;
    }
    tg_store_bytes(out, __float_as_uint(scale), 4);
    if (row.n > 0 && chunk.at == u.lo) {
        p.space.scales[chunk.unit] = scale;
        if (u.pending_at > 0) {
            p.next[u.pending_at] = scale;
        }
    }
}

/* Hashes leaves of symbols that are packed by bucket, or of signs, before which the scale is written. A warp a leaf. */
__global__ static void __launch_bounds__(WARPS *TG_WARP) mend_leaves(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaves[WARPS][TG_LEAF_VECTORS];
    uint32_t i = blockIdx.x * WARPS + threadIdx.x / TG_WARP;
    const tg_gpu_leaf at = p.leaves[min(i, p.leaf_n - 1)]; /* tables of the plan, before the kernel before this one has ended */
    const tg_gpu_chunk chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[at.unit];
    const bool packs = tg_packs_buckets(p, u), has_seams = packs && u.bucket_n % u.group_n != 0;
    const bool is_signs = (u.kinds >> TG_KIND_SIGN & 1) != 0, has_scale = is_signs && at.number == 0;
    const lane_row row = has_scale && p.has_rows != 0 ? row_of(p, u, chunk, at.chunk) : lane_row{};
    tg_after_previous();
    tg_next_may_begin();
    if (i >= p.leaf_n || !(packs || is_signs)) {
        return;
    }
    uint8_t *out = p.space.out[at.chunk];
    if (has_scale) {
        put_scale(out, p, u, chunk, row);
    }
    __syncwarp();
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    uint64_t hash = has_seams ? mend_leaf(leaves[threadIdx.x / TG_WARP], p, chunk, u, out, from, len) : tg_hash_leaf(out + from, len);
    if (threadIdx.x % TG_WARP == 0) {
        hashes[(uint64_t)(at.chunk - p.first) * leaf_cap + at.number] = hash;
    }
}

void tg_gpu_pack_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    tg_launch_round_leaves(p, hashes, leaf_cap);
    tg_launch_natural_leaves(p, hashes, leaf_cap);
    if ((p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        TG_LAUNCH_EARLY(pack_leaves, p->overlaps, p->leaf_n, PACKERS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
    if (tg_pass_has(p, TG_KIND_PACKS) || tg_pass_has(p, TG_KIND_SIGN)) {
        TG_LAUNCH_EARLY(mend_leaves, p->overlaps, (p->leaf_n + WARPS - 1) / WARPS, WARPS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
}

/* ---- checking ------------------------------------------------------------------------------------------------------------ */

/* Whether all bytes [from, end) are below a limit from 129 to 256. */
TG_DEVICE bool are_below(const uint8_t *bytes, uint32_t from, uint32_t end, uint32_t limit)
{
    const uint64_t ones = 0x0101010101010101ull, high = 0x80 * ones, gap = (256 - limit) * ones;
    uint64_t bad = 0;
    uint32_t lane = threadIdx.x % TG_WARP, words = (end - from) / 8;
    for (uint32_t i = lane; i < words; i += TG_WARP) {
        uint64_t word = tg_load64(bytes + from + 8 * i);
        bad |= ((word & ~high) + gap) & word & high; /* 128 or more, and its lower bits reach those of the limit */
    }
    for (uint32_t i = from + 8 * words + lane; i < end; i += TG_WARP) {
        bad |= bytes[i] >= limit ? 1 : 0;
    }
    return bad == 0;
}

/* Whether the groups of a lane's vectors, of 8 or 16 bits, are below a limit of as many bits. */
TG_DEVICE bool are_below(const uint4 vectors[TG_XXH_VECTORS], uint32_t bits, uint32_t limit)
{
    const uint32_t ones = bits == 8 ? 0x01010101u : 0x00010001u, high = ones << (bits - 1), gap = ((1u << bits) - limit) * ones;
    uint32_t bad = 0;
    TG_UNROLL
    for (int k = 0; k < TG_XXH_VECTORS; k++) {
        uint32_t words[4] = {vectors[k].x, vectors[k].y, vectors[k].z, vectors[k].w};
        TG_UNROLL
        for (int c = 0; c < 4; c++) {
            bad |= ((words[c] & ~high) + gap) & words[c] & high;
        }
    }
    return bad == 0;
}

/* The number of values of a group; that is beyond any group of its bits if all are. */
TG_DEVICE uint64_t limit_of(const tg_gpu_unit &u)
{
    uint64_t limit = 1;
    for (uint32_t i = 0; i < u.group_n; i++) {
        limit *= u.base;
    }
    return limit;
}

/* Whether the groups that begin in bytes [from, end) of a chunk's symbols are sound, and only zeros follow the last one; by a warp. */
TG_DEVICE bool are_sound(const tg_gpu_unit &u, uint32_t count, const uint8_t *bytes, uint32_t from, uint32_t end)
{
    uint32_t groups = (count + u.group_n - 1) / u.group_n, lane = threadIdx.x % TG_WARP, bits = u.group_bits;
    uint32_t first = (uint32_t)(((uint64_t)from * 8 + bits - 1) / bits), to = (uint32_t)(((uint64_t)end * 8 + bits - 1) / bits);
    uint64_t limit = limit_of(u), last_limit = 1;
    for (uint32_t i = 0; i < u.group_n; i++) {
        last_limit *= i < count - (groups - 1) * u.group_n ? u.base : 1; /* symbols that the last group lacks are zeros */
    }
    bool sound = true, has_last = to >= groups;
    uint32_t unchecked = limit >> bits != 0 ? 1 : 0; /* any number is one of them */
    to = min(to, groups - 1);
    if (bits == 8 && unchecked == 0) {
        sound = are_below(bytes, first, to, (uint32_t)limit);
    } else {
        enum { BATCH = 4 }; /* loads that are under way at once */
        for (uint32_t from_group = first + lane; unchecked == 0 && from_group < to; from_group += BATCH * TG_WARP) {
            uint64_t groups_here[BATCH];
            TG_UNROLL
            for (uint32_t k = 0; k < BATCH; k++) {
                uint64_t bit = (uint64_t)min(from_group + k * TG_WARP, to - 1) * bits;
                groups_here[k] = tg_load_bits(bytes + bit / 8, (unsigned)(bit % 8), bits);
            }
            TG_UNROLL
            for (uint32_t k = 0; k < BATCH; k++) {
                sound = sound && groups_here[k] < limit;
            }
        }
    }
    if (has_last && lane == 0) {
        uint64_t bit = (uint64_t)(groups - 1) * bits, after = bit + bits;
        bool begins_here = bit >= (uint64_t)from * 8;
        sound = sound && (!begins_here || tg_load_bits(bytes + bit / 8, (unsigned)(bit % 8), bits) < last_limit);
        sound = sound && (after % 8 == 0 || bytes[after / 8] >> after % 8 == 0);
    }
    return sound;
}

/* Whether the symbols of a whole leaf can be checked in registers: it has nothing but groups of whole bytes whose limit is more than half of
 * all numbers of their bits, and not the last one. */
TG_DEVICE bool has_whole_groups(uint32_t bits, uint64_t limit, uint32_t side, uint32_t from, bool is_last)
{
    bool is_half = limit > 0 && limit >> (bits - 1) == 1;
    return is_half && (bits == 8 || (bits == 16 && side % 2 == 0)) && from >= side && !is_last;
}

/* A lane's vectors of a whole leaf to shared memory, and a byte after them from each of the first lanes. All lanes of a warp. */
TG_DEVICE void stage_vectors(uint4 *staged, const uint4 vectors[TG_XXH_VECTORS], uint8_t after)
{
    const uint32_t lane = threadIdx.x % TG_WARP;
    TG_UNROLL
    for (uint32_t k = 0; k < TG_XXH_VECTORS; k++) {
        staged[k * TG_WARP + lane] = vectors[k];
    }
    if (lane < 8) {
        ((uint8_t *)(void *)(staged + TG_LEAF_BYTES / 16))[lane] = after;
    }
    __syncwarp();
}

/* A warp a leaf. Symbols that are not checked in registers are checked in shared memory: a group may end in the next leaf. */
__global__ static void __launch_bounds__(WARPS *TG_WARP, 7)
    check_leaves(const __grid_constant__ tg_gpu_pass p, const __grid_constant__ tg_gpu_bodies bodies, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 staged_leaves[WARPS][TG_LEAF_VECTORS];
    const uint32_t lane = threadIdx.x % TG_WARP, i = blockIdx.x * WARPS + threadIdx.x / TG_WARP, number = i / p.leaf_n;
    const bool has = number < bodies.n;
    const tg_gpu_leaf at = p.leaves[has ? i - number * p.leaf_n : 0];
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[at.unit];
    const uint32_t side = chunk.side_len, len = chunk.len, bits = u.group_bits;
    const uint32_t from = at.number * TG_LEAF_BYTES, end = min(len, from + TG_LEAF_BYTES);
    const uint64_t limit = u.plain_len == 0 ? limit_of(u) : 0, body_at = chunk.body_at;
    const bool has_symbols = u.plain_len == 0 && end > side;
    const bool is_fast = has_whole_groups(bits, limit, side, from, end == len);
    const bool has_end = end + 8 >= len; /* the last group begins or ends in it */
    const bool stages = has_symbols && !is_fast && (limit >> bits == 0 || has_end);
    tg_after_previous(); /* tables of the plan can be read before */
    tg_next_may_begin(); /* after that: what is launched early after the next kernel reads sums (add.cu) */
    if (!has) {
        return;
    }
    uint4 *staged = staged_leaves[threadIdx.x / TG_WARP];
    const uint8_t *bytes = bodies.at[number] + body_at;
    uint64_t hash;
    bool is_sound = true;
    if (end - from == TG_LEAF_BYTES) {
        uint4 vectors[TG_XXH_VECTORS];
        const uint8_t after = stages && lane < 8 && end + lane < len ? bytes[end + lane] : (uint8_t)0;
        tg_leaf_load(vectors, bytes + from);
        if (is_fast) {
            is_sound = are_below(vectors, bits, (uint32_t)limit);
        } else if (stages) {
            stage_vectors(staged, vectors, after);
        }
        hash = tg_hash_vectors(vectors);
    } else {
        tg_leaf_load(staged, bytes + from, end - from);
        hash = tg_hash_any((const uint8_t *)(const void *)staged, end - from);
    }
    if (stages) {
        const uint8_t *symbols = (const uint8_t *)((uintptr_t)staged + side - from); /* the first one of the chunk, if it were there */
        is_sound = are_sound(u, chunk.n, symbols, max(from, side) - side, end - side);
    }
    is_sound = __all_sync(TG_ALL_LANES, is_sound ? 1 : 0) != 0;
    if (lane == 0) {
        hashes[((uint64_t)number * p.chunk_n + (at.chunk - p.first)) * leaf_cap + at.number] = is_sound ? hash : ~hash;
        if (!is_sound) {
            tg_refuse_chunk(p, at.chunk);
        }
    }
}

void tg_gpu_check_leaves(const tg_gpu_pass *p, const tg_gpu_bodies *bodies, uint64_t *hashes, uint32_t leaf_cap)
{
    TG_LAUNCH_EARLY(check_leaves, p->overlaps, ((uint64_t)p->leaf_n * bodies->n + WARPS - 1) / WARPS, WARPS * TG_WARP, p->stream, *p, *bodies,
                    hashes, leaf_cap);
}
