/* The frame of the kernels in which a warp quantizes a short bucket that keeps no residual, in shared memory: it copies values there
 * without waiting for each, finds what they share, rounds eight neighbours a lane, whose draws are one block of Philox, and packs their
 * symbols to the frame. Warps do not wait for each other, and loops are short, so that instructions stay in their cache.
 *
 * An encoder is a struct with
 *
 *     KIND, DRAWS                    its kind; whether it rounds at random
 *     WARPS, BLOCKS                  warps of a block; blocks that share an SM, which limits registers
 *     SPACE                          bytes of shared memory that a warp needs beside its values, a multiple of 16
 *     encode(bucket)                 all lanes: writes a bucket whose values are held
 *
 * tg_by_eights is one, of a quantizer that rounds values to whole numbers: symbols, or these but for a sign and a shift. It is a struct with
 *
 *     fit(team, unit)                 all lanes: computes what the values share
 *     float scaled_by()               what values are multiplied by before they are rounded
 *     write(side, i)                  lane i: writes its part of that
 *     bool guesses()                  whether places hold for these values; if not, all random bits decide
 *     uint32_t look(lower, value)     the whole number below a value, and its place above it as in tg_guess
 *     bool settle_scaled(value, bits) whether it becomes the next whole number, by all 32 bits
 *     uint32_t symbol(value, number)  the symbol of a whole number, in the lowest byte
 *     HAS_VARIANTS, round_by(by, use) calls use(how eight values are rounded), if not by the last four */
#ifndef TG_EXEC_CUDA_QUANTIZE_WARPS_H
#define TG_EXEC_CUDA_QUANTIZE_WARPS_H

#include "exec/cuda/quantize_buckets.h"
#include "exec/cuda/warp_bucket.h"

enum {
    TG_WARP_PARAMS = 5, /* of a quantizer */
    /* Bytes of the same memory: symbols, which take the place of values that were rounded before, after some zeros; packed symbols. */
    TG_SYMBOLS_AT = 16,
    TG_ZEROS_AFTER = 128,
    TG_PACKED_AT = 4096
};

/* A bucket whose values are held. */
typedef struct tg_held_bucket {
    const tg_gpu_pass &p;
    const tg_gpu_chunk &chunk;
    const tg_gpu_bucket &b;
    uint8_t *out;   /* where the chunk is written ... */
    uint32_t first; /* ... and the number of its first value there */
    float *held;    /* its values, from number `shift` on */
    uint32_t shift;
    uint32_t largest_key;
    uint64_t key; /* of random bits */
    void *space;
    const double *params;
    const tg_packing &packing;
} tg_held_bucket;

/* ---- rounding -------------------------------------------------------------------------------------------------------------- */

/* The random bits that values of a bucket are rounded by. */
typedef struct tg_warp_draws {
    uint64_t key;
    uint32_t other;
} tg_warp_draws;

/* The draw of the value that is number i of eight. */
TG_DEVICE uint32_t tg_draw_of(uint4 draws, unsigned i)
{
    uint32_t word = i < 4 ? (i < 2 ? draws.x : draws.y) : i < 6 ? draws.z : draws.w;
    return i % 2 == 0 ? word & 0xffffu : word >> 16;
}

/* Four symbols, the lowest byte of a word each, as bytes. */
TG_DEVICE uint32_t tg_join_bytes(const uint32_t symbols[4])
{
    return __byte_perm(__byte_perm(symbols[0], symbols[1], 0x0040), __byte_perm(symbols[2], symbols[3], 0x0040),
                       0x5410);
}

/* A symbol in place of that of value number i of eight. */
TG_DEVICE uint2 tg_put_byte(uint2 symbols, unsigned i, uint32_t symbol)
{
    const uint32_t shift = i % 4 * 8, mask = ~(0xffu << shift);
    return i < 4 ? make_uint2((symbols.x & mask) | symbol << shift, symbols.y)
                 : make_uint2(symbols.x, (symbols.y & mask) | symbol << shift);
}

/* Symbols of eight values, some of which their draws leave open: about two of 65,536. `at` is the number of the first one in the unit. */
template <class Q>
TG_DEVICE uint2 tg_settle_eight(const Q &q, uint2 symbols, const float *values, uint4 draws, const tg_warp_draws &by,
                                uint64_t at)
{
    TG_ROLL
    for (unsigned i = 0; i < TG_EIGHT; i++) {
        float lower;
        uint32_t place = q.look(&lower, values[i]);
        bool is_open = !q.guesses() || tg_draw_of(draws, i) + (TG_PLACE + 1) - place < 2;
        if (is_open) {
            bool is_up = q.settle_scaled(values[i], tg_draw_bits(by.key, at + i, by.other));
            symbols = tg_put_byte(symbols, i, q.symbol(values[i], is_up ? lower + 1.0f : lower) & 0xffu);
        }
    }
    return symbols;
}

