/* Symbols of chunks of fixed length to the frame, leaf by leaf, and back: a warp makes or checks a leaf and hashes it. A lane makes 8
 * bytes at a time from the groups whose bits are in them; a group that two words share is computed for both. */
#include "exec/cuda/bits.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/leaf.h"
#include "exec/cuda/load.h"
#include "exec/cuda/quantize.h"
#include "exec/cuda/routes.h"

enum { WARPS = 4 };

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

/* The symbols of a chunk. */
typedef struct digits {
    const uint8_t *symbols;
    uint32_t count, base, group_n, bits;
    bool is_wide;
} digits;

TG_DEVICE uint32_t symbol_at(const digits &d, uint32_t i)
{
    return d.is_wide ? ((const uint16_t *)(const void *)d.symbols)[i] : d.symbols[i];
}

/* The number that a group is; 0 after the last one. */
TG_DEVICE uint64_t number_of(const digits &d, uint32_t group)
{
    uint32_t first = group * d.group_n;
    uint64_t number = 0;
    if (d.group_n == 1) {
        return first < d.count ? symbol_at(d, first) : 0;
    }
    for (uint32_t i = min(d.group_n, d.count > first ? d.count - first : 0u); i-- > 0;) {
        number = number * d.base + symbol_at(d, first + i);
    }
    return number;
}

/* Eight symbols of a bit, as a byte, from a word of bytes that are 0 or 1. */
TG_DEVICE uint64_t gather_bits(uint64_t bytes)
{
    return bytes * 0x0102040810204080ull >> 56;
}

/* Bytes `at` to at + 7 of the packed symbols. */
TG_DEVICE uint64_t pack_word(const digits &d, uint32_t at)
{
    uint64_t word = 0, bit = (uint64_t)at * 8;
    bool is_inside = at * 8u / d.bits * d.group_n + 64 * d.group_n <= d.count;
    if (d.bits == 8 && d.group_n == 1 && is_inside) {
        return tg_load64(d.symbols + at);
    }
    if (d.bits == 1 && is_inside) {
        TG_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            word |= gather_bits(tg_load64(d.symbols + (uint32_t)bit + 8 * i)) << 8 * i;
        }
        return word;
    }
    uint32_t group = (uint32_t)(bit / d.bits), skipped = (uint32_t)(bit - (uint64_t)group * d.bits);
    word = number_of(d, group++) >> skipped;
    for (uint32_t filled = d.bits - skipped; filled < 64; filled += d.bits) {
        word |= number_of(d, group++) << filled;
    }
    return word;
}

/* The leaf of a chunk of symbols: what travels beside them, which is in the frame already, and their bits. */
TG_DEVICE void pack_leaf(uint4 *leaf, const tg_gpu_chunk &chunk, const digits &d, const uint8_t *out, uint32_t from, uint32_t len)
{
    uint8_t *bytes = (uint8_t *)(void *)leaf;
    uint32_t side = chunk.side_len > from ? min(chunk.side_len - from, len) : 0, lane = threadIdx.x % TG_WARP;
    for (uint32_t i = lane; i < side; i += TG_WARP) {
        bytes[i] = out[from + i];
    }
    /* words are counted from the first symbol on, so that the first and the last one may lie across the leaf's ends */
    uint32_t place = from + side - chunk.side_len, end = from + len - chunk.side_len;
    bool is_aligned = (side - place) % 4 == 0;
    for (uint32_t at = place / 8 * 8 + 8 * lane; side < len && at < end; at += 8 * TG_WARP) {
        uint64_t word = pack_word(d, at);
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

__global__ static void __launch_bounds__(WARPS *TG_WARP) pack_leaves(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaves[WARPS][TG_LEAF_VECTORS];
    uint32_t warp = threadIdx.x / TG_WARP, i = blockIdx.x * WARPS + warp;
    if (i >= p.leaf_n) {
        return;
    }
    const tg_gpu_leaf at = p.leaves[i];
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[chunk.unit];
    if (u.plain_len != 0 || tg_rounds_leaves(p, u)) {
        return;
    }
    uint8_t *out = p.space.out[at.chunk];
    digits d = {p.space.symbols + 2 * chunk.element_at, chunk.n, u.base, u.group_n, u.group_bits, u.base > 256};
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    pack_leaf(leaves[warp], chunk, d, out, from, len);
    tg_leaf_end(hashes + (uint64_t)(at.chunk - p.first) * leaf_cap + at.number, out + from, leaves[warp], len);
}

void tg_gpu_pack_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    tg_launch_round_leaves(p, hashes, leaf_cap);
    tg_launch_use_signs(p, hashes, leaf_cap);
    if ((p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        TG_LAUNCH(pack_leaves, (p->leaf_n + WARPS - 1) / WARPS, WARPS * TG_WARP, p->stream, *p, hashes, leaf_cap);
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
