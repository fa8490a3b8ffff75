/* Adds symbols of a body's dense chunks to sums, or sets them; add.cu has plain values.
 *
 * A block takes several tiles. While it adds one, it prepares the next: symbols are copied to shared memory, values of its buckets become a
 * table, sums are loaded. All that begins before it is known whether the frame is valid. NaNs are as CPUs give them (values.h); since one
 * that is among four shows in their results, it is looked for there alone. */
#include "exec/cuda/add.h"
#include "exec/cuda/bits.h"
#include "exec/cuda/plain_fours.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/values.h"

enum { THREADS = TG_FOURS_THREADS, FOUR = TG_FOUR, FOURS = TG_FOURS, SYMBOLS_MAX = 512 };

enum {
    WORKERS = THREADS / 32,        /* warps that add; one more prepares the tiles that come next */
    SHARE = TG_GPU_TILE / WORKERS, /* elements of a warp, side by side */
    AROUND = 8,                    /* digits of groups that begin before a share or end after it ... */
    EDGE = 48,                     /* ... and bytes of theirs, and of vectors that have them */
    FEW = 128,                     /* values that one warp computes while others add */
    BLOCKS = 4,                    /* that a multiprocessor runs at once */
    PARTS = 3                      /* that are known at a time: of this tile and the next two */
};

typedef struct tile_part {
    const tg_gpu_unit *u;
    float *out;             /* where elements are added four at a time; NULL: they are not */
    uint32_t at, n;         /* elements at to at + n of a chunk; n is 0 if this kernel adds nothing */
    const uint8_t *symbols; /* of the chunk, ... */
    uint32_t group_n, bits; /* ... packed so; unpacked ones one by one, in 8 or 16 bits */
    const uint8_t *side;    /* of the first bucket that is in the tile */
    uint32_t base, side_len;
    uint32_t first_bucket, rows; /* rows: buckets that are in the tile */
    uint32_t bucket_n, inverse;  /* of them, as that of the unit */
    uint32_t first_group;        /* of the tile, in the chunk */
    uint32_t groups;             /* that have symbols of the tile */
    bool has_table;              /* values of all symbols of its buckets are in a table: */
    uint32_t table;              /* its number, and ... */
    bool is_filled;              /* ... whether it was made for the tile before */
    uint64_t at_unit;            /* the first element in the unit */
} tile_part;

/* What a block has: of the tile that is added, and of those that follow. */
template <unsigned PACKED> struct tile_space {
    uint4 packed[2][((PACKED == TG_PACKED_NUMBERS ? 2 : 1) * TG_GPU_TILE + EDGE) /
                    16];         /* symbols, as they are in the body */
    float table[2][SYMBOLS_MAX]; /* values of buckets */
    uint32_t symbols[WORKERS][PACKED == TG_PACKED_GROUPS ? (SHARE + 2 * AROUND) / 4 : 1]; /* of groups, a byte each */
    tile_part parts[PARTS];
};

/* The first element of four number b of this thread, in the tile. */
TG_DEVICE uint32_t own_four(uint32_t b)
{
    return threadIdx.x / TG_WARP * SHARE + FOUR * (b * TG_WARP + threadIdx.x % TG_WARP);
}

/* The bucket of element i of the chunk. The inverse gives it or the one before it. */
TG_DEVICE uint32_t bucket_of(const tile_part &t, uint32_t i)
{
    uint32_t bucket = __umulhi(i, t.inverse);
    return bucket + (i - bucket * t.bucket_n >= t.bucket_n ? 1 : 0);
}

