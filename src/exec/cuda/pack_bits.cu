/* Symbols at their plain width (pack/bits.c) on the GPU: written, checked and read. Eight groups fill whole bytes, so a thread
 * takes eight groups at a time, an octet, and a block takes a tile of octets, which it stages in shared memory. */
#include "exec/cuda/pack.h"

enum { THREADS = 256, TILE_GROUPS = TG_PACK_TILE, WIDEST = 9 /* bits of a symbol, of base 512 */ };

/* Symbols, of up to 2 bytes, and bytes of a tile. */
enum { SYMBOLS_LEN = 2 * TG_PACK_TILE, BYTES_LEN = TG_PACK_TILE / 8 * WIDEST };

/* ---- geometry ----------------------------------------------------------------------------------------------------------- */

/* The octets of a chunk that one tile has, and where they are. */
typedef struct octets {
    uint32_t count;       /* symbols of the tile */
    uint32_t symbol, len; /* the first of them; bytes of the tile */
    uint32_t byte;        /* the first */
    bool is_last;
} octets;

TG_DEVICE uint32_t symbols_of_tile(const tg_gpu_unit &u)
{
    return TILE_GROUPS / 8 / u.group_n * 8 * u.group_n;
}

TG_DEVICE octets octets_of(const tg_gpu_unit &u, uint32_t count, uint32_t tile)
{
    uint32_t most = symbols_of_tile(u);
    octets t;
    t.symbol = tile * most;
    t.is_last = count - t.symbol <= most;
    t.count = t.is_last ? count - t.symbol : most;
    t.byte = t.symbol / u.group_n / 8 * u.group_bits;
    t.len = ((t.count + u.group_n - 1) / u.group_n * u.group_bits + 7) / 8;
    return t;
}

