/* Symbols of chunks of fixed length to the frame, leaf by leaf, and back. A block makes a leaf: a warp copies the symbols of 256 bytes to
 * shared memory, and each lane makes 8 of these bytes from the groups whose bits are in them; a group that two words share is computed
 * for both. One warp then hashes the leaf. When a frame is checked, a warp takes a leaf. */
#include "exec/cuda/bits.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/load.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/routes.h"

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

enum {
    PACKERS = 8,             /* warps of a block */
    ROUND = 8 * 32,          /* bytes that a warp packs at a time ... */
    STAGE = ROUND * 8 / 16 + 6 /* ... from up to so many vectors of symbols: at least a bit each, and those of groups at the ends */
};

/* The symbols of a chunk. */
typedef struct digits {
    const uint8_t *symbols;
    uint32_t count, base, group_n, bits;
    uint32_t width; /* of a symbol in memory: 1 or 2 bytes */
} digits;

/* Copies `n` symbols from number `first` on, with zeros after the last one. Returns where the first one is. By a warp. */
TG_DEVICE const uint8_t *stage_symbols(uint4 *stage, const digits &d, uint32_t first, uint32_t n)
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

/* The number that up to four symbols of less than 9 bits are. */
TG_DEVICE uint32_t few_digits(const uint8_t *symbols, uint32_t n, uint32_t base)
{
    uint32_t number = 0;
    TG_UNROLL
    for (uint32_t i = 4; i-- > 0;) {
        number = i < n ? number * base + symbols[i] : number;
    }
    return number;
}

/* The number that the group is that begins with a symbol. */
TG_DEVICE uint64_t number_of(const digits &d, const uint8_t *at)
{
    if (d.width == 1) {
        uint32_t low = few_digits(at, min(d.group_n, 4u), d.base);
        uint32_t unit = d.base * d.base;
        return d.group_n <= 4 ? low : low + (uint64_t)(unit * unit) * few_digits(at + 4, d.group_n - 4, d.base);
    }
    const uint16_t *symbols = (const uint16_t *)(const void *)at;
    uint64_t number = 0;
    for (uint32_t i = d.group_n; i-- > 0;) {
        number = number * d.base + symbols[i];
    }
    return number;
}

/* Eight symbols of a bit, as a byte, from a word of bytes that are 0 or 1. */
TG_DEVICE uint64_t gather_bits(uint64_t bytes)
{
    return bytes * 0x0102040810204080ull >> 56;
}

/* Eight bytes of five symbols of base 3 each. */
TG_DEVICE uint64_t pack_ternary(const uint8_t *symbols)
{
    uint32_t shift = (uint32_t)((uintptr_t)symbols % 4) * 8, bytes[8], words[11];
    const uint32_t *aligned = (const uint32_t *)(const void *)(symbols - shift / 8);
    TG_UNROLL
    for (int i = 0; i < 11; i++) {
        words[i] = aligned[i];
    }
    TG_UNROLL
    for (int i = 0; i < 10; i++) {
        words[i] = __funnelshift_r(words[i], words[i + 1], shift);
    }
    TG_UNROLL
    for (int i = 0; i < 2; i++) { /* 1, 3, 9, 27 and 81 times the symbols of a group, wherever they are in words */
        const uint32_t *w = words + 5 * i;
        bytes[4 * i] = __dp4a(w[1], 0x00000051u, __dp4a(w[0], 0x1b090301u, 0u));
        bytes[4 * i + 1] = __dp4a(w[2], 0x0000511bu, __dp4a(w[1], 0x09030100u, 0u));
        bytes[4 * i + 2] = __dp4a(w[3], 0x00511b09u, __dp4a(w[2], 0x03010000u, 0u));
        bytes[4 * i + 3] = __dp4a(w[4], 0x511b0903u, __dp4a(w[3], 0x01000000u, 0u));
    }
    uint32_t low = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
    uint32_t high = bytes[4] | bytes[5] << 8 | bytes[6] << 16 | bytes[7] << 24;
    return low | (uint64_t)high << 32;
}

/* Bytes `at` to at + 7 of the packed symbols, those of this lane; the warp's begin with byte `first`. */
TG_DEVICE uint64_t pack_word(uint4 *stage, const digits &d, uint32_t first)
{
    uint32_t lane = threadIdx.x % TG_WARP, group = (uint32_t)((uint64_t)first * 8 / d.bits);
    uint32_t group_n = ROUND * 8 / d.bits + 2;
    const uint8_t *symbols = stage_symbols(stage, d, group * d.group_n, group_n * d.group_n);
    uint64_t word = 0;
    if (d.bits == 8 && d.group_n == 1) {
        return tg_load64(symbols + 8 * lane);
    }
    if (d.bits == 8 && d.group_n == 5 && d.base == 3) {
        return pack_ternary(symbols + 40 * lane);
    }
    if (d.bits == 1) {
        TG_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t byte = (i + lane) % 8; /* lanes take turns, so that they meet in few banks */
            word |= gather_bits(tg_load64(symbols + 64 * lane + 8 * byte)) << 8 * byte;
        }
        return word;
    }
    uint32_t bit = (uint32_t)((uint64_t)first * 8 - (uint64_t)group * d.bits) + 64 * lane;
    uint32_t mine = bit / d.bits, skipped = bit - mine * d.bits, len = d.group_n * d.width;
    symbols += mine * len;
    word = number_of(d, symbols) >> skipped;
    for (uint32_t filled = d.bits - skipped; filled < 64; filled += d.bits) {
        symbols += len;
        word |= number_of(d, symbols) << filled;
    }
    return word;
}

