/* Natural compression on the GPU; see quantize/natural.c and tg_scalar_natural. */
#include "exec/cuda/quantize_warps.h"

struct natural {
    static constexpr unsigned KIND = TG_KIND_NATURAL;
    static constexpr bool DRAWS = true, CHECKS = false, IS_WIDE = true;
    static constexpr unsigned BLOCKS = 16;
    static __device__ __forceinline__ uint32_t number_len(const tg_gpu_unit &)
    {
        return 4;
    }
    template <class Team> __device__ __forceinline__ void fit(Team &, const tg_gpu_unit &)
    {
    }
    __device__ __forceinline__ void write(uint8_t *, uint32_t) const
    {
    }
    static __device__ __forceinline__ bool guesses()
    {
        return true;
    }
    static __device__ __forceinline__ tg_guess guess(float value)
    {
        uint32_t bits = __float_as_uint(value), exponent = bits >> 23;
        return {TG_PLACE + 1 + ((bits & 0x7fffffu) >> 7), exponent, exponent + ((exponent & 255u) < 254 ? 1 : 0)};
    }
    static __device__ __forceinline__ bool settle(float value, uint32_t bits)
    {
        return bits >> 9 < (__float_as_uint(value) & 0x7fffffu);
    }
    __device__ __forceinline__ float value(unsigned symbol) const
    {
        return __uint_as_float(symbol << 23);
    }
};

void tg_launch_natural(const tg_gpu_pass *p, bool is_sparse)
{
    if (is_sparse || p->leaves == nullptr || (p->packs & TG_GPU_PACKS_LEAVES) != 0) {
        tg_quantize_launch<natural>(p, is_sparse);
    }
}

/* ---- leaves of the frame -------------------------------------------------------------------------------------------------- */

enum {
    SYMBOL_BITS = 9,
    EIGHT = TG_DRAWS_EACH, /* values that a thread rounds at a time: their symbols are EIGHT_BYTES bytes */
    EIGHT_BYTES = EIGHT * SYMBOL_BITS / 8,
    WARPS = 4
};

/* Eight draws from number `at` on, which need not begin a block. */
TG_DEVICE uint4 draws_from(uint64_t key, uint64_t at, uint32_t other)
{
    const unsigned shift = (unsigned)(at % EIGHT);
    uint4 draws = tg_draw_block(key, at / EIGHT, TG_DRAWS_UPPER, other);
    if (shift != 0) {
        const uint4 next = tg_draw_block(key, at / EIGHT + 1, TG_DRAWS_UPPER, other);
        uint32_t words[4] = {0, 0, 0, 0};
        TG_UNROLL
        for (unsigned i = 0; i < EIGHT; i++) {
            unsigned from = i + shift;
            words[i / 2] |= (from < EIGHT ? tg_draw_of(draws, from) : tg_draw_of(next, from - EIGHT)) << i % 2 * 16;
        }
        draws = make_uint4(words[0], words[1], words[2], words[3]);
    }
    return draws;
}

/* Eight values that lie in place, side by side. */
TG_DEVICE void load_floats(uint32_t bits[EIGHT], const float *from)
{
    if ((uintptr_t)from % 16 == 0) {
        const uint4 low = ((const uint4 *)(const void *)from)[0], high = ((const uint4 *)(const void *)from)[1];
        bits[0] = low.x, bits[1] = low.y, bits[2] = low.z, bits[3] = low.w;
        bits[4] = high.x, bits[5] = high.y, bits[6] = high.z, bits[7] = high.w;
        return;
    }
    TG_UNROLL
    for (unsigned j = 0; j < EIGHT; j++) {
        bits[j] = __float_as_uint(from[j]);
    }
}

TG_DEVICE void load_halves(uint32_t bits[EIGHT], const uint16_t *from, bool is_bf16)
{
    TG_UNROLL
    for (unsigned j = 0; j < EIGHT; j++) {
        bits[j] = __float_as_uint(is_bf16 ? tg_bf16_to_float(from[j]) : tg_fp16_to_float(from[j]));
    }
}

/* Eight values of a bucket from number i on, 0 after its end. Returns their largest key. */
TG_DEVICE uint32_t load_eight(uint32_t bits[EIGHT], const tg_gpu_pass &p, const tg_gpu_bucket &b, uint32_t i)
{
    uint32_t most = TG_KEY_INF;
    if ((b.floats != nullptr || b.halves != nullptr) && i + EIGHT <= b.n) {
        if (b.floats != nullptr) {
            load_floats(bits, b.floats + i);
        } else {
            load_halves(bits, b.halves + i, b.is_bf16);
        }
        most = 0;
        TG_UNROLL
        for (unsigned j = 0; j < EIGHT; j++) {
            most = max(most, bits[j] & 0x7fffffffu);
        }
    }
    if (most >= TG_KEY_INF) { /* not all in place, or by the policy for NaN and Inf */
        most = 0;
        TG_ROLL
        for (unsigned j = 0; j < EIGHT; j++) {
            uint32_t value = i + j < b.n ? __float_as_uint(tg_bucket_element(p, b, i + j)) : 0;
            most = max(most, value & 0x7fffffffu);
            TG_UNROLL
            for (unsigned l = 0; l < EIGHT; l++) { /* bits stay in registers */
                bits[l] = l == j ? value : bits[l];
            }
        }
    }
    return most;
}