/* The symbols of eight values as bytes. */
template <class Q> TG_DEVICE uint2 tg_round_eight(const Q &q, const float *values, const tg_warp_draws &by, uint64_t at)
{
    const uint4 draws = tg_draw_block(by.key, at / TG_EIGHT, TG_DRAWS_UPPER, by.other);
    const float4 low = ((const float4 *)(const void *)values)[0], high = ((const float4 *)(const void *)values)[1];
    const float v[TG_EIGHT] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t open = q.guesses() ? 2 : 0, bytes[TG_EIGHT];
    TG_UNROLL
    for (unsigned i = 0; i < TG_EIGHT; i++) {
        float lower;
        uint32_t place = q.look(&lower, v[i]), lead = tg_draw_of(draws, i) + (TG_PLACE + 1) - place;
        open = min(open, lead);
        bytes[i] = q.symbol(v[i], (int)lead < 0 ? lower + 1.0f : lower);
    }
    uint2 symbols = make_uint2(tg_join_bytes(bytes), tg_join_bytes(bytes + 4));
    if (open < 2) {
        symbols = tg_settle_eight(q, symbols, values, draws, by, at);
    }
    return symbols;
}

/* Symbols with those before number `from` and from number `end` on set to 0. */
TG_DEVICE uint2 tg_some_bytes(uint2 symbols, uint32_t from, uint32_t end)
{
    uint64_t word = symbols.x | (uint64_t)symbols.y << 32;
    word = word >> 8 * from << 8 * from;
    word = end < TG_EIGHT ? word & ((1ull << 8 * end) - 1) : word;
    return make_uint2((uint32_t)word, (uint32_t)(word >> 32));
}

/* ---- packing --------------------------------------------------------------------------------------------------------------- */

/* Whether eight symbols are a group, of more bits than a word. */
TG_DEVICE bool tg_groups_eight(const tg_packing &k, uint32_t shift)
{
    return k.d.group_n == TG_EIGHT && k.d.bits > 32 && k.d.bits < 64 && k.skew == 0 && shift == 0;
}

/* The number that eight symbols are: pairs in half words, then fours. */
TG_DEVICE uint32_t tg_number_of_four(uint32_t bytes, uint32_t base)
{
    uint32_t pairs = (bytes & 0x00ff00ffu) + base * (bytes >> 8 & 0x00ff00ffu);
    return (pairs & 0xffffu) + base * base * (pairs >> 16);
}

TG_DEVICE uint2 tg_number_of_eight(uint2 symbols, uint32_t base)
{
    uint32_t square = base * base;
    uint64_t number =
        tg_number_of_four(symbols.x, base) + (uint64_t)(square * square) * tg_number_of_four(symbols.y, base);
    return make_uint2((uint32_t)number, (uint32_t)(number >> 32));
}

/* Packs the numbers of groups to the frame, by aligned words there. A word has bits of two of them at most; there is a 0 before the first
 * one, and one after the last. */
TG_DEVICE void tg_pack_numbers(const tg_packing &k, const uint64_t *numbers)
{
    const uint32_t bits = k.d.bits, inverse = (1u << 20) / bits + 1; /* right for up to 2^14 bits */
    const uint32_t place = (uint32_t)((uintptr_t)k.to % 4), end = place + k.len;
    uint8_t *start = k.to - place;
    numbers--;
    TG_ROLL
    for (uint32_t i = threadIdx.x % TG_WARP; i * 4 < end; i += TG_WARP) {
        uint32_t bit = 32 * i + bits - 8 * place, group = bit * inverse >> 20, skipped = bit - group * bits;
        uint32_t word = (uint32_t)(numbers[group] >> skipped | numbers[group + 1] << (bits - skipped));
        if (i * 4 >= place && i * 4 + 4 <= end) {
            ((uint32_t *)(void *)start)[i] = word;
        } else {
            for (uint32_t b = i == 0 ? place : 0; b < min(4u, end - i * 4); b++) {
                start[i * 4 + b] = (uint8_t)(word >> 8 * b);
            }
        }
    }
}

/* ---- kernels --------------------------------------------------------------------------------------------------------------- */