TG_DEVICE uint32_t tile_n_of(const tg_gpu_unit &u, uint32_t count)
{
    uint32_t most = symbols_of_tile(u);
    return (count + most - 1) / most;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

/* Packs one octet, of which `count` symbols are there; returns nothing after the last byte that they take. */
template <class Symbol, class Number>
TG_DEVICE void pack_octet(uint8_t *bytes, const Symbol *symbols, uint32_t count, const tg_gpu_unit &u)
{
    uint64_t held = 0;
    uint32_t held_n = 0, group_n = u.group_n, bits = u.group_bits, base = u.base;
    for (uint32_t at = 0; at < count; at += group_n) {
        Number number = 0;
        for (uint32_t i = min(group_n, count - at); i-- > 0;) {
            number = number * base + symbols[at + i];
        }
        held |= (uint64_t)number << held_n;
        for (held_n += bits; held_n >= 8; held_n -= 8, held >>= 8) {
            *bytes++ = (uint8_t)held;
        }
    }
    if (held_n > 0) {
        *bytes = (uint8_t)held;
    }
}

template <class Symbol>
TG_DEVICE void pack_tile(uint8_t *bytes, const Symbol *symbols, uint32_t count, const tg_gpu_unit &u)
{
    uint32_t octet = 8 * u.group_n;
    for (uint32_t i = threadIdx.x; i * octet < count; i += THREADS) {
        uint32_t n = min(octet, count - i * octet);
        if (u.group_bits <= 32) {
            pack_octet<Symbol, uint32_t>(bytes + i * u.group_bits, symbols + i * octet, n, u);
        } else {
            pack_octet<Symbol, uint64_t>(bytes + i * u.group_bits, symbols + i * octet, n, u);
        }
    }
}

/* Copies a share of `len` bytes from one alignment to another. Up to 3 bytes before and after them are read. */
TG_DEVICE void copy_share(uint8_t *to, const uint8_t *from, uint32_t len, uint32_t tile, uint32_t tiles)
{
    uint32_t place = tg_place_of(to), end = place + len;
    for (uint32_t v = tile * THREADS + threadIdx.x; v * 16 < end; v += tiles * THREADS) {
        if (v * 16 >= place && v * 16 + 16 <= end) {
            *(uint4 *)(void *)(to - place + v * 16) = tg_load_vector(from - place + v * 16);
        } else {
            for (uint32_t b = max(v * 16, place); b < min(v * 16 + 16, end); b++) {
                (to - place)[b] = (from - place)[b];
            }
        }
    }
}

TG_DEVICE void write_tiles(uint8_t *out, const tg_pack_job &j, uint32_t tile, uint32_t tiles, uint4 *symbols,
                           uint4 *bytes)
{
    const tg_gpu_unit &u = *j.unit;
    for (; tile < tile_n_of(u, j.count); tile += tiles) {
        octets t = octets_of(u, j.count, tile);
        const uint8_t *from = j.symbols + t.symbol * (j.is_wide ? 2u : 1u);
        uint8_t *to = (uint8_t *)bytes + tg_place_of(out + t.byte);
        tg_stage_in(symbols, from, t.count * (j.is_wide ? 2u : 1u));
        __syncthreads();
        const uint8_t *staged = (const uint8_t *)symbols + tg_place_of(from);
        if (j.is_wide) {
            pack_tile(to, (const uint16_t *)(const void *)staged, t.count, u);
        } else {
            pack_tile(to, staged, t.count, u);
        }
        __syncthreads();
        tg_stage_out(out + t.byte, bytes, t.len);
        __syncthreads();
    }
}

/* ---- parts of coded chunks ------------------------------------------------------------------------------------------------- */

/* Where parts go: bytes before each, and of all. */
typedef struct part_space {
    uint32_t before[TG_PACK_PARTS];
    uint32_t all;
} part_space;

/* All threads sum the lengths of parts. Synchronises. */
TG_DEVICE void sum_parts(part_space *s, const tg_pack_code &c)
{
    uint32_t i = threadIdx.x, all = 0, before = tg_sum_before_in_block(i < c.part_n ? c.part_len[i] : 0, &all);
    s->before[i] = before;
    s->all = all;
    __syncthreads();
}
static_assert((int)THREADS == (int)TG_PACK_PARTS, "a thread a part");

TG_DEVICE uint32_t lengths_len(const tg_pack_code &c)
{
    return c.part_n == 0 ? 0 : 2 * (c.part_n - 1);
}

/* Streams of prefix codes are copied by warps, each with a place in shared memory: they begin at whole vectors. */
TG_DEVICE void write_streams(uint8_t *out, const part_space &parts, const tg_pack_scratch &s, uint32_t tile,
                             uint32_t tiles, uint4 *shared)
{
    const uint32_t warps = THREADS / TG_WARP, vectors = SYMBOLS_LEN / 16 / warps, warp = threadIdx.x / TG_WARP;
    static_assert(SYMBOLS_LEN / (THREADS / 32) >= 2 * TG_PACK_STREAM_WORDS, "a stream has its place");
    uint4 *own = shared + warp * vectors;
    for (uint32_t part = tile * warps + warp; part < s.code->part_n; part += tiles * warps) {
        uint32_t len = s.code->part_len[part];
        const uint4 *from = (const uint4 *)(const void *)(s.words + part * TG_PACK_STREAM_WORDS);
        for (uint32_t i = tg_lane(); 16 * i < len; i += TG_WARP) {
            own[i] = from[i];
        }
        __syncwarp();
        tg_copy_by(out + lengths_len(*s.code) + parts.before[part], (const uint8_t *)own, len, tg_lane(), TG_WARP);
        if (tg_lane() == 0 && part + 1 < s.code->part_n) {
            tg_store_bytes(out + 2 * part, len, 2);
        }
        __syncwarp();
    }
}

/* Copies `len` bytes from one alignment to another, many vectors at a time. A warp. Up to 3 bytes before and after them are read. */
TG_DEVICE void copy_segment(uint8_t *to, const uint8_t *from, uint32_t len)
{
    enum { AT_ONCE = 4 };
    uint32_t place = tg_place_of(to), end = place + len, whole = end / 16, head = place > 0 ? min(16u, end) : 0;
    uint8_t *start = to - place;
    const uint8_t *source = from - place;
    for (uint32_t b = place + tg_lane(); b < head; b += TG_WARP) {
        start[b] = source[b];
    }
    for (uint32_t b = max(head, whole * 16) + tg_lane(); b < end; b += TG_WARP) {
        start[b] = source[b];
    }
    TG_ROLL
    for (uint32_t v = tg_lane() + head / 16; v < whole; v += AT_ONCE * TG_WARP) {
        uint4 some[AT_ONCE];
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            some[k] = tg_load_vector(source + 16 * min(v + k * TG_WARP, whole - 1));
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            ((uint4 *)(void *)start)[min(v + k * TG_WARP, whole - 1)] = some[k];
        }
    }
}