/* What is added of a tile, after `last`. What depends on the tile is loaded before anything is decided. One thread. */
template <unsigned PACKED>
TG_DEVICE tile_part find_part(const tg_gpu_pass &p, const uint8_t *body, const tg_gpu_tile &tile, const tile_part *last)
{
    const tg_gpu_unit &u = p.units[tile.unit];
    const tg_gpu_chunk &chunk = p.chunks[tile.chunk];
    const tg_view &view = p.space.views[tile.chunk];
    const uint32_t kinds = u.kinds, base = u.base, bucket_n = u.bucket_n, group_n = u.group_n, bits = u.group_bits;
    const uint32_t chunk_n = chunk.n, inverse = u.bucket_inverse, side_len = u.side_len;
    const uint64_t element_at = chunk.element_at, side = view.side, symbols = view.symbols;
    const bool is_coded = u.coded != 0, has_groups = PACKED == TG_PACKED_GROUPS || PACKED == TG_PACKED_NUMBERS;
    TG_LOADED(element_at);
    TG_LOADED(side);
    TG_LOADED(symbols);
    float *out = tg_sum_of_fours(p, u, tile);
    tile_part t;
    t.u = &u;
    t.at_unit = tile.at;
    t.at = tile.from;
    t.n = (kinds >> PACKED & 1) != 0 ? tile.n : 0;
    t.symbols = is_coded ? p.space.symbols + 2 * element_at : body + symbols;
    t.group_n = is_coded || !has_groups || t.n == 0 ? 1 : group_n; /* units of other kernels may have none */
    t.bits = !is_coded ? bits : base > 256 ? 16 : 8;
    t.base = base;
    t.side_len = side_len;
    t.bucket_n = bucket_n == 0 ? chunk_n : bucket_n;
    t.inverse = inverse;
    t.first_bucket = bucket_of(t, t.at);
    t.rows = bucket_of(t, t.at + tile.n - 1) + 1 - t.first_bucket;
    t.side = body + side + (uint64_t)t.first_bucket * side_len;
    t.first_group = t.group_n == 1 ? t.at : t.at / t.group_n;
    t.groups = t.group_n == 1 ? t.n : (t.at + t.n + t.group_n - 1) / t.group_n - t.first_group;
    t.has_table = t.rows * base <= SYMBOLS_MAX;
    bool has_fours = t.has_table && (t.rows == 1 || t.bucket_n % FOUR == 0); /* four side by side are in one bucket */
    t.out = has_fours && t.n >= FOUR && (PACKED != TG_PACKED_NUMBERS || t.group_n == 1) ? out : nullptr;
    bool is_same = last != nullptr && last->u == t.u && last->n > 0 && last->has_table && last->rows == t.rows &&
                   (side_len == 0 || last->side == t.side);
    t.is_filled = is_same;
    t.table = last == nullptr ? 0 : is_same ? last->table : 1 - last->table;
    return t;
}

/* 2^32 / base: exact for numbers whose product with the base is below 2^32. */
TG_DEVICE uint32_t inverse_of(const tg_gpu_unit &u)
{
    return (uint32_t)(u.inverse >> 32) + 1;
}

/* Decodes all symbols of the buckets, if there is a table: few of them by the last warp alone. */
TG_DEVICE void fill_table(const tile_part &t, float *table, float weight, bool sets)
{
    const uint32_t values = t.has_table && !t.is_filled && t.n > 0 ? t.rows * t.base : 0;
    const bool is_last = threadIdx.x >= THREADS;
    const uint32_t first = values > FEW ? threadIdx.x : is_last ? threadIdx.x - THREADS : values;
    TG_ROLL
    for (uint32_t i = first; i<values; i += values> FEW ? THREADS + TG_WARP : TG_WARP) {
        uint32_t row = __umulhi(i, inverse_of(*t.u));
        float value = tg_symbol_value(*t.u, t.side + (uint64_t)row * t.side_len, i - row * t.base);
        table[i] = sets ? value : tg_times(weight, value);
    }
}

/* The values of the bucket of element i of the tile. */
TG_DEVICE const float *row_of(const tile_part &t, const float *table, uint32_t i)
{
    return table + (bucket_of(t, t.at + i) - t.first_bucket) * t.base;
}

/* ---- packed symbols, in shared memory ------------------------------------------------------------------------------------------ */

/* The place of the first group in memory, in bits from an aligned vector on: they keep their place in vectors. */
TG_DEVICE uint32_t first_bit(const tile_part &t)
{
    return (uint32_t)((uintptr_t)t.symbols % 16 * 8) + t.first_group * t.bits;
}

