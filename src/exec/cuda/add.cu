/* Adds the values of a body's dense chunks to sums, or sets them: tile by tile, from plain values, packed bits or symbols.
 *
 * A thread takes four elements at a time, four times, and its sums are on their way before anything else is looked at: in registers, or
 * where symbols are decoded in between, in shared memory. NaNs are as CPUs give them (values.h); since one that is among four shows in
 * their results, it is looked for there alone. */
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

__global__ static void __launch_bounds__(THREADS, 4)
    add_plain(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x]; /* what depends on it is loaded before anything is decided, as below */
    const tg_gpu_unit &u = p.units[tile.unit];
    const uint32_t plain_len = u.plain_len;
    const uint64_t element_at = p.chunks[tile.chunk].element_at, values_at = p.space.views[tile.chunk].symbols;
    TG_LOADED(element_at);
    TG_LOADED(values_at);
    const bool sends = tg_unit_sends(u, false), is_coded = u.coded != 0;
    float *out = sum_of_fours(p, u, tile);
    if (plain_len == 0 || !sends) {
        tg_after_previous();
        return;
    }
    const uint8_t *bytes = (is_coded ? p.space.words + 4 * element_at : body + values_at) + (uint64_t)tile.from * plain_len;
    if (out != nullptr && plain_len == 2) {
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

enum {
    AROUND = 8, /* digits of groups that begin before a tile or end after it ... */
    EDGE = 32,  /* ... and bytes of theirs, and of words that have them */
    BLOCKS = 5  /* that a multiprocessor runs at once */
};

/* What a block has of a tile with symbols. */
template <unsigned PACKED> struct tile_space {
    float4 sums[FOURS][THREADS]; /* a thread copies and reads its own */
    uint64_t packed[((PACKED == TG_PACKED_NUMBERS ? 2 : 1) * TG_GPU_TILE + EDGE) / 8]; /* symbols, as they are in the body */
    float table[SYMBOLS_MAX];                                                          /* values of its buckets */
    uint32_t symbols[PACKED == TG_PACKED_GROUPS ? (TG_GPU_TILE + 2 * AROUND) / 4 : 1]; /* of groups, a byte each */
};

typedef struct tile_part {
    const tg_gpu_unit *u;
    float *out;             /* where elements are added four at a time; NULL: they are not */
    uint32_t at, n;         /* elements at to at + n of a chunk */
    const uint8_t *symbols; /* of the chunk, ... */
    uint32_t group_n, bits; /* ... packed so; unpacked ones one by one, in 8 or 16 bits */
    const uint8_t *side;
    uint32_t base, first_bucket, rows; /* rows: buckets that are in the tile */
    uint32_t bucket_n, inverse;        /* of them, as that of the unit */
    bool has_table;                    /* values of all symbols of its buckets are in the table */
    uint64_t at_unit;                  /* the first element in the unit */
} tile_part;

/* The bucket of element i of the chunk. The inverse gives it or the one before it. */
TG_DEVICE uint32_t bucket_of(const tile_part &t, uint32_t i)
{
    uint32_t bucket = __umulhi(i, t.inverse);
    return bucket + (i - bucket * t.bucket_n >= t.bucket_n ? 1 : 0);
}

/* The tile of a block; false: this kernel adds nothing. What depends on the tile is loaded before anything is decided. */
template <unsigned PACKED> TG_DEVICE bool find_part(tile_part &t, const tg_gpu_pass &p, const uint8_t *body)
{
    const tg_gpu_tile tile = p.tiles[blockIdx.x];
    const tg_gpu_unit &u = p.units[tile.unit];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_view &view = p.space.views[tile.chunk];
    const uint32_t kinds = u.kinds, base = u.base, bucket_n = u.bucket_n, group_n = u.group_n, bits = u.group_bits;
    const uint32_t chunk_n = chunk.n, inverse = u.bucket_inverse;
    const uint64_t element_at = chunk.element_at, side = view.side, symbols = view.symbols;
    const bool is_coded = u.coded != 0;
    TG_LOADED(element_at);
    TG_LOADED(side);
    TG_LOADED(symbols);
    float *out = sum_of_fours(p, u, tile);
    t.u = &u;
    t.at_unit = tile.at;
    t.at = tile.from;
    t.n = tile.n;
    t.symbols = is_coded ? p.space.symbols + 2 * element_at : body + symbols;
    t.group_n = is_coded ? 1 : group_n;
    t.bits = !is_coded ? bits : base > 256 ? 16 : 8;
    t.side = body + side;
    t.base = base;
    t.bucket_n = bucket_n == 0 ? chunk_n : bucket_n;
    t.inverse = inverse;
    t.first_bucket = bucket_of(t, t.at);
    t.rows = bucket_of(t, t.at + t.n - 1) + 1 - t.first_bucket;
    t.has_table = t.rows * base <= SYMBOLS_MAX;
    bool has_fours = t.has_table && (t.rows == 1 || t.bucket_n % FOUR == 0); /* four side by side are in one bucket */
    t.out = has_fours && t.n >= FOUR && (PACKED != TG_PACKED_NUMBERS || t.group_n == 1) ? out : nullptr;
    return (kinds >> PACKED & 1) != 0;
}

/* 2^32 / base: exact for numbers whose product with the base is below 2^32. */
TG_DEVICE uint32_t inverse_of(const tg_gpu_unit &u)
{
    return (uint32_t)(u.inverse >> 32) + 1;
}

/* Decodes all symbols of the buckets, if there is a table; all threads. */
TG_DEVICE void fill_table(const tile_part &t, float *table, float weight, bool sets)
{
    uint32_t values = t.has_table ? t.rows * t.base : 0;
    for (uint32_t i = threadIdx.x; i < values; i += THREADS) {
        uint32_t row = __umulhi(i, inverse_of(*t.u));
        const uint8_t *side = t.side + (uint64_t)(t.first_bucket + row) * t.u->side_len;
        float value = tg_symbol_value(*t.u, side, i - row * t.base);
        table[i] = sets ? value : tg_times(weight, value);
    }
}

/* The values of the bucket of element i of the tile. */
TG_DEVICE const float *row_of(const tile_part &t, const float *table, uint32_t i)
{
    return table + (bucket_of(t, t.at + i) - t.first_bucket) * t.base;
}

/* ---- packed symbols, in shared memory ------------------------------------------------------------------------------------------ */

/* The first group of a tile. Others are counted from it. */
template <unsigned PACKED> TG_DEVICE uint32_t first_group(const tile_part &t)
{
    bool has_groups = PACKED == TG_PACKED_GROUPS || PACKED == TG_PACKED_NUMBERS;
    return has_groups && t.group_n > 1 ? t.at / t.group_n : t.at;
}

/* Its place in memory, in bits: they keep their place in words. */
template <unsigned PACKED> TG_DEVICE uint32_t first_bit(const tile_part &t)
{
    return (uint32_t)((uintptr_t)t.symbols % 4 * 8) + first_group<PACKED>(t) * t.bits;
}

/* Asks for all words that have bits of the tile; all threads. */
template <unsigned PACKED> TG_DEVICE void copy_packed(tile_space<PACKED> &space, const tile_part &t)
{
    uint32_t groups = t.n;
    if (PACKED == TG_PACKED_GROUPS || (PACKED == TG_PACKED_NUMBERS && t.group_n > 1)) {
        groups = (t.at + t.n + t.group_n - 1) / t.group_n - first_group<PACKED>(t);
    }
    uint32_t bit = first_bit<PACKED>(t), words = (bit % 32 + groups * t.bits + 31) / 32;
    const uint32_t *from = (const uint32_t *)(const void *)(t.symbols - (uintptr_t)t.symbols % 4) + bit / 32;
    uint32_t *to = (uint32_t *)(void *)space.packed;
    for (uint32_t w = threadIdx.x; w < words; w += THREADS) {
        TG_COPY_ASYNC(to + w, from + w, 4);
    }
}

/* Some bits of the copy, at most 48, from number `bit` on, as it is in memory. */
template <unsigned PACKED> TG_DEVICE uint64_t bits_at(const tile_space<PACKED> &space, uint32_t bit, uint32_t n)
{
    return tg_load_bits((const uint8_t *)(const void *)space.packed + bit / 8, bit % 8, n);
}

/* ---- groups ---------------------------------------------------------------------------------------------------------------- */

/* The first digits, at most N, of a number whose product with the base is below 2^32. */
template <uint32_t N, class Put> TG_DEVICE void split_short(uint32_t number, const tg_gpu_unit &u, uint32_t digits, Put put)
{
    const uint32_t base = u.base, inverse = inverse_of(u);
    TG_UNROLL
    for (uint32_t k = 0; k < N; k++) {
        if (k < digits) {
            uint32_t rest = __umulhi(number, inverse);
            put(k, number - rest * base);
            number = rest;
        }
    }
}

/* Of any number. The inverse of the base in 64 bits is exact for numbers of up to 48 bits. */
template <class Put> TG_DEVICE void split(uint64_t number, const tg_gpu_unit &u, uint32_t digits, Put put)
{
    uint32_t k = 0;
    for (; k < digits && number * u.base >> 32 != 0; k++) {
        uint64_t rest = __umul64hi(number, u.inverse);
        put(k, (uint32_t)(number - rest * u.base));
        number = rest;
    }
    split_short<AROUND>((uint32_t)number, u, digits - k, [k, put](uint32_t j, uint32_t digit) { put(k + j, digit); });
}

/* Symbols of the tile to bytes, from groups of symbols below a base of at most 256; all threads. IS_BYTE: a group is a byte, of at most 5
 * symbols. */
template <bool IS_BYTE> TG_DEVICE void unpack_groups(tile_space<TG_PACKED_GROUPS> &space, const tile_part &t)
{
    const uint8_t *packed = (const uint8_t *)(const void *)space.packed;
    uint8_t *bytes = (uint8_t *)(void *)space.symbols + AROUND;
    const uint32_t first = first_group<TG_PACKED_GROUPS>(t), from = first_bit<TG_PACKED_GROUPS>(t) % 32;
    const uint32_t before = t.at - first * t.group_n, end = before + t.n;
    for (uint32_t g = threadIdx.x; g * t.group_n < end; g += THREADS) {
        uint8_t *to = bytes + ((int32_t)(g * t.group_n) - (int32_t)before);
        auto put = [to](uint32_t k, uint32_t digit) { to[k] = (uint8_t)digit; };
        if (IS_BYTE) {
            split_short<5>(packed[from / 8 + g], *t.u, t.group_n, put);
        } else {
            split(bits_at(space, from + g * t.bits, t.bits), *t.u, t.group_n, put);
        }
    }
}

/* Nothing for symbols that are not in groups. */
template <unsigned PACKED> TG_DEVICE void unpack_tile(tile_space<PACKED> &, const tile_part &)
{
}

TG_DEVICE void unpack_tile(tile_space<TG_PACKED_GROUPS> &space, const tile_part &t)
{
    if (t.bits == 8) {
        unpack_groups<true>(space, t);
    } else {
        unpack_groups<false>(space, t);
    }
    __syncthreads();
}

/* ---- symbols one by one ---------------------------------------------------------------------------------------------------- */

/* The symbol of element i of the tile. */
template <unsigned PACKED> TG_DEVICE uint32_t symbol_at(const tile_part &t, const tile_space<PACKED> &space, uint32_t i)
{
    uint32_t from = first_bit<PACKED>(t) % 32;
    if (PACKED == TG_PACKED_GROUPS) {
        return ((const uint8_t *)(const void *)space.symbols)[AROUND + i];
    }
    if (PACKED == TG_PACKED_NUMBERS && t.group_n > 1) {
        uint32_t g = (t.at + i) / t.group_n, symbol = 0, *last = &symbol;
        uint64_t number = bits_at(space, from + (g - first_group<PACKED>(t)) * t.bits, t.bits);
        split(number, *t.u, t.at + i - g * t.group_n + 1, [last](uint32_t, uint32_t digit) { *last = digit; });
        return symbol;
    }
    return (uint32_t)bits_at(space, from + i * t.bits, t.bits);
}

/* Adds the fours of a thread that `late` names, one bit each, element by element. The tile is found again, so that nothing is kept for
 * this. */
template <unsigned PACKED>
TG_DEVICE void add_late(const tg_gpu_pass &p, const uint8_t *body, const tile_space<PACKED> &space, uint32_t late, float weight,
                        bool sets)
{
    tile_part t;
    (void)find_part<PACKED>(t, p, body);
    TG_ROLL
    for (uint32_t j = 0; j < FOURS * FOUR; j++) {
        uint32_t i = tg_four_at(j / FOUR) + j % FOUR;
        if ((late >> j / FOUR & 1) == 0 || i >= t.n) {
            continue;
        }
        uint32_t symbol = symbol_at<PACKED>(t, space, i);
        const uint8_t *side = t.side + (uint64_t)bucket_of(t, t.at + i) * t.u->side_len;
        float value = t.has_table ? row_of(t, space.table, i)[symbol] : tg_symbol_value(*t.u, side, symbol);
        value = t.has_table || sets ? value : tg_times(weight, value);
        float *to = tg_sum_at(p, *t.u, t.at_unit + i);
        *to = sets ? value : tg_plus(*to, value);
    }
}

/* ---- four symbols ---------------------------------------------------------------------------------------------------------- */

/* The four number b of a thread; in place of one that is not whole, the first four of all. */
TG_DEVICE uint32_t four_in(uint32_t b, uint32_t n)
{
    return tg_four_at(b) + FOUR <= n ? tg_four_at(b) : 0;
}

/* Asks for the sums of all fours. One that is set begins with -0, which changes nothing that is added to it. */
TG_DEVICE void copy_sums(float4 sums[FOURS][THREADS], const tile_part &t, bool sets)
{
    if (sets) {
        TG_ROLL
        for (uint32_t b = 0; b < FOURS; b++) {
            sums[b][threadIdx.x] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
        }
        return;
    }
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        TG_COPY_ASYNC(&sums[b][threadIdx.x], t.out + four_in(b, t.n), 16);
    }
}