/* Segments of rANS, by warps, each of which takes a slice of one: there are few segments. */
TG_DEVICE void write_segments(uint8_t *out, const part_space &parts, const tg_pack_scratch &s, uint32_t count,
                              uint32_t tile, uint32_t tiles)
{
    enum { SLICES = 4 };
    const uint32_t warps = THREADS / TG_WARP, warp = threadIdx.x / TG_WARP;
    const tg_pack_code &c = *s.code;
    for (uint32_t i = tile + warp * tiles; i < SLICES * c.part_n; i += tiles * warps) {
        uint32_t part = i / SLICES, slice = i % SLICES, len = c.part_len[part];
        const uint8_t *from = (const uint8_t *)(tg_pack_segment_end(s, c, count, part) - len / 2);
        uint8_t *to = out + lengths_len(c) + parts.before[part];
        uint32_t each = (len / SLICES + 16) & ~15u, place = tg_place_of(to); /* slices begin at whole vectors */
        uint32_t lo = slice == 0 ? 0 : min(slice * each - place, len);
        uint32_t hi = slice + 1 == SLICES ? len : min((slice + 1) * each - place, len);
        if (lo < hi) {
            copy_segment(to + lo, from + lo, hi - lo);
        }
        if (tg_lane() == 0 && slice == 0 && part + 1 < c.part_n) {
            tg_store_bytes(out + 2 * part, len / 2 - c.lane_n, 2);
        }
    }
}

/* A block a tile: plain forms, and the parts of coded chunks, which their coder left in scratch. */
__global__ static void __launch_bounds__(THREADS, 6)
    place_tiles(tg_gpu_pass p, uint8_t *scratch, uint32_t what, uint32_t share)
{
    __shared__ uint4 symbols[SYMBOLS_LEN / 16 + 2], bytes[BYTES_LEN / 16 + 1];
    __shared__ part_space parts;
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_share_job_of(&j, &tile, &tiles, p, scratch, what, share)) {
        return;
    }
    uint32_t chunk = j.chunk;
    tg_view *v = &p.space.views[chunk];
    uint8_t *out = p.space.out[chunk] + v->symbols;
    tg_pack_scratch s = tg_pack_scratch_of(p, scratch, chunk);
    uint32_t len = j.plain_len, form = 0;
    if (j.is_coded && s.code->is_coded != 0) {
        sum_parts(&parts, *s.code);
        uint32_t coded_len = 1 + j.lower_len + s.code->head_len + lengths_len(*s.code) + parts.all;
        form = coded_len <= len ? s.code->form : 0;
        len = form != 0 ? coded_len : len;
    }
    if (form != 0 && j.unit->symbol == TG_GPU_HUFFMAN) {
        write_streams(out + 1 + s.code->head_len, parts, s, tile, tiles, symbols);
    } else if (form != 0) {
        write_segments(out + 1 + j.lower_len + s.code->head_len, parts, s, j.count, tile, tiles);
    } else if (what == TG_PACK_WORDS) {
        copy_share(out + 1, j.words, len++, tile, tiles);
    } else {
        write_tiles(out + (j.is_coded ? 1 : 0), j, tile, tiles, symbols, bytes);
        len += j.is_coded ? 1 : 0;
    }
    if (tile == 0 && threadIdx.x == 0) {
        v->indices = v->symbols + len;
        if (j.is_coded) {
            out[0] = (uint8_t)form;
        }
    }
}

void tg_pack_place(const tg_gpu_pass *p, uint8_t *scratch, uint32_t what)
{
    uint32_t share = tg_pack_share(p);
    TG_LAUNCH_EARLY(place_tiles, p->overlaps, share == 0 ? p->tile_n : p->chunk_n * share, THREADS, p->stream, *p, scratch,
                    what, share);
}

/* ---- checking and reading ---------------------------------------------------------------------------------------------------- */

/* The bytes of a tile and the symbols that they become. */
typedef struct reading {
    const uint8_t *bytes;
    uint8_t *symbols; /* NULL: the bytes are only checked */
    uint32_t count;
    bool is_wide;
} reading;

TG_DEVICE void put_digits(const reading &r, uint32_t at, uint32_t n, uint64_t number, uint32_t base)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t digit = 0;
        if (number >> 32 == 0) {
            digit = (uint32_t)number % base;
            number = (uint32_t)number / base;
        } else {
            digit = (uint32_t)(number % base);
            number /= base;
        }
        if (r.is_wide) {
            ((uint16_t *)(void *)r.symbols)[at + i] = (uint16_t)digit;
        } else {
            r.symbols[at + i] = (uint8_t)digit;
        }
    }
}