/* Copies all words that have bits of the tile, asynchronously: vectors, and words before and after them. All threads that add call it. */
TG_DEVICE void copy_packed(uint4 *to, const tile_part &t)
{
    const uint32_t bit = first_bit(t), end = (bit + t.groups * t.bits + 31) / 32,
                   head = min((bit / 32 + 3) / 4 * 4, end);
    const uint4 *from = (const uint4 *)(const void *)(t.symbols - (uintptr_t)t.symbols % 16);
    uint32_t *words_to = (uint32_t *)(void *)(to - bit / 128);
    const uint32_t *words = (const uint32_t *)(const void *)from;
    to -= bit / 128;
    TG_ROLL
    for (uint32_t v = (head + 3) / 4 + threadIdx.x; v < end / 4; v += THREADS) {
        TG_COPY_ASYNC(to + v, from + v, 16);
    }
    if (threadIdx.x < 8) {
        uint32_t w = threadIdx.x % 4 + (threadIdx.x < 4 ? bit / 32 : max(head, end / 4 * 4));
        if (w < (threadIdx.x < 4 ? head : end)) {
            TG_COPY_ASYNC(words_to + w, words + w, 4);
        }
    }
}

/* Some bits of the copy, at most 48, from number `bit` on, as it is in memory. */
TG_DEVICE uint64_t bits_at(const uint4 *packed, uint32_t bit, uint32_t n)
{
    return tg_load_bits((const uint8_t *)(const void *)packed + bit / 8, bit % 8, n);
}

/* 64 bits from number `bit` on, some of which may be of nothing. */
TG_DEVICE uint64_t bits_of_words(const uint4 *packed, uint32_t bit)
{
    const uint32_t *words = (const uint32_t *)(const void *)packed + bit / 32;
    return __funnelshift_r(words[0], words[1], bit) | (uint64_t)__funnelshift_r(words[1], words[2], bit) << 32;
}

/* ---- groups ---------------------------------------------------------------------------------------------------------------- */