/* The leaf of a chunk of symbols: what travels beside them, which is in the frame already, and their bits. By a block. */
TG_DEVICE void pack_leaf(uint8_t *bytes, uint4 *stage, const tg_gpu_chunk &chunk, const digits &d, const uint8_t *out,
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
    const tg_gpu_leaf at = p.leaves[blockIdx.x];
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (u.plain_len != 0 || tg_rounds_leaves(p, u)) {
        return;
    }
    uint8_t *out = p.space.out[at.chunk];
    digits d = {p.space.symbols + 2 * chunk.element_at, chunk.n, u.base, u.group_n, u.group_bits, u.base > 256 ? 2u : 1u};
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    pack_leaf((uint8_t *)(void *)leaf, stages[threadIdx.x / TG_WARP], chunk, d, out, from, len);
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        tg_leaf_end(hashes + (uint64_t)(at.chunk - p.first) * leaf_cap + at.number, out + from, leaf, len);
    }
}

void tg_gpu_pack_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    tg_launch_minifloat_leaves(p, hashes, leaf_cap);
    if ((p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        TG_LAUNCH(pack_leaves, p->leaf_n, PACKERS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
}

/* ---- checking ------------------------------------------------------------------------------------------------------------ */

enum { WARPS = 4 };

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

/* Whether the groups that begin in bytes [from, end) of a chunk's symbols are sound, and only zeros follow the last one; by a warp. */
TG_DEVICE bool are_sound(const tg_gpu_unit &u, uint32_t count, const uint8_t *bytes, uint32_t from, uint32_t end)
{
    uint32_t groups = (count + u.group_n - 1) / u.group_n, lane = threadIdx.x % TG_WARP, bits = u.group_bits;
    uint32_t first = (uint32_t)(((uint64_t)from * 8 + bits - 1) / bits), to = (uint32_t)(((uint64_t)end * 8 + bits - 1) / bits);
    uint64_t limit = 1, last_limit = 1;
    for (uint32_t i = 0; i < u.group_n; i++) {
        limit *= u.base;
        last_limit *= i < count - (groups - 1) * u.group_n ? u.base : 1; /* symbols that the last group lacks are zeros */
    }
    bool sound = true, has_last = to >= groups;
    uint32_t unchecked = limit >> bits != 0 ? 1 : 0; /* any number is one of them */
    to = min(to, groups - 1);
    if (bits == 8 && unchecked == 0) {
        sound = are_below(bytes, first, to, (uint32_t)limit);
    } else {
        for (uint32_t g = first + lane; unchecked == 0 && g < to; g += TG_WARP) {
            uint64_t bit = (uint64_t)g * bits;
            sound = sound && tg_load_bits(bytes + bit / 8, (unsigned)(bit % 8), bits) < limit;
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

__global__ static void __launch_bounds__(WARPS *TG_WARP)
    check_leaves(tg_gpu_pass p, const uint8_t *body, uint64_t *hashes, uint32_t leaf_cap)
{
    uint32_t i = blockIdx.x * WARPS + threadIdx.x / TG_WARP;
    if (i >= p.leaf_n) {
        return;
    }
    const tg_gpu_leaf at = p.leaves[i];
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    const uint8_t *bytes = body + chunk.body_at;
    uint32_t from = at.number * TG_LEAF_BYTES, end = min(chunk.len, from + TG_LEAF_BYTES);
    uint64_t hash = tg_hash_leaf(bytes + from, end - from);
    if (threadIdx.x % TG_WARP == 0) {
        hashes[(uint64_t)(at.chunk - p.first) * leaf_cap + at.number] = hash;
    }
    uint32_t side = chunk.side_len;
    if (u.plain_len == 0 && end > side && !are_sound(u, chunk.n, bytes + side, max(from, side) - side, end - side)) {
        tg_refuse_chunk(p, at.chunk);
    }
}

void tg_gpu_check_leaves(const tg_gpu_pass *p, const uint8_t *body, uint64_t *hashes, uint32_t leaf_cap)
{
    TG_LAUNCH(check_leaves, (p->leaf_n + WARPS - 1) / WARPS, WARPS * TG_WARP, p->stream, *p, body, hashes, leaf_cap);
}
