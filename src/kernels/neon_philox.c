/* Random draws for NEON: Philox4x32-7 (base/philox.h). */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "base/philox.h"
#include "kernels/scalar.h"

/* Four blocks, one per lane: word[w] holds their words number w. */
typedef uint32x4x4_t blocks;

/* The products of four words and a factor: the lower and the upper halves. */
TG_NEON_INLINE uint32x4x2_t multiply(uint32x4_t words, uint32_t factor)
{
    const uint32x4_t factors = vdupq_n_u32(factor);
    uint64x2_t front = vmull_u32(vget_low_u32(words), vget_low_u32(factors)), back = vmull_high_u32(words, factors);
    return vuzpq_u32(vreinterpretq_u32_u64(front), vreinterpretq_u32_u64(back));
}

TG_NEON_INLINE blocks next_round(blocks b, uint32x4_t key0, uint32x4_t key1)
{
    uint32x4x2_t p0 = multiply(b.val[0], 0xD2511F53), p1 = multiply(b.val[2], 0xCD9E8D57);
    return (blocks){{veorq_u32(p1.val[1], veorq_u32(b.val[1], key0)), p1.val[0],
                     veorq_u32(p0.val[1], veorq_u32(b.val[3], key1)), p0.val[0]}};
}

/* Blocks from number `first` on. */
TG_NEON_INLINE blocks start(uint64_t first, uint32_t other)
{
    static const uint64_t places[2] = {0, 1};
    uint64x2_t front = vaddq_u64(vdupq_n_u64(first), vld1q_u64(places)), back = vaddq_u64(front, vdupq_n_u64(2));
    uint32x4x2_t counter = vuzpq_u32(vreinterpretq_u32_u64(front), vreinterpretq_u32_u64(back));
    return (blocks){{counter.val[0], counter.val[1], vdupq_n_u32(TG_HALF_UPPER), vdupq_n_u32(other)}};
}

/* Two sets of four blocks are interleaved to hide the latency of the multiplications. */
void tg_neon_draw(uint16_t *upper, uint64_t key, uint64_t block, uint32_t other, size_t block_n, const void *prefetch)
{
    enum { EACH = 4, TWO = 2 * EACH, LINE = 64, VALUES_LEN = TWO * TG_HALVES * sizeof(float) };
    const char *values = prefetch;
    uint32x4_t key0[TG_PHILOX_ROUNDS], key1[TG_PHILOX_ROUNDS];
    for (uint32_t round = 0; round < TG_PHILOX_ROUNDS; round++) {
        key0[round] = vdupq_n_u32((uint32_t)key + round * UINT32_C(0x9E3779B9));
        key1[round] = vdupq_n_u32((uint32_t)(key >> 32) + round * UINT32_C(0xBB67AE85));
    }
    size_t done = 0;
    for (; block_n - done >= TWO; done += TWO, values += VALUES_LEN) {
        blocks a = start(block + done, other), b = start(block + done + EACH, other);
        for (int round = 0; round < TG_PHILOX_ROUNDS; round++) {
            a = next_round(a, key0[round], key1[round]);
            b = next_round(b, key0[round], key1[round]);
        }
        for (size_t at = 0; at < VALUES_LEN; at += LINE) {
            __builtin_prefetch(values + at);
        }
        /* Words in turn, which is block after block. A word is two draws, the lower half first. */
        vst4q_u32((uint32_t *)(void *)(upper + TG_HALVES * done), a);
        vst4q_u32((uint32_t *)(void *)(upper + TG_HALVES * (done + EACH)), b);
    }
    tg_scalar_draw(upper + TG_HALVES * done, key, block + done, other, block_n - done, values);
}
#endif