/* The first digits, at most N, of a number whose product with the base is below 2^32. */
template <uint32_t N, class Put>
TG_DEVICE void split_short(uint32_t number, uint32_t base, uint32_t inverse, uint32_t digits, Put put)
{
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
template <class Put> TG_DEVICE void split(uint64_t number, uint32_t base, uint64_t inverse, uint32_t digits, Put put)
{
    uint32_t k = 0;
    for (; k < digits && number * base >> 32 != 0; k++) {
        uint64_t rest = __umul64hi(number, inverse);
        put(k, (uint32_t)(number - rest * base));
        number = rest;
    }
    split_short<AROUND>((uint32_t)number, base, (uint32_t)(inverse >> 32) + 1, digits - k,
                        [k, put](uint32_t j, uint32_t digit) { put(k + j, digit); });
}

/* Of a number of up to 32 bits. Its quotient times the base is below 2^32. */
template <class Put>
TG_DEVICE void split_word(uint32_t number, uint32_t base, uint64_t inverse, uint32_t digits, Put put)
{
    const uint32_t upper = (uint32_t)(inverse >> 32);
    const uint32_t rest = (uint32_t)(((uint64_t)number * upper + __umulhi(number, (uint32_t)inverse)) >> 32);
    put(0, number - rest * base);
    split_short<AROUND - 1>(rest, base, upper + 1, digits - 1,
                            [put](uint32_t k, uint32_t digit) { put(k + 1, digit); });
}

/* Symbols of this warp's share to bytes, from groups of symbols below a base of at most 256. LEN: a group is a byte, of at most 5 symbols
 * (1), has up to 32 bits (4), or more (8). */
template <unsigned LEN> TG_DEVICE void unpack_groups(uint32_t *symbols, const uint4 *packed, const tile_part &t)
{
    const uint8_t *packed_bytes = (const uint8_t *)(const void *)packed;
    uint8_t *bytes = (uint8_t *)(void *)symbols + AROUND;
    const uint32_t own = threadIdx.x / TG_WARP * SHARE, group_n = t.group_n, bits = t.bits, from = first_bit(t) % 128;
    const uint32_t before = t.at - t.first_group * group_n + own, end = before + min(t.n - own, (uint32_t)SHARE);
    const uint32_t base = t.base;
    const uint64_t inverse = t.u->inverse;
    for (uint32_t g = before / group_n + threadIdx.x % TG_WARP; g * group_n < end; g += TG_WARP) {
        uint8_t *to = bytes + ((int32_t)(g * group_n) - (int32_t)before);
        auto put = [to](uint32_t k, uint32_t digit) { to[k] = (uint8_t)digit; };
        if (LEN == 1) {
            split_short<5>(packed_bytes[from / 8 + g], base, (uint32_t)(inverse >> 32) + 1, group_n, put);
        } else if (LEN == 4) {
            split_word((uint32_t)bits_of_words(packed, from + g * bits) & (0xffffffffu >> (32 - bits)), base, inverse,
                       group_n, put);
        } else {
            split(bits_at(packed, from + g * bits, bits), base, inverse, group_n, put);
        }
    }
    __syncwarp();
}

/* Nothing for symbols that are not in groups. */
template <unsigned PACKED>
TG_DEVICE void unpack_share(tile_space<PACKED> &space, const uint4 *packed, const tile_part &t)
{
    if (PACKED != TG_PACKED_GROUPS) {
        return;
    }
    uint32_t *symbols = space.symbols[threadIdx.x / TG_WARP];
    if (t.bits == 8) {
        unpack_groups<1>(symbols, packed, t);
    } else if (t.bits <= 32) {
        unpack_groups<4>(symbols, packed, t);
    } else {
        unpack_groups<8>(symbols, packed, t);
    }
}

/* ---- symbols one by one ---------------------------------------------------------------------------------------------------- */

/* The symbol of element i of the tile, one of this thread's. */
template <unsigned PACKED>
TG_DEVICE uint32_t symbol_at(const tile_part &t, const tile_space<PACKED> &space, const uint4 *packed, uint32_t i)
{
    uint32_t from = first_bit(t) % 128;
    if (PACKED == TG_PACKED_GROUPS) {
        return ((const uint8_t *)(const void *)space.symbols[threadIdx.x / TG_WARP])[AROUND + i % SHARE];
    }
    if (PACKED == TG_PACKED_NUMBERS && t.group_n > 1) {
        uint32_t g = (t.at + i) / t.group_n, symbol = 0, *last = &symbol;
        uint64_t number = bits_at(packed, from + (g - t.first_group) * t.bits, t.bits);
        split(number, t.base, t.u->inverse, t.at + i - g * t.group_n + 1,
              [last](uint32_t, uint32_t digit) { *last = digit; });
        return symbol;
    }
    return (uint32_t)bits_at(packed, from + i * t.bits, t.bits);
}

/* Adds the fours of a thread that `late` names, one bit each, element by element. */
template <unsigned PACKED>
TG_DEVICE void add_late(const tg_gpu_pass &p, const tile_part &t, const tile_space<PACKED> &space, const uint4 *packed,
                        uint32_t late, float weight, bool sets)
{
    const float *table = space.table[t.table];
    TG_ROLL
    for (uint32_t j = 0; j < FOURS * FOUR; j++) {
        uint32_t i = own_four(j / FOUR) + j % FOUR;
        if ((late >> j / FOUR & 1) == 0 || i >= t.n) {
            continue;
        }
        uint32_t symbol = symbol_at<PACKED>(t, space, packed, i);
        const uint8_t *side = t.side + (uint64_t)(bucket_of(t, t.at + i) - t.first_bucket) * t.side_len;
        float value = t.has_table ? row_of(t, table, i)[symbol] : tg_symbol_value(*t.u, side, symbol);
        value = t.has_table || sets ? value : tg_times(weight, value);
        float *to = tg_sum_at(p, *t.u, t.at_unit + i);
        *to = sets ? value : tg_plus(*to, value);
    }
}

/* ---- four symbols ---------------------------------------------------------------------------------------------------------- */

/* The four number b of a thread; in place of one that is not whole, the first four of all, or of the share: its sum is not used. */
TG_DEVICE uint32_t four_in(uint32_t b, uint32_t n)
{
    return own_four(b) + FOUR <= n ? own_four(b) : 0;
}

/* Sums of whole fours. One that is set begins with -0, which changes nothing that is added to it. */
TG_DEVICE void load_own_sums(float4 sum[FOURS], const float *out, uint32_t n, bool sets)
{
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        bool has = out != nullptr && !sets && own_four(b) + FOUR <= n;
        sum[b] =
            has ? __ldcs((const float4 *)(const void *)(out + own_four(b))) : make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    }
}

