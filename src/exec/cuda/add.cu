/* Adds the values of a body's dense chunks to sums, or sets them: tile by tile, from plain values, packed bits or symbols. */
#include "exec/cuda/bits.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/plain_values.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

enum { THREADS = 256, SYMBOLS_MAX = 512 };

/* ---- packed symbols -------------------------------------------------------------------------------------------------------- */

/* The digits of group `g` to `out`, which has those of groups from `first` on. */
TG_DEVICE void unpack_group(uint16_t *out, const tg_gpu_unit &u, const uint8_t *bytes, uint32_t g, uint32_t first)
{
    uint64_t bit = (uint64_t)g * u.group_bits;
    uint64_t word = tg_load_bits(bytes + bit / 8, (unsigned)(bit % 8), u.group_bits);
    uint16_t *to = out + (g - first) * u.group_n;
    uint32_t k = 0;
    if (u.group_bits > 26) { /* until 32 bits are exact */
        uint64_t inverse = ~0ull / u.base + 1; /* exact for words of up to 48 bits */
        for (; k < u.group_n && (word >> 22 != 0 || u.base > 512); k++) {
            uint64_t rest = __umul64hi(word, inverse);
            to[k] = (uint16_t)(word - rest * u.base);
            word = rest;
        }
    }
    uint32_t left = (uint32_t)word, inverse = 0xffffffffu / u.base + 1; /* exact while left times the base is below 2^32 */
    bool is_exact = (uint64_t)left * u.base >> 32 == 0;
    for (; k < u.group_n; k++) {
        uint32_t rest = is_exact ? __umulhi(left, inverse) : left / u.base;
        to[k] = (uint16_t)(left - rest * u.base);
        left = rest;
    }
}

/* ---- dense ------------------------------------------------------------------------------------------------------------------- */

enum { FOUR = 4, FOURS = TG_GPU_TILE / 4 / THREADS }; /* of a thread */

/* What a block has of a chunk with symbols: those of a tile, where they are packed in groups, and the values of its buckets. */
typedef struct tile_space {
    float table[SYMBOLS_MAX];
    uint16_t symbols[TG_GPU_TILE + 16];
} tile_space;

typedef struct tile_part {
    const tg_gpu_unit *u;
    uint32_t at, n;         /* elements at to at + n of a chunk */
    const uint8_t *symbols; /* packed, or unpacked */
    const uint8_t *side;
    uint32_t bucket_n, first_bucket;
    uint32_t shift; /* buckets are of 2^shift values; 32: of another number */
    bool has_table, is_one; /* values of all symbols of its buckets are in the table; there is one bucket */
} tile_part;

TG_DEVICE tile_part part_of(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile, const uint8_t *body)
{
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_view &view = p.space.views[tile.chunk];
    tile_part t = {&u, tile.from, tile.n, nullptr, body + view.side, 0, 0, 32, false, false};
    t.symbols = u.coded ? p.space.symbols + 2 * chunk.element_at : body + view.symbols;
    t.bucket_n = u.bucket_n == 0 ? chunk.n : u.bucket_n;
    t.first_bucket = t.at / t.bucket_n;
    t.shift = (t.bucket_n & (t.bucket_n - 1)) == 0 ? (uint32_t)__ffs((int)t.bucket_n) - 1 : 32;
    uint32_t buckets = (t.at + t.n - 1) / t.bucket_n - t.first_bucket + 1;
    t.is_one = buckets == 1;
    t.has_table = u.quantize != TG_GPU_NATURAL && buckets * u.base <= SYMBOLS_MAX;
    return t;
}

/* Unpacks groups, and decodes all symbols of the buckets; all threads. */
TG_DEVICE void prepare_tile(const tile_part &t, tile_space &space, float weight, bool sets)
{
    const tg_gpu_unit &u = *t.u;
    if (!u.coded && u.group_n > 1) {
        uint32_t first = t.at / u.group_n, end = (t.at + t.n + u.group_n - 1) / u.group_n;
        for (uint32_t g = first + threadIdx.x; g < end; g += THREADS) {
            unpack_group(space.symbols, u, t.symbols, g, first);
        }
    }
    uint32_t values = t.has_table ? ((t.at + t.n - 1) / t.bucket_n - t.first_bucket + 1) * u.base : 0;
    for (uint32_t i = threadIdx.x; i < values; i += THREADS) {
        const uint8_t *side = t.side + (uint64_t)(t.first_bucket + i / u.base) * u.side_len;
        float value = tg_symbol_value(u, side, i % u.base);
        space.table[i] = sets ? value : tg_times(weight, value);
    }
}