/* Four symbols from element i on, the first one lowest. `from`: the first bit of the tile in the copy. */
template <unsigned PACKED>
TG_DEVICE uint64_t four_at(const tile_part &t, const tile_space<PACKED> &space, uint32_t i, uint32_t from)
{
    if (PACKED == TG_PACKED_GROUPS) {
        return space.symbols[(AROUND + i) / FOUR];
    }
    if (PACKED == TG_PACKED_BYTES) {
        const uint32_t *words = (const uint32_t *)(const void *)space.packed + i / FOUR;
        return __funnelshift_r(words[0], words[1], from);
    }
    if (PACKED == TG_PACKED_SIGNS) {
        uint32_t bit = from + i;
        return (uint32_t)((const uint8_t *)(const void *)space.packed)[bit / 8] >> bit % 8;
    }
    if (t.bits == 16) {
        uint64_t low = bits_at(space, from + i * 16, 32);
        return bits_at(space, from + i * 16 + 32, 32) << 32 | low;
    }
    return bits_at(space, from + i * t.bits, FOUR * t.bits); /* of up to 9 bits: values of more are in no table */
}

template <unsigned PACKED> TG_DEVICE float4 values_of(uint64_t four, const float *row, uint32_t bits)
{
    if (PACKED == TG_PACKED_SIGNS) {
        float zero = row[0], one = row[1];
        return make_float4((four & 1) != 0 ? one : zero, (four & 2) != 0 ? one : zero, (four & 4) != 0 ? one : zero,
                           (four & 8) != 0 ? one : zero);
    }
    const uint32_t by = PACKED == TG_PACKED_NUMBERS ? bits : 8, mask = (1u << by) - 1;
    return make_float4(row[(uint32_t)four & mask], row[(uint32_t)(four >> by) & mask], row[(uint32_t)(four >> 2 * by) & mask],
                       row[(uint32_t)(four >> 3 * by) & mask]);
}

