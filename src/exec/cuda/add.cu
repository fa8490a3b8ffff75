/* Adds the values of a body's dense chunks to sums, or sets them: tile by tile, from plain values, packed bits or symbols.
 *
 * A thread takes four elements at a time, four times, and its sums are on their way before anything else is looked at. NaNs are as
 * CPUs give them (values.h); since one that is among four shows in their results, it is looked for there alone. */
#include "exec/cuda/bits.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/plain_fours.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

enum { THREADS = TG_FOURS_THREADS, FOUR = TG_FOUR, FOURS = TG_FOURS, SYMBOLS_MAX = 512 };

/* ---- sums, four at a time -------------------------------------------------------------------------------------------------- */

/* Where a tile is added if that can be done four at a time; else NULL. */
TG_DEVICE float *sum_of_fours(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile)
{
    const tg_gpu_piece &piece = p.pieces[tile.piece];
    float *out = !tg_adds_to_tensors(p) ? p.space.sums + u.flat_at + (tile.at - u.lo)
                                        : tg_added_of(p, piece.tensor) + (tile.at - piece.at);
    bool suits = (!tg_adds_to_tensors(p) || tile.is_whole) && (uintptr_t)out % 16 == 0;
    return suits ? out : nullptr;
}

/* Sums of n elements, as far as they are whole fours. */
TG_DEVICE void load_sums(float4 sum[FOURS], const float *out, uint32_t n, bool sets)
{
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        bool has = out != nullptr && !sets && tg_four_at(b) + FOUR <= n;
        sum[b] = has ? *(const float4 *)(const void *)(out + tg_four_at(b)) : make_float4(0, 0, 0, 0);
    }
}

TG_DEVICE float4 add_four(float4 sum, float4 value)
{
    float4 result = make_float4(sum.x + value.x, sum.y + value.y, sum.z + value.z, sum.w + value.w);
    if (tg_has_nan(result)) {
        result = make_float4(tg_plus(sum.x, value.x), tg_plus(sum.y, value.y), tg_plus(sum.z, value.z), tg_plus(sum.w, value.w));
    }
    return result;
}

/* ---- plain values ------------------------------------------------------------------------------------------------------------ */

/* As it is, to `out`: of values, sums or weights that are NaN. */
TG_DEVICE void add_slowly(float *out, const tg_gpu_unit &u, const uint8_t *bytes, uint32_t first, float weight, bool sets)
{
    TG_ROLL
    for (uint32_t i = first; i < first + FOUR; i++) {
        float value = tg_plain_value(u, bytes, i);
        out[i] = sets ? value : tg_plus(out[i], tg_times(weight, value));
    }
}

/* Whole fours of n values. All loads of a thread are under way before the first is used, and before it is known whether they may be
 * added. */
template <unsigned WORDS>
TG_DEVICE void add_fours(float *out, const tg_gpu_pass &p, const tg_gpu_unit &u, const uint8_t *bytes, uint32_t n, float weight, bool sets)
{
    bool is_bf16 = u.quantize == TG_GPU_BF16;
    uint32_t words[FOURS][WORDS];
    float4 sum[FOURS];
    load_sums(sum, out, n, sets);
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        if (tg_four_at(b) + FOUR <= n) {
            tg_load_plain<WORDS>(words[b], bytes + tg_four_at(b) * WORDS);
        }
    }
    if (!tg_may_add(p)) {
        return;
    }
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        if (tg_four_at(b) + FOUR <= n) {
            float4 v = tg_plain_four<WORDS>(words[b], is_bf16), s = sum[b];
            if (!sets) {
                v = make_float4(s.x + weight * v.x, s.y + weight * v.y, s.z + weight * v.z, s.w + weight * v.w);
            }
            if (tg_has_nan(v)) {
                add_slowly(out, u, bytes, tg_four_at(b), weight, sets);
            } else {
                *(float4 *)(void *)(out + tg_four_at(b)) = v;
            }
        }
    }
}

__global__ static void __launch_bounds__(THREADS, 4) add_plain(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    if (u.plain_len == 0 || !tg_unit_sends(u, false)) {
        tg_after_previous();
        return;
    }
    const uint8_t *bytes = tg_plain_bytes(p, u, tile.chunk, body) + (uint64_t)tile.from * u.plain_len;
    float *out = sum_of_fours(p, u, tile);
    if (out != nullptr && u.plain_len == 2) {
        add_fours<2>(out, p, u, bytes, tile.n, weight, sets);
    } else if (out != nullptr) {
        add_fours<4>(out, p, u, bytes, tile.n, weight, sets);
    }
    uint32_t rest = out != nullptr ? tile.n / FOUR * FOUR : 0;
    if (rest == tile.n || !tg_may_add(p)) {
        return;
    }
    for (uint32_t i = rest + threadIdx.x; i < tile.n; i += THREADS) {
        float value = tg_plain_value(u, bytes, i), *to = tg_sum_at(p, u, tile.at + i);
        *to = sets ? value : tg_plus(*to, tg_times(weight, value));
    }
}