/* Four symbols from element i on, the first one lowest. `from`: the first bit of the tile in the copy. */
template <unsigned PACKED>
TG_DEVICE uint64_t four_at(const uint32_t *symbols, const uint4 *packed, uint32_t i, uint32_t from, uint32_t bits)
{
    if (PACKED == TG_PACKED_GROUPS) {
        return symbols[(AROUND + i % SHARE) / FOUR];
    }
    if (PACKED == TG_PACKED_BYTES) {
        const uint32_t *words = (const uint32_t *)(const void *)packed + from / 32 + i / FOUR;
        return __funnelshift_r(words[0], words[1], from);
    }
    if (PACKED == TG_PACKED_SIGNS) {
        uint32_t bit = from + i;
        return (uint32_t)((const uint8_t *)(const void *)packed)[bit / 8] >> bit % 8;
    }
    return bits_of_words(packed, from + i * bits);
}

template <unsigned PACKED> TG_DEVICE float4 values_of(uint64_t four, const float *row, uint32_t bits)
{
    if (PACKED == TG_PACKED_SIGNS) {
        float zero = row[0], one = row[1];
        return make_float4((four & 1) != 0 ? one : zero, (four & 2) != 0 ? one : zero, (four & 4) != 0 ? one : zero,
                           (four & 8) != 0 ? one : zero);
    }
    const uint32_t by = PACKED == TG_PACKED_NUMBERS ? bits : 8, mask = (1u << by) - 1;
    return make_float4(row[(uint32_t)four & mask], row[(uint32_t)(four >> by) & mask],
                       row[(uint32_t)(four >> 2 * by) & mask], row[(uint32_t)(four >> 3 * by) & mask]);
}

/* Adds the whole fours of a tile. Returns which ones are left, one bit each: those with a NaN, and what is not whole. HAS_ROWS: there is
 * more than one bucket. */
template <unsigned PACKED, bool HAS_ROWS>
TG_DEVICE uint32_t add_fours(const tile_part &t, const tile_space<PACKED> &space, const uint4 *packed,
                             const float4 sum[FOURS])
{
    const uint32_t from = first_bit(t) % 128, n = t.n, bits = t.bits;
    const float *table = space.table[t.table];
    float *out = t.out;
    uint32_t late = 0;
    TG_UNROLL
    for (uint32_t b = 0; b < FOURS; b++) {
        uint32_t i = four_in(b, n);
        const float4 s = sum[b];
        const float *row = HAS_ROWS ? row_of(t, table, i) : table;
        float4 v =
            values_of<PACKED>(four_at<PACKED>(space.symbols[threadIdx.x / TG_WARP], packed, i, from, bits), row, bits);
        v = make_float4(s.x + v.x, s.y + v.y, s.z + v.z, s.w + v.w);
        if (i == own_four(b) && !tg_has_nan(v)) {
            __stcs((float4 *)(void *)(out + i), v);
        } else {
            late |= 1u << b;
        }
    }
    return late;
}