/* Adds the whole fours of a tile. Returns which ones are left, one bit each: those with a NaN, and what is not whole. HAS_ROWS: there is
 * more than one bucket. */
template <unsigned PACKED, bool HAS_ROWS> TG_DEVICE uint32_t add_fours(const tile_part &t, const tile_space<PACKED> &space)
{
    const uint32_t from = first_bit<PACKED>(t) % 32;
    uint32_t late = 0;
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = four_in(b, t.n);
        const float4 s = space.sums[b][threadIdx.x];
        const float *row = HAS_ROWS ? row_of(t, space.table, i) : space.table;
        float4 v = values_of<PACKED>(four_at<PACKED>(t, space, i, from), row, t.bits);
        v = make_float4(s.x + v.x, s.y + v.y, s.z + v.z, s.w + v.w);
        if (i == tg_four_at(b) && !tg_has_nan(v)) {
            __stcs((float4 *)(void *)(t.out + i), v);
        } else {
            late |= 1u << b;
        }
    }
    return late;
}

/* Symbols and sums are loaded while the table is made, and before it is known whether the frame is sound. Symbols are used only after
 * that: those of a damaged frame may be out of the table's range. */
template <unsigned PACKED>
__global__ static void __launch_bounds__(THREADS, BLOCKS)
    add_symbols(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    __shared__ tile_space<PACKED> space;
    tile_part t;
    if (!find_part<PACKED>(t, p, body)) {
        tg_after_previous();
        return;
    }
    copy_packed<PACKED>(space, t);
    TG_COMMIT_COPIES();
    if (t.out != nullptr) {
        copy_sums(space.sums, t, sets);
    }
    TG_COMMIT_COPIES();
    fill_table(t, space.table, weight, sets);
    bool may_add = tg_may_add(p);
    TG_WAIT_COPIES(1);
    __syncthreads();
    if (may_add) {
        unpack_tile(space, t);
    }
    TG_WAIT_COPIES(0);
    if (!may_add) {
        return;
    }
    uint32_t late = (1u << FOURS) - 1;
    if (t.out != nullptr) {
        late = t.rows > 1 ? add_fours<PACKED, true>(t, space) : add_fours<PACKED, false>(t, space);
    }
    if (late != 0) {
        add_late<PACKED>(p, body, space, late, weight, sets);
    }
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

template <unsigned PACKED>
static void launch_add_symbols(const tg_gpu_pass *p, bool *is_early, const uint8_t *body, float weight, bool sets)
{
    if (tg_pass_has(p, PACKED)) {
        TG_LAUNCH_EARLY(add_symbols<PACKED>, *is_early, p->tile_n, THREADS, p->stream, *p, body, weight, sets);
        *is_early = false;
    }
}

extern "C" void tg_gpu_add_dense(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets)
{
    if (p->tile_n == 0) {
        return;
    }
    /* The kernel before has judged the body. Neither it nor the one before that writes to sums, and that one has begun after all before it
     * had ended; so sums, and where things are in the body, may be read early; but only by the kernel that follows it. */
    bool is_early = p->overlaps && p->sound != nullptr;
    if (tg_pass_has(p, TG_KIND_NONE)) {
        TG_LAUNCH_EARLY(add_plain, is_early, p->tile_n, THREADS, p->stream, *p, body, weight, sets != 0);
        is_early = false;
    }
    launch_add_symbols<TG_PACKED_BYTES>(p, &is_early, body, weight, sets != 0);
    launch_add_symbols<TG_PACKED_SIGNS>(p, &is_early, body, weight, sets != 0);
    launch_add_symbols<TG_PACKED_GROUPS>(p, &is_early, body, weight, sets != 0);
    launch_add_symbols<TG_PACKED_NUMBERS>(p, &is_early, body, weight, sets != 0);
    tg_launch_add_blocks(p, body, weight, sets != 0, false);
}