/* ---- symbols --------------------------------------------------------------------------------------------------------------- */

enum { AROUND = 8, BATCH = 4 }; /* digits of groups that begin before a tile or end after it; groups that a thread loads at once */

/* What a block has of a tile with symbols: the values of its buckets, and symbols that are packed in groups, a byte each. */
typedef struct tile_space {
    float table[SYMBOLS_MAX];
    uint32_t symbols[(TG_GPU_TILE + 2 * AROUND) / 4];
} tile_space;

typedef struct tile_part {
    const tg_gpu_unit *u;
    uint32_t at, n;         /* elements at to at + n of a chunk */
    const uint8_t *symbols; /* of the chunk, ... */
    uint32_t group_n, bits; /* ... packed so; unpacked ones one by one, in 8 or 16 bits */
    const uint8_t *side;
    uint32_t bucket_n, first_bucket, bucket_end;
    uint32_t shift;  /* buckets are of 2^shift values; 32: of another number */
    bool has_table;  /* values of all symbols of its buckets are in the table */
    bool has_fours;  /* so that four side by side are in one bucket */
} tile_part;

/* The bucket of element i of the chunk. */
TG_DEVICE uint32_t bucket_of(const tile_part &t, uint32_t i)
{
    return t.shift < 32 ? i >> t.shift : i / t.bucket_n;
}

TG_DEVICE tile_part part_of(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile, const uint8_t *body)
{
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_view &view = p.space.views[tile.chunk];
    tile_part t;
    t.u = &u;
    t.at = tile.from;
    t.n = tile.n;
    t.symbols = u.coded ? p.space.symbols + 2 * chunk.element_at : body + view.symbols;
    t.group_n = u.coded ? 1 : u.group_n;
    t.bits = !u.coded ? u.group_bits : u.base > 256 ? 16 : 8;
    t.side = body + view.side;
    t.bucket_n = u.bucket_n == 0 ? chunk.n : u.bucket_n;
    t.shift = (t.bucket_n & (t.bucket_n - 1)) == 0 ? (uint32_t)__ffs((int)t.bucket_n) - 1 : 32;
    t.first_bucket = u.bucket_n == 0 ? 0 : bucket_of(t, t.at);
    t.bucket_end = u.bucket_n == 0 ? 1 : bucket_of(t, t.at + t.n - 1) + 1;
    t.has_table = (t.bucket_end - t.first_bucket) * u.base <= SYMBOLS_MAX;
    t.has_fours = t.has_table && (t.bucket_end - t.first_bucket == 1 || t.bucket_n % FOUR == 0);
    return t;
}

/* Decodes all symbols of the buckets, if there is a table; all threads. */
TG_DEVICE void fill_table(const tile_part &t, float *table, float weight, bool sets)
{
    const tg_gpu_unit &u = *t.u;
    uint32_t values = t.has_table ? (t.bucket_end - t.first_bucket) * u.base : 0;
    for (uint32_t i = threadIdx.x; i < values; i += THREADS) {
        const uint8_t *side = t.side + (uint64_t)(t.first_bucket + i / u.base) * u.side_len;
        float value = tg_symbol_value(u, side, i % u.base);
        table[i] = sets ? value : tg_times(weight, value);
    }
}

/* Where the values of the bucket of element i of the tile begin in the table. */
TG_DEVICE uint32_t row_of(const tile_part &t, uint32_t i)
{
    return t.bucket_end - t.first_bucket == 1 ? 0 : (bucket_of(t, t.at + i) - t.first_bucket) * t.u->base;
}

/* The value of a symbol of element i of the tile, times the weight unless it is set. */
TG_DEVICE float value_of(const tile_part &t, const float *table, uint32_t i, unsigned symbol, float weight, bool sets)
{
    if (t.has_table) {
        return table[row_of(t, i) + symbol];
    }
    float value = tg_symbol_value(*t.u, t.side + (uint64_t)bucket_of(t, t.at + i) * t.u->side_len, symbol);
    return sets ? value : tg_times(weight, value);
}

/* ---- groups ---------------------------------------------------------------------------------------------------------------- */

TG_DEVICE uint64_t group_of(const tile_part &t, uint32_t g)
{
    uint64_t bit = (uint64_t)g * t.bits;
    return tg_load_bits(t.symbols + bit / 8, (unsigned)(bit % 8), t.bits);
}

/* The first digits of a number. The inverse of the base in 32 bits is exact while the number times the base is below 2^32, that in 64
 * bits for numbers of up to 48 bits. */
