/* The frame of the kernels that quantize buckets: a block takes a bucket, fits a quantizer to it, rounds its values, and stores
 * symbols, what travels with the bucket, and residuals.
 *
 * A quantizer is a struct with
 *
 *     KIND, DRAWS, CHECKS          its kind; whether it rounds at random; whether its values must be finite
 *     IS_WIDE                      whether its symbols usually take 2 bytes
 *     BLOCKS                       blocks of short buckets that share an SM, which limits registers
 *     number_len(unit)             bytes of each number that travels with a bucket
 *     fit(team, unit)              all threads: computes what the values share; team.scratch is the memory of the draws
 *     write(side, i)               thread number i of the bucket: writes its part of that
 *     bool guesses()               whether guesses hold for these values; if not, all random bits decide
 *     tg_guess guess(value)        the two symbols that a value can become, and which one by 16 random bits, nearly
 *     bool settle(value, bits)     whether it becomes the upper one, by all 32 bits
 *     float value(symbol)          what the decoder makes of a symbol */
#ifndef TG_EXEC_CUDA_QUANTIZE_BUCKETS_H
#define TG_EXEC_CUDA_QUANTIZE_BUCKETS_H

#include "exec/cuda/leaf.h"
#include "exec/cuda/pack_words.h"
#include "exec/cuda/philox.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/team.h"

/* The two symbols that a value can become. `place` is that of the value between both, in 65,536ths from TG_PLACE on, with an error of
 * less than 1: a draw that is at least two less makes the upper one certain, one that is greater the lower one. */
typedef struct tg_guess {
    uint32_t place;
    unsigned lower, upper;
} tg_guess;

#define TG_PLACE 0x4b000000u /* of a float: from 2^23 on neighbours are 1 apart */

/* A place from a float, 65,536 of which are the whole way; far outside it is one of the ends. */
TG_DEVICE uint32_t tg_place_at(float at)
{
    return __float_as_uint(fminf(fmaxf(at, 0x1p23f - 4.0f), 0x1p23f + 65540.0f));
}

/* Below 0: the upper symbol is certain; above 1: the lower one; otherwise all bits decide. */
TG_DEVICE int tg_lead(const tg_guess &guess, uint32_t draw)
{
    return (int)(draw + (TG_PLACE + 1) - guess.place);
}

/* Whether r x < y, for the number r that random bits stand for. */
TG_DEVICE bool tg_draws_below(uint32_t bits, float x, float y)
{
    return tg_draw_unit(bits) * x < y;
}

/* 65,536 over a distance between two symbols, or 0 if that is too short for a guess. */
TG_DEVICE float tg_places_over(float distance)
{
    return distance >= 0x1p-90f ? 65536.0f / distance : 0.0f;
}

enum { TG_DRAW_BLOCKS = TG_LEAF_N / TG_DRAWS_EACH + 1 }; /* of Philox for a leaf, which need not begin with one */

/* The draws of the n values from number `at` on, by a warp. Returns where that of the first one is. */
TG_DEVICE const uint16_t *tg_draw_leaf(uint4 *blocks, uint64_t key, uint64_t at, uint32_t n, uint32_t other)
{
    uint64_t first = at / TG_DRAWS_EACH;
    uint32_t shift = (uint32_t)(at % TG_DRAWS_EACH), block_n = (shift + n + TG_DRAWS_EACH - 1) / TG_DRAWS_EACH;
    __syncwarp();
    for (uint32_t i = threadIdx.x % TG_WARP; i < block_n; i += TG_WARP) {
        blocks[i] = tg_draw_block(key, first + i, TG_DRAWS_UPPER, other);
    }
    __syncwarp();
    return (const uint16_t *)(const void *)blocks + shift;
}

/* The symbol and residual of a value; returns whether the residual is finite. */
template <class Q>
TG_DEVICE bool tg_put_value(const Q &q, const tg_gpu_bucket &b, uint32_t i, float value, unsigned symbol)
{
    tg_store_symbol(b, i, symbol);
    return b.next == nullptr || tg_keep_residual(b, i, value - q.value(symbol));
}