/* A bucket of a tile. */
TG_DEVICE tg_gpu_bucket tg_bucket_in(const tg_gpu_pass &p, const tg_gpu_tile &tile, const tg_gpu_chunk &chunk,
                                     const tg_gpu_unit &u, uint32_t first, uint32_t bucket_n)
{
    tg_gpu_bucket b = {};
    b.u = &u;
    b.unit = tile.unit;
    b.n = min(bucket_n, chunk.n - first);
    b.at = chunk.at + first;
    const tg_gpu_piece *piece = p.pieces + tile.piece;
    if (b.at >= piece->at + piece->n) {
        piece = tg_piece_at(p, u, b.at);
    }
    tg_bucket_find(b, p, u, *piece);
    return b;
}

/* Eight symbols at a time, in the place of values that were read: symbols(first) are those from value number `first` of held ones on. */
template <class Symbols> TG_DEVICE void tg_put_symbols(const tg_held_bucket &h, Symbols symbols)
{
    uint8_t *memory = (uint8_t *)(void *)h.held;
    const uint32_t lane = threadIdx.x % TG_WARP, eights = (h.shift + h.b.n + TG_EIGHT - 1) / TG_EIGHT;
    TG_ROLL
    for (uint32_t from = 0; from < eights; from += TG_WARP) {
        uint32_t i = from + lane;
        uint2 eight = make_uint2(0, 0);
        if (i < eights) {
            eight = symbols(TG_EIGHT * i);
        }
        __syncwarp();
        if (i < eights) {
            ((uint2 *)(void *)(memory + TG_SYMBOLS_AT))[i] = eight;
        }
    }
    __syncwarp();
    if (lane < 2) {
        ((uint2 *)(void *)memory)[lane] = make_uint2(0, 0);
    }
    if (lane < TG_ZEROS_AFTER / 8) {
        ((uint2 *)(void *)(memory + TG_SYMBOLS_AT))[eights + lane] = make_uint2(0, 0);
    }
    __syncwarp();
}

/* Rounds a bucket by round(eight values, the number of the first one in the unit). All lanes. */
template <class Round> TG_DEVICE void tg_round_bucket(const tg_held_bucket &h, Round round)
{
    const uint32_t end = h.shift + h.b.n;
    const bool is_group = tg_groups_eight(h.packing, h.shift);
    tg_put_symbols(h, [&](uint32_t at) {
        uint2 symbols = round(h.held + at, h.b.at - h.shift + at);
        if (at < h.shift || at + TG_EIGHT > end) {
            symbols = tg_some_bytes(symbols, at < h.shift ? h.shift : 0, min(end - at, (uint32_t)TG_EIGHT));
        }
        return is_group ? tg_number_of_eight(symbols, h.packing.d.base) : symbols;
    });
}

/* Packs the symbols of a bucket. All lanes. */
TG_DEVICE void tg_pack_symbols(const tg_held_bucket &h)
{
    const tg_packing &k = h.packing;
    uint8_t *memory = (uint8_t *)(void *)h.held;
    const uint32_t lane = threadIdx.x % TG_WARP;
    if (tg_groups_eight(k, h.shift)) {
        tg_pack_numbers(k, (const uint64_t *)(const void *)(memory + TG_SYMBOLS_AT));
        return;
    }
    uint4 *packed = (uint4 *)(void *)(memory + TG_PACKED_AT);
    tg_pack_bytes(k, memory + TG_SYMBOLS_AT + h.shift - k.skew, packed, lane, TG_WARP);
    __syncwarp();
    tg_place_bytes(h.p, k, h.chunk, h.first, packed, lane, TG_WARP);
}

/* NaN for the numbers of a bucket. */
TG_DEVICE void tg_put_nans(const tg_gpu_bucket &b, uint32_t number_len)
{
    for (uint32_t at = threadIdx.x % TG_WARP * number_len; at < b.u->side_len; at += TG_WARP * number_len) {
        tg_store_bytes(b.side + at, number_len == 4 ? 0x7fc00000u : 0x7e00u, number_len);
    }
}