template <class Put> TG_DEVICE void split(uint64_t number, const tg_gpu_unit &u, uint32_t digits, Put put)
{
    const uint32_t base = u.base, inverse = (uint32_t)(u.inverse >> 32) + 1;
    uint32_t k = 0;
    for (; k < digits && number * base >> 32 != 0; k++) {
        uint64_t rest = __umul64hi(number, u.inverse);
        put(k, (uint32_t)(number - rest * base));
        number = rest;
    }
    uint32_t left = (uint32_t)number;
    TG_UNROLL
    for (uint32_t j = 0; j < AROUND; j++) {
        if (k + j < digits) {
            uint32_t rest = __umulhi(left, inverse);
            put(k + j, left - rest * base);
            left = rest;
        }
    }
}

/* Symbols of the tile to bytes in shared memory, from groups of symbols below a base of at most 256; all threads. */
TG_DEVICE void unpack_tile(uint32_t *symbols, const tile_part &t)
{
    uint8_t *bytes = (uint8_t *)(void *)symbols + AROUND;
    uint32_t first = t.at / t.group_n, end = t.at + t.n;
    for (uint32_t from = first + threadIdx.x; from * t.group_n < end; from += BATCH * THREADS) {
        uint64_t numbers[BATCH];
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t g = from + b * THREADS;
            numbers[b] = g * t.group_n < end ? group_of(t, g) : 0;
        }
        TG_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            uint32_t element = (from + b * THREADS) * t.group_n;
            uint8_t *to = bytes + ((int32_t)element - (int32_t)t.at);
            if (element < end) {
                split(numbers[b], *t.u, t.group_n, [to](uint32_t k, uint32_t digit) { to[k] = (uint8_t)digit; });
            }
        }
    }
}

/* One symbol of any base. */
TG_DEVICE uint32_t unpack_one(const tile_part &t, uint32_t i)
{
    uint32_t g = (t.at + i) / t.group_n, number = t.at + i - g * t.group_n, symbol = 0;
    split(group_of(t, g), *t.u, number + 1, [&symbol](uint32_t, uint32_t digit) { symbol = digit; });
    return symbol;
}

/* ---- four symbols ---------------------------------------------------------------------------------------------------------- */

/* How many of the four elements from number i on are in the tile. */
TG_DEVICE uint32_t few_of(const tile_part &t, uint32_t i)
{
    return i < t.n ? min(t.n - i, (uint32_t)FOUR) : 0;
}

/* n symbols, up to four, from element i of the tile on: of up to 8 bits, one by one. */
TG_DEVICE uint32_t load_narrow(const tile_part &t, uint32_t i, uint32_t n)
{
    uint32_t bit = (t.at + i) * t.bits;
    const uint8_t *at = t.symbols + bit / 8;
    uint32_t place = (uint32_t)((uintptr_t)at % 4), from = bit % 8 + 8 * place;
    const uint32_t *words = (const uint32_t *)(const void *)(at - place);
    return n == 0 ? 0 : __funnelshift_r(words[0], from + n * t.bits > 32 ? words[1] : 0, from);
}

/* Of more bits, or in groups; `bits` each. */
TG_DEVICE uint64_t load_wide(const tile_part &t, uint32_t i, uint32_t n, uint32_t bits)
{
    uint64_t symbols = 0;
    if (t.group_n == 1 && t.bits * n <= 48) {
        uint64_t bit = (uint64_t)(t.at + i) * t.bits;
        return n == 0 ? 0 : tg_load_bits(t.symbols + bit / 8, (unsigned)(bit % 8), n * t.bits);
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t symbol = t.group_n == 1 ? ((const uint16_t *)(const void *)t.symbols)[t.at + i + k] : unpack_one(t, i + k);
        symbols |= (uint64_t)symbol << k * bits;
    }
    return symbols;
}

/* Adds the whole fours of a tile whose values are in the table. BITS: of a symbol; 0: `bits`. */
template <unsigned BITS, class Word>
TG_DEVICE void add_whole(float *out, const tile_part &t, const float *table, const float4 sum[FOURS], const Word packed[FOURS],
                         uint32_t bits, bool sets)
{
    const uint32_t by = BITS > 0 ? BITS : bits, mask = (1u << by) - 1;
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = tg_four_at(b);
        if (i + FOUR > t.n) {
            continue;
        }
        const float *row = table + row_of(t, i);
        float4 value;
        if (BITS == 1) {
            float zero = row[0], one = row[1];
            value = make_float4((packed[b] & 1) != 0 ? one : zero, (packed[b] & 2) != 0 ? one : zero,
                                (packed[b] & 4) != 0 ? one : zero, (packed[b] & 8) != 0 ? one : zero);
        } else {
            value = make_float4(row[(uint32_t)packed[b] & mask], row[(uint32_t)(packed[b] >> by) & mask],
                                row[(uint32_t)(packed[b] >> 2 * by) & mask], row[(uint32_t)(packed[b] >> 3 * by) & mask]);
        }
        *(float4 *)(void *)(out + i) = sets ? value : add_four(sum[b], value);
    }
}