/* Adds a tile whose symbols, sums and table are there. */
template <unsigned PACKED>
TG_DEVICE void add_part(const tg_gpu_pass &p, const tile_part &t, tile_space<PACKED> &space, const uint4 *packed,
                        const float4 sum[FOURS], float weight, bool sets)
{
    uint32_t late = (1u << FOURS) - 1;
    if (own_four(0) / SHARE * SHARE >= t.n) {
        return;
    }
    unpack_share<PACKED>(space, packed, t);
    if (t.out != nullptr) {
        late = t.rows > 1 ? add_fours<PACKED, true>(t, space, packed, sum)
                          : add_fours<PACKED, false>(t, space, packed, sum);
    }
    if (late != 0) {
        add_late<PACKED>(p, t, space, packed, late, weight, sets);
    }
}

/* A block has tiles side by side. While it adds one, symbols of the next are copied to shared memory, and the last warp makes the table of
 * the next and finds the part after it; sums of the next are loaded as soon as registers are free. All that begins before it is known
 * whether the frame is sound. Symbols are used only after that: those of a damaged frame may be out of the table's range. */
template <unsigned PACKED>
__global__ static void __launch_bounds__(THREADS + TG_WARP, BLOCKS)
    add_symbols(const __grid_constant__ tg_gpu_pass p, const uint8_t *body, float weight, bool sets)
{
    __shared__ tile_space<PACKED> space;
    const uint32_t each = p.tile_n / gridDim.x, more = p.tile_n % gridDim.x; /* so many blocks have one more */
    const uint32_t first = blockIdx.x * each + min(blockIdx.x, more);
    const int n = (int)(each + (blockIdx.x < more ? 1 : 0));
    const bool adds = threadIdx.x < THREADS, finds = threadIdx.x == THREADS;
    float4 sum[FOURS];
    tg_next_may_begin();
    if (finds) {
        space.parts[0] = find_part<PACKED>(p, body, p.tiles[first], nullptr);
    }
    __syncthreads();
    TG_ROLL
    for (int i = -1; i < n; i++) {
        const tile_part &next = space.parts[(uint32_t)(i + 1) % PARTS];
        const bool has_next = i + 1 < n;
        if (adds && has_next && next.n > 0) {
            copy_packed(space.packed[(i + 1) & 1], next);
            TG_COMMIT_COPIES();
        }
        if (adds && i >= 0) {
            add_part<PACKED>(p, space.parts[(uint32_t)i % PARTS], space, space.packed[i & 1], sum, weight, sets);
        }
        if (adds && has_next) {
            load_own_sums(sum, next.out, next.n, sets);
        }
        if (has_next) {
            fill_table(next, space.table[next.table], weight, sets);
        }
        if (finds && i + 2 < n) {
            space.parts[(uint32_t)(i + 2) % PARTS] =
                find_part<PACKED>(p, body, p.tiles[first + (uint32_t)(i + 2)], &next);
        }
        if (i < 0 && !tg_may_add(p)) {
            break;
        }
        TG_WAIT_COPIES(0);
        __syncthreads();
    }
    TG_WAIT_COPIES(0);
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

template <unsigned PACKED>
static void launch_packed(const tg_gpu_pass *p, bool *is_early, const uint8_t *body, float weight, bool sets)
{
    if (tg_pass_has(p, PACKED)) {
        const uint64_t blocks = (uint64_t)BLOCKS * p->processors;
        TG_LAUNCH_EARLY(add_symbols<PACKED>, *is_early, blocks < p->tile_n ? blocks : p->tile_n, THREADS + TG_WARP,
                        p->stream, *p, body, weight, sets);
        *is_early = false;
    }
}

void tg_launch_add_symbols(const tg_gpu_pass *p, bool *is_early, const uint8_t *body, float weight, bool sets)
{
    launch_packed<TG_PACKED_BYTES>(p, is_early, body, weight, sets);
    launch_packed<TG_PACKED_SIGNS>(p, is_early, body, weight, sets);
    launch_packed<TG_PACKED_GROUPS>(p, is_early, body, weight, sets);
    launch_packed<TG_PACKED_NUMBERS>(p, is_early, body, weight, sets);
}