/* Symbols i to i + n - 1 of the tile, at most four, after prepare_tile. */
TG_DEVICE void symbols_of(unsigned out[FOUR], const tile_part &t, const tile_space &space, uint32_t i, uint32_t n)
{
    const tg_gpu_unit &u = *t.u;
    if (!u.coded && u.group_n == 1) {
        uint64_t bit = (uint64_t)(t.at + i) * u.group_bits;
        uint64_t bits = tg_load_bits(t.symbols + bit / 8, (unsigned)(bit % 8), n * u.group_bits);
        TG_UNROLL
        for (unsigned k = 0; k < FOUR; k++) {
            out[k] = (unsigned)(bits >> k * u.group_bits) & ((1u << u.group_bits) - 1);
        }
        return;
    }
    TG_UNROLL
    for (unsigned k = 0; k < FOUR; k++) {
        uint32_t at = t.at + i + k;
        out[k] = k >= n                 ? 0
                 : !u.coded             ? space.symbols[t.at % u.group_n + i + k]
                 : u.base > 256         ? ((const uint16_t *)(const void *)t.symbols)[at]
                                        : t.symbols[at];
    }
}

/* The value of a symbol of element i of the tile, times the weight unless it is set. */
TG_DEVICE float value_of(const tile_part &t, const tile_space &space, uint32_t i, unsigned symbol, float weight, bool sets)
{
    const tg_gpu_unit &u = *t.u;
    if (t.has_table && t.is_one) {
        return space.table[symbol];
    }
    uint32_t bucket = t.shift < 32 ? (t.at + i) >> t.shift : (t.at + i) / t.bucket_n;
    if (t.has_table) {
        return space.table[(bucket - t.first_bucket) * u.base + symbol];
    }
    float value = tg_symbol_value(u, t.side + (uint64_t)bucket * u.side_len, symbol);
    return sets ? value : tg_times(weight, value);
}

/* ---- plain values, four at a time ------------------------------------------------------------------------------------------ */

/* Where a tile is added if that can be done four at a time; else NULL. */
TG_DEVICE float *sum_of_fours(const tg_gpu_pass &p, const tg_gpu_unit &u, const tg_gpu_tile &tile)
{
    const tg_gpu_piece &piece = p.pieces[tile.piece];
    float *out = !tg_adds_to_tensors(p) ? p.space.sums + u.flat_at + (tile.at - u.lo)
                                        : tg_added_of(p, piece.tensor) + (tile.at - piece.at);
    bool suits = (!tg_adds_to_tensors(p) || tile.is_whole) && (uintptr_t)out % 16 == 0;
    return suits ? out : nullptr;
}

TG_DEVICE void plain_four(float value[FOUR], const tg_gpu_unit &u, uint4 bits)
{
    if (u.plain_len == 4) {
        value[0] = __uint_as_float(bits.x);
        value[1] = __uint_as_float(bits.y);
        value[2] = __uint_as_float(bits.z);
        value[3] = __uint_as_float(bits.w);
        return;
    }
    uint16_t halves[FOUR] = {(uint16_t)bits.x, (uint16_t)(bits.x >> 16), (uint16_t)bits.y, (uint16_t)(bits.y >> 16)};
    TG_UNROLL
    for (int i = 0; i < FOUR; i++) {
        value[i] = u.quantize == TG_GPU_FP16 ? tg_fp16_to_float(halves[i]) : tg_bf16_to_float(halves[i]);
    }
}

/* Four values at any address. */
TG_DEVICE uint4 load_four(const uint8_t *bytes, uint32_t len, uint32_t i)
{
    if (len == 4 && (uintptr_t)bytes % 16 == 0) {
        return __ldcs((const uint4 *)(const void *)bytes + i);
    }
    if (len == 2 && (uintptr_t)bytes % 8 == 0) {
        uint2 halves = __ldcs((const uint2 *)(const void *)bytes + i);
        return make_uint4(halves.x, halves.y, 0, 0);
    }
    uint64_t low = tg_load64(bytes + (uint64_t)i * FOUR * len), high = len == 4 ? tg_load64(bytes + (uint64_t)i * 16 + 8) : 0;
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

/* All loads of a thread are under way before the first is used. */
TG_DEVICE void add_fours(float *out, const tg_gpu_unit &u, const uint8_t *bytes, uint32_t fours, float weight, bool sets)
{
    uint4 bits[FOURS];
    float4 sum[FOURS];
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = b * THREADS + threadIdx.x;
        bits[b] = i < fours ? load_four(bytes, u.plain_len, i) : make_uint4(0, 0, 0, 0);
        sum[b] = i < fours && !sets ? *((const float4 *)(const void *)out + i) : make_float4(0, 0, 0, 0);
    }
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = b * THREADS + threadIdx.x;
        float value[FOUR], old[FOUR] = {sum[b].x, sum[b].y, sum[b].z, sum[b].w};
        plain_four(value, u, bits[b]);
        TG_UNROLL
        for (int k = 0; k < FOUR && !sets; k++) {
            value[k] = tg_plus(old[k], tg_times(weight, value[k]));
        }
        if (i < fours) {
            *((float4 *)(void *)out + i) = make_float4(value[0], value[1], value[2], value[3]);
        }
    }
}