/* Adds a tile: to `out`, or element by element where that is NULL. */
template <class Word>
TG_DEVICE void add_tile(float *out, const tg_gpu_pass &p, const tile_part &t, const float *table, const float4 sum[FOURS],
                        const Word packed[FOURS], uint32_t bits, uint64_t at, float weight, bool sets)
{
    const uint32_t mask = (1u << bits) - 1;
    bool has_fours = out != nullptr && t.has_fours;
    if (has_fours && sizeof(Word) == 4 && bits == 8) {
        add_whole<8>(out, t, table, sum, packed, bits, sets);
    } else if (has_fours && sizeof(Word) == 4 && bits == 1) {
        add_whole<1>(out, t, table, sum, packed, bits, sets);
    } else if (has_fours) {
        add_whole<0>(out, t, table, sum, packed, bits, sets);
    }
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = tg_four_at(b);
        if (has_fours && i + FOUR <= t.n) {
            continue;
        }
        TG_ROLL
        for (uint32_t k = 0; k < FOUR && i + k < t.n; k++) {
            float value = value_of(t, table, i + k, (uint32_t)(packed[b] >> k * bits) & mask, weight, sets);
            float *to = tg_sum_at(p, *t.u, at + i + k);
            *to = sets ? value : tg_plus(*to, value);
        }
    }
}

__global__ static void __launch_bounds__(THREADS, 4)
    add_symbols(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    __shared__ tile_space space;
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    if (u.plain_len != 0 || tg_quantize_kind(u) == TG_KIND_BLOCKS || !tg_unit_sends(u, false)) {
        tg_after_previous();
        return;
    }
    float *out = sum_of_fours(p, u, tile);
    float4 sum[FOURS];
    load_sums(sum, out, tile.n, sets);
    if (!tg_may_add(p)) { /* symbols are looked at after that, for those that are not one would lead astray */
        return;
    }
    const tile_part t = part_of(p, u, tile, body);
    if (t.bits <= 8 || (t.group_n > 1 && u.base <= 256)) {
        uint32_t packed[FOURS], bits = t.group_n > 1 ? 8 : t.bits;
        if (t.group_n > 1) {
            unpack_tile(space.symbols, t);
        } else {
            TG_UNROLL
            for (uint32_t b = 0; b < FOURS; b++) {
                packed[b] = load_narrow(t, tg_four_at(b), few_of(t, tg_four_at(b)));
            }
        }
        fill_table(t, space.table, weight, sets);
        __syncthreads();
        TG_UNROLL
        for (uint32_t b = 0; b < FOURS; b++) {
            packed[b] = t.group_n > 1 ? space.symbols[(AROUND + tg_four_at(b)) / FOUR] : packed[b];
        }
        add_tile<uint32_t>(out, p, t, space.table, sum, packed, bits, tile.at, weight, sets);
    } else {
        uint64_t packed[FOURS];
        uint32_t bits = t.group_n > 1 ? 16 : t.bits;
        TG_UNROLL
        for (uint32_t b = 0; b < FOURS; b++) {
            packed[b] = load_wide(t, tg_four_at(b), few_of(t, tg_four_at(b)), bits);
        }
        fill_table(t, space.table, weight, sets);
        __syncthreads();
        add_tile<uint64_t>(out, p, t, space.table, sum, packed, bits, tile.at, weight, sets);
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

extern "C" void tg_gpu_add_dense(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets)
{
    if (p->tile_n == 0) {
        return;
    }
    /* The kernel before has judged the body. Neither it nor the one before that writes to sums, and that one has begun after all before it
     * had ended; so sums may be read early. */
    bool is_early = p->overlaps && p->sound != nullptr;
    bool has_plain = tg_pass_has(p, TG_KIND_NONE);
    if (has_plain) {
        TG_LAUNCH_EARLY(add_plain, is_early, p->tile_n, THREADS, p->stream, *p, body, weight, sets != 0);
    }
    const uint32_t others = 1u << TG_KIND_NONE | 1u << TG_KIND_BLOCKS | 1u << TG_KIND_HEAD | 1u << TG_KIND_PACKS;
    if (p->kinds == 0 || (p->kinds & ~others) != 0) {
        TG_LAUNCH_EARLY(add_symbols, is_early && !has_plain, p->tile_n, THREADS, p->stream, *p, body, weight, sets != 0);
    }
    tg_launch_add_blocks(p, body, weight, sets != 0, false);
}