template <class Q, unsigned WARP_N = 4, unsigned BLOCK_N = 6, unsigned SPACE_LEN = 0> struct tg_by_eights {
    static constexpr unsigned KIND = Q::KIND, WARPS = WARP_N, BLOCKS = BLOCK_N, SPACE = SPACE_LEN;
    static constexpr bool DRAWS = true;
    static __device__ __forceinline__ void encode(const tg_held_bucket &h)
    {
        tg_warp_team team = {
            {h.held + h.shift, h.b.n, threadIdx.x % TG_WARP}, h.b, INFINITY, h.largest_key, h.space, h.params};
        const bool is_nan = h.largest_key >= TG_KEY_INF;
        if (is_nan) {
            tg_put_nans(h.b, Q::number_len(*h.b.u));
            tg_put_symbols(h, [](uint32_t) { return make_uint2(0, 0); });
        } else {
            Q q;
            q.fit(team, *h.b.u);
            const float scale = q.scaled_by();
            if (scale != 1) {
                team.change([&](float x) { return x * scale; });
            }
            q.write(h.b.side, team.lane);
            const tg_warp_draws by = {h.key, h.p.is_answer};
            if constexpr (Q::HAS_VARIANTS) {
                q.round_by(by, [&](auto round) { tg_round_bucket(h, round); });
            } else {
                tg_round_bucket(h, [&](const float *values, uint64_t at) { return tg_round_eight(q, values, by, at); });
            }
        }
        tg_pack_symbols(h);
    }
};

template <class E>
__global__ static void __launch_bounds__(E::WARPS *TG_WARP, E::BLOCKS) tg_quantize_warps(tg_gpu_pass p)
{
    __shared__ uint4 memory[E::WARPS][TG_HELD_FLOATS / 4 + E::SPACE / 16];
    const unsigned number = blockIdx.x * E::WARPS + threadIdx.x / TG_WARP;
    const uint32_t EACH = TG_GPU_TILE / TG_SHORT_BUCKET; /* warps of a tile */
    float *held = (float *)(void *)memory[threadIdx.x / TG_WARP];
    /* tables of the plan, before the kernel before this one has ended */
    const tg_gpu_tile tile = p.tiles[min(number / EACH, p.tile_n - 1)];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_gpu_unit &u = p.units[tile.unit];
    const tg_gpu_piece &piece = p.pieces[tile.piece];
    const bool is_kind = (u.kinds >> E::KIND & 1) != 0, has_warps = tg_has_warps(p, u), sends = tg_unit_sends(u, false);
    const uint32_t start = tile.from + number % EACH * TG_SHORT_BUCKET;
    /* a condition on all that depends on the tile, without branches, so that it is loaded at once */
    const bool has = (number / EACH < p.tile_n) & is_kind & has_warps & sends & (piece.at + piece.n > chunk.at) &
                     (piece.tensor != ~0u);
    const uint32_t end = has ? min(start + TG_SHORT_BUCKET, chunk.n) : 0, bucket_n = has ? u.bucket_n : TG_SHORT_BUCKET;
    const bool is_usual = bucket_n == TG_SHORT_BUCKET; /* no divisions */
    uint32_t bucket = is_usual ? start / TG_SHORT_BUCKET : (start + bucket_n - 1) / bucket_n;
    tg_after_previous();
    tg_next_may_begin();
    uint8_t *const out = p.space.out[tile.chunk];
    uint8_t *const sides = out + p.space.views[tile.chunk].side;
    TG_ROLL
    for (; bucket * bucket_n < end; bucket++) {
        const uint32_t first = bucket * bucket_n;
        tg_gpu_bucket b = tg_bucket_in(p, tile, chunk, u, first, bucket_n);
        const uint32_t shift = E::DRAWS ? (uint32_t)(b.at % TG_EIGHT) : 0;
        b.side = sides + (uint64_t)bucket * u.side_len;
        if (b.floats != nullptr) {
            tg_copy_floats(held + shift, b.floats, b.n);
        }
        double params[TG_WARP_PARAMS]; /* loaded while values are on their way, as is what packing needs */
        TG_UNROLL
        for (unsigned i = 0; i < TG_WARP_PARAMS; i++) {
            params[i] = u.quantize_params[i];
        }
        const tg_packing packing = tg_packing_of(u, chunk, out, first, b.n);
        const uint64_t key = E::DRAWS ? tg_stream_key(p.seed, tg_step_of(p), tile.unit, p.rank + 1) : 0;
        uint32_t most = tg_hold_bucket(held, p, b, shift);
        E::encode({p, chunk, b, out, first, held, shift, most, key, held + TG_HELD_FLOATS, params, packing});
        __syncwarp(); /* packed symbols were read */
    }
}

template <class E> static void tg_quantize_launch_warps(const tg_gpu_pass *p)
{
    if (p->chunk_n > 0 && p->tile_n > 0 && tg_pass_has_warps(p, E::KIND)) {
        uint64_t warps = (uint64_t)p->tile_n * (TG_GPU_TILE / TG_SHORT_BUCKET);
        auto kernel = tg_quantize_warps<E>;
        TG_LAUNCH_EARLY(kernel, p->overlaps, (warps + E::WARPS - 1) / E::WARPS, E::WARPS * TG_WARP, p->stream, *p);
    }
}

#endif