/* Whether the groups of one octet are sound, and only zeros follow the last one of the chunk; their symbols. */
TG_DEVICE bool read_octet(const reading &r, uint32_t octet, const tg_gpu_unit &u, uint64_t limit)
{
    uint32_t first = octet * 8 * u.group_n, count = min(8 * u.group_n, r.count - first), held_n = 0, bad = 0;
    const uint8_t *at = r.bytes + octet * u.group_bits;
    uint64_t held = 0;
    for (uint32_t done = 0; done < count; done += u.group_n) {
        for (; held_n < u.group_bits; held_n += 8) {
            held |= (uint64_t)*at++ << held_n;
        }
        uint32_t n = min(u.group_n, count - done);
        for (uint32_t i = n; i < u.group_n; i++) {
            limit /= u.base; /* symbols that the last group lacks are zeros */
        }
        uint64_t number = held & ((1ull << u.group_bits) - 1);
        bad |= number >= limit ? 1u : 0u;
        if (r.symbols != nullptr) {
            put_digits(r, first + done, n, number, u.base);
        }
        held >>= u.group_bits;
        held_n -= u.group_bits;
    }
    return bad == 0 && held == 0;
}

/* Reads the tiles of a chunk, to `to` unless that is NULL. Returns whether those of this thread are sound. */
TG_DEVICE bool read_tiles(uint8_t *to, const uint8_t *from, uint32_t count, const tg_gpu_unit &u, uint32_t tile,
                          uint32_t tiles, uint4 *symbols, uint4 *bytes)
{
    uint32_t symbol_len = u.base > 256 ? 2 : 1;
    uint64_t limit = 1;
    for (uint32_t i = 0; i < u.group_n; i++) {
        limit *= u.base;
    }
    bool sound = true, checks_last = to == nullptr && limit >> u.group_bits != 0; /* any number is one of them */
    for (; tile < tile_n_of(u, count); tile += tiles) {
        octets t = octets_of(u, count, tile);
        if (checks_last && !t.is_last) {
            continue;
        }
        tg_stage_in(bytes, from + t.byte, t.len);
        __syncthreads();
        uint8_t *place = to == nullptr ? nullptr : to + t.symbol * symbol_len;
        reading r = {(const uint8_t *)bytes + tg_place_of(from + t.byte),
                     to == nullptr ? nullptr : (uint8_t *)symbols + tg_place_of(place), t.count, symbol_len == 2};
        for (uint32_t i = threadIdx.x; i * 8 * u.group_n < t.count; i += THREADS) {
            sound = read_octet(r, i, u, limit) && sound;
        }
        __syncthreads();
        if (to != nullptr) {
            tg_stage_out(place, symbols, t.count * symbol_len);
        }
    }
    return sound;
}

/* A block a tile: bits, and plain forms of coded chunks. Also refuses chunks that have no form at all. */
__global__ static void __launch_bounds__(THREADS)
    read_plain(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch, uint32_t what, uint32_t share)
{
    __shared__ uint4 symbols[SYMBOLS_LEN / 16 + 1], bytes[BYTES_LEN / 16 + 1];
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_share_job_of(&j, &tile, &tiles, p, scratch, what, share) || p.space.views[j.chunk].is_joint) {
        return;
    }
    uint32_t chunk = j.chunk;
    const tg_view *v = &p.space.views[chunk];
    const uint8_t *from = body + v->symbols;
    uint64_t len = v->indices - v->symbols, expected = j.plain_len;
    if (j.is_coded && len > 0) {
        if (from[0] != 0) {
            return;
        }
        from++;
        expected++;
    }
    if (len != expected) {
        tg_refuse_chunk(p, chunk);
        return;
    }
    bool reads = j.is_coded || j.unit->coordinates != 0;
    uint8_t *to = reads ? (uint8_t *)j.symbols : nullptr;
    if (!read_tiles(to, from, j.count, *j.unit, tile, tiles, symbols, bytes)) {
        tg_refuse_chunk(p, chunk);
    }
}

void tg_pack_read_plain(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch, uint32_t what)
{
    uint32_t share = tg_pack_share(p);
    TG_LAUNCH_EARLY(read_plain, p->overlaps, share == 0 ? p->tile_n : p->chunk_n * share, THREADS, p->stream, *p, body,
                    scratch, what, share);
}