/* Settles values of a leaf that guesses left open: about two of 65,536. Returns `bad` with their residuals. */
template <class Q, class Team>
TG_DEVICE uint32_t tg_settle_leaf(const Q &q, const Team &team, uint32_t from, const uint16_t *draws, uint64_t key,
                                  uint32_t bad)
{
    const tg_gpu_bucket &b = team.b;
    TG_ROLL
    for (unsigned k = 0; k < TG_LANE_N && from + 32 * k < b.n; k++) {
        float value = tg_lane_get(team.v, k), clipped = team.clipped(value);
        tg_guess guess = q.guess(clipped);
        int lead = q.guesses() ? tg_lead(guess, draws[32 * k + team.lane]) : 0;
        if ((lead == 0 || lead == 1) && q.settle(clipped, tg_draw_bits(key, b.at + from + 32 * k, team.p.is_answer))) {
            bool is_fine = tg_put_value(q, b, from + 32 * k, value, guess.upper);
            bad = (bad & ~(1u << k)) | (is_fine ? 0u : 1u) << k;
        }
    }
    return bad;
}

/* Rounds the leaf that a team's warp holds. */
template <class Q, class Team>
TG_DEVICE void tg_round_leaf(const Q &q, const Team &team, unsigned leaf, const uint16_t *draws, uint64_t key)
{
    const tg_gpu_bucket &b = team.b;
    uint32_t from = leaf * TG_LEAF_N + team.lane, bad = 0, open = q.guesses() ? 2 : 0;
    TG_UNROLL
    for (unsigned k = 0; k < TG_LANE_N; k++) {
        if (from + 32 * k < b.n) {
            tg_guess guess = q.guess(team.clipped(team.v[k]));
            int lead = tg_lead(guess, Q::DRAWS ? draws[32 * k + team.lane] : 0u);
            bool is_up = lead < 0 && q.guesses();
            open = min(open, (uint32_t)lead);
            bool is_fine = tg_put_value(q, b, from + 32 * k, team.v[k], is_up ? guess.upper : guess.lower);
            bad |= (is_fine ? 0u : 1u) << k;
        }
    }
    if (Q::DRAWS && open < 2) {
        bad = tg_settle_leaf(q, team, from, draws, key, bad);
    }
    tg_refuse_residuals(team.p, b, from, bad);
}

/* The same for a dense leaf that has all its values, not clipped, with symbols of the usual length: most leaves. Some values at a time are
 * rounded before any is stored: a compiler does not move loads of what they share before a store, which might change it. */
template <bool KEEPS, class Q, class Team>
TG_DEVICE void tg_round_whole(const Q &q, const Team &team, unsigned leaf, const uint16_t *draws, uint64_t key)
{
    enum { AT_ONCE = Q::BLOCKS > 12 ? 1 : 8 }; /* more take more registers than blocks of some quantizers have */
    const tg_gpu_bucket &b = team.b;
    uint32_t from = leaf * TG_LEAF_N + team.lane, bad = 0, open = 2;
    uint8_t *symbols = b.symbols + (Q::IS_WIDE ? 2 : 1) * from;
    float *next = KEEPS ? b.next + from : nullptr;
    TG_UNROLL
    for (unsigned first = 0; first < TG_LANE_N; first += AT_ONCE) {
        unsigned symbol[AT_ONCE];
        float residual[AT_ONCE];
        TG_UNROLL
        for (unsigned k = first; k < first + AT_ONCE; k++) {
            tg_guess guess = q.guess(team.v[k]);
            int lead = tg_lead(guess, Q::DRAWS ? draws[32 * k + team.lane] : 0u);
            symbol[k - first] = lead < 0 ? guess.upper : guess.lower;
            residual[k - first] = KEEPS ? team.v[k] - q.value(symbol[k - first]) : 0.0f;
            open = min(open, (uint32_t)lead);
        }
        TG_UNROLL
        for (unsigned k = first; k < first + AT_ONCE; k++) {
            if (Q::IS_WIDE) {
                ((uint16_t *)(void *)symbols)[32 * k] = (uint16_t)symbol[k - first];
            } else {
                symbols[32 * k] = (uint8_t)symbol[k - first];
            }
            if (KEEPS) {
                bool is_fine = tg_is_finite(residual[k - first]);
                next[32 * k] = is_fine ? residual[k - first] : 0.0f;
                bad |= is_fine ? 0u : 1u << k;
            }
        }
    }
    if (Q::DRAWS && open < 2) {
        bad = tg_settle_leaf(q, team, from, draws, key, bad);
    }
    if (KEEPS) {
        tg_refuse_residuals(team.p, b, from, bad);
    }
}