enum { LAST_POWER = 0x7f000000 }; /* of keys: values from it on do not round up */

/* The symbol of a value by all random bits. */
TG_CALLED uint32_t settle(uint32_t bits, uint64_t key, uint64_t at, uint32_t other)
{
    bool is_up = natural::settle(__uint_as_float(bits), tg_draw_bits(key, at, other));
    return (bits >> 23) + (is_up && (bits & 0x7fffffffu) < LAST_POWER ? 1 : 0);
}

/* Symbols of eight values, the largest key of which is `most`. */
TG_DEVICE void round_eight(uint32_t symbols[EIGHT], const uint32_t bits[EIGHT], uint32_t most, uint64_t key, uint64_t at, uint32_t other)
{
    const uint4 draws = draws_from(key, at, other);
    uint32_t open = most < LAST_POWER ? 1 : 0;
    TG_UNROLL
    for (unsigned j = 0; j < EIGHT; j++) {
        uint32_t lead = tg_draw_of(draws, j) - (bits[j] >> 7 & 0xffffu); /* below 0: it rounds up; 0: other bits decide */
        open = min(open, lead);
        symbols[j] = (bits[j] >> 23) + (lead >> 31);
    }
    if (open == 0) { /* about one of 65,536 values */
        TG_UNROLL
        for (unsigned j = 0; j < EIGHT; j++) {
            bool is_open = tg_draw_of(draws, j) == (bits[j] >> 7 & 0xffffu) || most >= LAST_POWER;
            symbols[j] = is_open ? settle(bits[j], key, at + j, other) : symbols[j];
        }
    }
}

/* Eight symbols to their bytes in shared memory, but for those outside the leaf of `len` bytes; `at` is the place of the first byte. */
TG_DEVICE void put_eight(uint8_t *leaf, const uint32_t symbols[EIGHT], int32_t at, uint32_t len)
{
    uint32_t words[3];
    words[0] = symbols[0] | symbols[1] << 9 | symbols[2] << 18 | symbols[3] << 27;
    words[1] = symbols[3] >> 5 | symbols[4] << 4 | symbols[5] << 13 | symbols[6] << 22 | symbols[7] << 31;
    words[2] = symbols[7] >> 1;
    bool is_inside = at >= 0 && (uint32_t)at + EIGHT_BYTES <= len;
    TG_UNROLL
    for (int i = 0; i < EIGHT_BYTES; i++) {
        if (is_inside || (uint32_t)(at + i) < len) {
            leaf[at + i] = (uint8_t)(words[i / 4] >> i % 4 * 8);
        }
    }
}

/* A block a leaf: eight values a thread to bytes in shared memory. Values share nothing, so any of them are a bucket. Eights that two leaves
 * share are rounded for both. */
__global__ static void __launch_bounds__(WARPS *TG_WARP, 8)
    natural_leaves(tg_gpu_pass p, uint64_t *hashes, uint32_t leaf_cap)
{
    __shared__ uint4 leaf[TG_LEAF_VECTORS];
    const tg_gpu_leaf at = p.leaves[blockIdx.x];
    tg_after_previous();
    tg_next_may_begin();
    const tg_gpu_chunk &chunk = p.chunks[at.chunk];
    const tg_gpu_unit &u = p.units[at.unit];
    if (tg_quantize_kind(u) != TG_KIND_NATURAL || !tg_unit_makes_leaves(u)) {
        return;
    }
    uint32_t from = at.number * TG_LEAF_BYTES, len = min(chunk.len - from, TG_LEAF_BYTES);
    uint32_t first = from / EIGHT_BYTES, end = (from + len + EIGHT_BYTES - 1) / EIGHT_BYTES;
    const tg_gpu_bucket b = tg_bucket_of(p, at.chunk, first * EIGHT, (end - first) * EIGHT, chunk.n);
    const uint64_t key = tg_stream_key(p.seed, tg_step_of(p), chunk.unit, p.rank + 1);
    TG_ROLL
    for (uint32_t i = threadIdx.x; i < end - first; i += WARPS * TG_WARP) {
        uint32_t bits[EIGHT], symbols[EIGHT];
        uint32_t most = load_eight(bits, p, b, i * EIGHT);
        round_eight(symbols, bits, most, key, b.at + i * EIGHT, p.is_answer);
        put_eight((uint8_t *)(void *)leaf, symbols, (int32_t)((first + i) * EIGHT_BYTES) - (int32_t)from, len);
    }
    __syncthreads();
    if (threadIdx.x < TG_WARP) {
        tg_leaf_end(hashes + (uint64_t)(at.chunk - p.first) * leaf_cap + at.number, p.space.out[at.chunk] + from, leaf, len);
    }
}

void tg_launch_natural_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap)
{
    if (p->chunk_n > 0 && tg_pass_has(p, TG_KIND_NATURAL)) {
        TG_LAUNCH_EARLY(natural_leaves, p->overlaps, p->leaf_n, WARPS * TG_WARP, p->stream, *p, hashes, leaf_cap);
    }
}