__global__ static void __launch_bounds__(THREADS) add_plain(tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    if (u.plain_len == 0 || !tg_unit_sends(u, false)) {
        return;
    }
    const uint8_t *bytes = tg_plain_bytes(p, u, tile.chunk, body) + (uint64_t)tile.from * u.plain_len;
    float *out = sum_of_fours(p, u, tile);
    uint32_t fours = out != nullptr ? tile.n / FOUR : 0;
    if (fours > 0) {
        add_fours(out, u, bytes, fours, weight, sets);
    }
    for (uint32_t i = FOUR * fours + threadIdx.x; i < tile.n; i += THREADS) {
        float value = tg_plain_value(u, bytes, i), *to = tg_sum_at(p, u, tile.at + i);
        *to = sets ? value : tg_plus(*to, tg_times(weight, value));
    }
}

/* Symbols of a tile, four at a time: to `out`, or element by element where that is NULL. */
TG_DEVICE void add_tile(const tg_gpu_pass &p, const tile_part &t, const tile_space &space, float *out, uint64_t at, float weight,
                        bool sets)
{
    float4 sum[FOURS];
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = FOUR * (b * THREADS + threadIdx.x);
        sum[b] = out != nullptr && !sets && i + FOUR <= t.n ? *(const float4 *)(const void *)(out + i) : make_float4(0, 0, 0, 0);
    }
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = FOUR * (b * THREADS + threadIdx.x), n = i < t.n ? min((uint32_t)FOUR, t.n - i) : 0;
        unsigned symbols[FOUR];
        float value[FOUR], old[FOUR] = {sum[b].x, sum[b].y, sum[b].z, sum[b].w};
        if (n > 0) {
            symbols_of(symbols, t, space, i, n);
        }
        TG_UNROLL
        for (uint32_t k = 0; k < FOUR; k++) {
            value[k] = k < n ? value_of(t, space, i + k, symbols[k], weight, sets) : 0.0f;
        }
        if (out != nullptr && n == FOUR) {
            TG_UNROLL
            for (uint32_t k = 0; k < FOUR; k++) {
                value[k] = sets ? value[k] : tg_plus(old[k], value[k]);
            }
            *(float4 *)(void *)(out + i) = make_float4(value[0], value[1], value[2], value[3]);
        } else {
            TG_UNROLL
            for (uint32_t k = 0; k < FOUR; k++) {
                if (k < n) {
                    float *to = tg_sum_at(p, *t.u, at + i + k);
                    *to = sets ? value[k] : tg_plus(*to, value[k]);
                }
            }
        }
    }
}

__global__ static void __launch_bounds__(THREADS)
    add_symbols(tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    __shared__ tile_space space;
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    if (u.plain_len != 0 || tg_quantize_kind(u) == TG_KIND_BLOCKS || !tg_unit_sends(u, false)) {
        return;
    }
    const tile_part t = part_of(p, u, tile, body);
    prepare_tile(t, space, weight, sets);
    __syncthreads();
    add_tile(p, t, space, sum_of_fours(p, u, tile), tile.at, weight, sets);
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

extern "C" void tg_gpu_add_dense(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets)
{
    if (p->chunk_n == 0) {
        return;
    }
    if (tg_pass_has(p, TG_KIND_NONE)) {
        TG_LAUNCH(add_plain, p->tile_n, THREADS, p->stream, *p, body, weight, sets != 0);
    }
    if (p->kinds != 1u << TG_KIND_NONE) {
        TG_LAUNCH(add_symbols, p->tile_n, THREADS, p->stream, *p, body, weight, sets != 0);
        tg_launch_add_blocks(p, body, weight, sets != 0, false);
    }
}