/* A bucket with NaN or Inf: symbols 0, NaN for its numbers, and no residual. */
template <class Team> TG_DEVICE void tg_put_nan(Team &team, uint32_t number_len)
{
    const tg_gpu_bucket &b = team.b;
    for (uint32_t i = threadIdx.x; i < b.n; i += blockDim.x) {
        tg_store_symbol(b, i, 0);
        if (b.next != nullptr) {
            b.next[b.positions != nullptr ? b.positions[i] : i] = 0;
        }
    }
    for (uint32_t at = threadIdx.x * number_len; at < b.u->side_len; at += blockDim.x * number_len) {
        tg_store_bytes(b.side + at, number_len == 4 ? 0x7fc00000u : 0x7e00u, number_len);
    }
}

template <class Q, class Team> TG_DEVICE void tg_quantize_bucket(Team &team, uint4 *draws, uint64_t key)
{
    const tg_gpu_bucket &b = team.b;
    if (Q::CHECKS && team.largest_key >= TG_KEY_INF) {
        tg_put_nan(team, Q::number_len(*b.u));
        return;
    }
    Q q;
    q.fit(team, *b.u);
    q.write(b.side, threadIdx.x);
    team.each_leaf([&](unsigned leaf) {
        uint32_t left = b.n - leaf * TG_LEAF_N, n = left < TG_LEAF_N ? left : TG_LEAF_N;
        const uint16_t *of_leaf = nullptr;
        if (Q::DRAWS) {
            of_leaf = tg_draw_leaf(draws, key, b.at + leaf * TG_LEAF_N, n, team.p.is_answer);
        }
        if (!team.is_whole(leaf) || b.is_sparse || b.is_wide != Q::IS_WIDE || !q.guesses()) {
            tg_round_leaf(q, team, leaf, of_leaf, key);
        } else if (b.next != nullptr) {
            tg_round_whole<true>(q, team, leaf, of_leaf, key);
        } else {
            tg_round_whole<false>(q, team, leaf, of_leaf, key);
        }
    });
}

/* ---- packing ------------------------------------------------------------------------------------------------------------- */

enum { TG_SYMBOL_VECTORS = TG_SHORT_BUCKET / 16 + 8 }; /* of a bucket, with what words read before and after them */

/* Where the bytes of a bucket go, from value number `first` of the chunk on. */
typedef struct tg_packing {
    tg_gpu_digits d;
    uint32_t skew;       /* symbols of its first group that the bucket before has */
    uint32_t whole, len; /* bytes of a group, if it has whole ones; of all groups */
    bool has_head, has_tail;
    uint8_t *to;
} tg_packing;

TG_DEVICE tg_packing tg_packing_of(const tg_gpu_unit &u, const tg_gpu_chunk &chunk, uint8_t *out, uint32_t first,
                                   uint32_t n)
{
    tg_packing k;
    k.d = {nullptr, 0, u.base, u.group_n, u.group_bits, 1};
    uint32_t group_n = u.group_n, bits = u.group_bits, group = first / group_n;
    k.skew = first - group * group_n;
    uint32_t end = k.skew + n, groups = (end + group_n - 1) / group_n;
    k.whole = bits / 8;
    k.len = (groups * bits + 7) / 8;
    k.has_head = k.skew != 0;
    k.has_tail = end != groups * group_n && first + n < chunk.n;
    k.to = out + chunk.side_len + group * bits / 8;
    return k;
}

/* The words of a bucket, by threads `thread`, thread + thread_n, ... Symbols are in shared memory from the group on that the first one is
 * in, with zeros around them. */
TG_DEVICE void tg_pack_bytes(const tg_packing &k, const uint8_t *symbols, uint4 *packed, uint32_t thread,
                             uint32_t thread_n)
{
    for (uint32_t i = thread; i * 8 < k.len; i += thread_n) {
        uint64_t word = tg_word_of(k.d, symbols, 64 * i);
        ((uint2 *)(void *)packed)[i] = make_uint2((uint32_t)word, (uint32_t)(word >> 32));
    }
}

/* Copies packed bytes from shared memory to the frame, but for groups that the bucket shares with others. */
TG_DEVICE void tg_place_bytes(const tg_gpu_pass &p, const tg_packing &k, const tg_gpu_chunk &chunk, uint32_t first,
                              const uint4 *packed, uint32_t thread, uint32_t thread_n)
{
    const uint8_t *bytes = (const uint8_t *)(const void *)packed;
    if (thread == 0 && (k.has_head || k.has_tail)) {
        uint16_t *seams = tg_seams_of(p, chunk, first);
        const uint8_t *tail = bytes + k.len - k.whole;
        if (k.has_head) {
            seams[0] = (uint16_t)(bytes[0] | (k.whole == 2 ? bytes[1] << 8 : 0));
        }
        if (k.has_tail) {
            seams[1] = (uint16_t)(tail[0] | (k.whole == 2 ? tail[1] << 8 : 0));
        }
    }
    uint32_t from = k.has_head ? k.whole : 0, len = k.len - from - (k.has_tail ? k.whole : 0);
    tg_copy_by(k.to + from, bytes + from, len, thread, thread_n);
}

/* Packs the symbols of a bucket to the frame. All threads. */
TG_DEVICE void tg_pack_bucket(const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t chunk_number, uint32_t first,
                              const uint4 *symbols, uint4 *packed)
{
    const tg_gpu_chunk &chunk = p.chunks[chunk_number];
    const tg_packing k = tg_packing_of(*b.u, chunk, p.space.out[chunk_number], first, b.n);
    tg_pack_bytes(k, (const uint8_t *)(const void *)symbols, packed, threadIdx.x, blockDim.x);
    __syncthreads();
    tg_place_bytes(p, k, chunk, first, packed, threadIdx.x, blockDim.x);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

/* What a block takes of a chunk, as its first thread finds out: of a dense one the buckets that begin in a part of a tile; of a sparse
 * one every so manieth bucket. And the bucket that it works on. In shared memory, for want of registers. */
typedef struct tg_block_buckets {
    uint32_t chunk, count;    /* of its values */
    uint32_t bucket_n, first; /* the number of the first one */
    uint32_t stride, end;     /* buckets begin before value number `end` */
    bool packs;
    tg_gpu_bucket b;
} tg_block_buckets;

template <class Q>
TG_DEVICE tg_block_buckets tg_buckets_of_block(const tg_gpu_pass &p, uint32_t kind, uint32_t blocks_each,
                                               bool is_sparse)
{
    tg_block_buckets s;
    uint32_t from = 0, part = blockIdx.x % blocks_each, unit;
    s.chunk = p.first + blockIdx.x / blocks_each;
    s.end = 0xffffffffu;
    if (is_sparse) {
        unit = p.chunks[s.chunk].unit;
    } else {
        tg_gpu_tile tile = p.tiles[blockIdx.x / blocks_each];
        uint32_t len = TG_GPU_TILE / blocks_each;
        s.chunk = tile.chunk;
        unit = tile.unit;
        from = tile.from + part * len;
        s.end = from + len;
    }
    const tg_gpu_unit &u = p.units[unit];
    bool is_made = Q::KIND == unsigned(TG_KIND_NATURAL) && !is_sparse && tg_makes_leaves(p, u); /* with its leaves */
    s.count = is_sparse ? p.space.views[s.chunk].count : p.chunks[s.chunk].n;
    s.bucket_n = Q::KIND == unsigned(TG_KIND_NATURAL) ? TG_SHORT_BUCKET : u.bucket_n;
    bool is_others = !is_sparse && tg_has_warps(p, u); /* of quantize_warps.h */
    if ((u.kinds >> kind & 1) == 0 || !tg_unit_sends(u, is_sparse) || is_made || is_others) {
        s.count = 0;
    }
    s.end = min(s.end, s.count);
    s.packs = !is_sparse && s.count > 0 && tg_packs_buckets(p, u);
    s.first = is_sparse || s.count == 0       ? part
              : s.bucket_n == TG_SHORT_BUCKET ? (from + TG_SHORT_BUCKET - 1) / TG_SHORT_BUCKET
                                              : (from + s.bucket_n - 1) / s.bucket_n;
    s.stride = is_sparse ? blocks_each : 1;
    return s;
}

template <class Q, unsigned WARPS, bool IS_RESIDENT>
__global__ static void __launch_bounds__(WARPS *TG_WARP, IS_RESIDENT ? Q::BLOCKS : 1)
    tg_quantize_kernel(tg_gpu_pass p, uint32_t blocks_each, bool is_sparse)
{
    __shared__ tg_team_space space;
    __shared__ tg_block_buckets s;
    __shared__ uint64_t key; /* of random bits */
    __shared__ uint4 draws[WARPS][TG_DRAW_BLOCKS], symbols[IS_RESIDENT ? TG_SYMBOL_VECTORS : 1];
    if (threadIdx.x == 0) {
        s = tg_buckets_of_block<Q>(p, Q::KIND + (IS_RESIDENT ? 0u : TG_KIND_LONG), blocks_each, is_sparse);
    } else if (Q::DRAWS && threadIdx.x == TG_WARP) { /* at the same time */
        uint32_t i = blockIdx.x / blocks_each, unit = is_sparse ? p.chunks[p.first + i].unit : p.tiles[i].unit;
        key = tg_stream_key(p.seed, tg_step_of(p), unit, p.rank + 1);
    }
    for (uint32_t i = 0;; i++) {
        float values[TG_LANE_N];
        if (threadIdx.x == 0 && (uint64_t)(s.first + i * s.stride) * s.bucket_n < s.end) {
            uint32_t at = (s.first + i * s.stride) * s.bucket_n;
            s.b = tg_bucket_of(p, s.chunk, at, s.bucket_n, s.count);
            if (IS_RESIDENT && s.packs) {
                s.b.symbols = (uint8_t *)(void *)symbols + at % s.b.u->group_n;
            }
        }
        for (uint32_t v = threadIdx.x; IS_RESIDENT && v < TG_SYMBOL_VECTORS; v += WARPS * TG_WARP) {
            symbols[v] = make_uint4(0, 0, 0, 0);
        }
        __syncthreads();
        uint32_t at = (s.first + i * s.stride) * s.bucket_n;
        if ((uint64_t)(s.first + i * s.stride) * s.bucket_n >= s.end) {
            return;
        }
        tg_team<WARPS, IS_RESIDENT> team(p, s.b, space, values);
        team.scratch = (uint8_t *)(void *)draws; /* until values are rounded */
        if (Q::CHECKS) {
            team.load();
        } else if (team.warp < team.leaves()) {
            (void)tg_load_leaf(values, p, s.b, team.warp);
        }
        tg_quantize_bucket<Q>(team, draws[threadIdx.x / TG_WARP], key);
        __syncthreads(); /* readers of the bucket are done, and symbols are there */
        if (IS_RESIDENT && s.packs) {
            tg_pack_bucket(p, s.b, s.chunk, at, symbols, draws[0]);
        }
        if ((uint64_t)(s.first + (i + 1) * s.stride) * s.bucket_n >= s.end) {
            return;
        }
        if (IS_RESIDENT && s.packs) { /* readers of symbols are done */
            __syncthreads();
        }
    }
}

/* Launches a quantizer for short buckets and for long ones, where a pass may have them. */
template <class Q> static void tg_quantize_launch(const tg_gpu_pass *p, bool is_sparse)
{
    constexpr unsigned SHORT_WARPS = TG_SHORT_BUCKET / TG_LEAF_N, LONG_WARPS = 16;
    uint32_t each = is_sparse ? tg_blocks_each(p->chunk_n) : TG_GPU_TILE / TG_SHORT_BUCKET;
    if (p->chunk_n > 0 && (is_sparse ? tg_pass_has(p, Q::KIND) : tg_pass_has_teams(p, Q::KIND))) {
        auto kernel = tg_quantize_kernel<Q, SHORT_WARPS, true>;
        TG_LAUNCH(kernel, (is_sparse ? p->chunk_n : p->tile_n) * each, SHORT_WARPS * TG_WARP, p->stream, *p, each,
                  is_sparse);
    }
    if constexpr (Q::KIND != unsigned(TG_KIND_NATURAL)) {
        if (p->chunk_n > 0 && tg_pass_has(p, Q::KIND + TG_KIND_LONG)) {
            auto kernel = tg_quantize_kernel<Q, LONG_WARPS, false>;
            each = is_sparse ? each : 1;
            TG_LAUNCH(kernel, (is_sparse ? p->chunk_n : p->tile_n) * each, LONG_WARPS * TG_WARP, p->stream, *p, each,
                      is_sparse);
        }
    }
}

#endif
