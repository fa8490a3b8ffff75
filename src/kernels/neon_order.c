/* Order statistics of buckets for NEON. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/scalar.h"

#include <math.h>
#include <string.h>

void tg_neon_ends(float ends[2], const float *values, size_t n)
{
    enum { INTERLEAVED = 4 }; /* hides the latency of the comparisons */
    const float32x4_t first = vdupq_n_f32(values[0]);
    float32x4_t low[INTERLEAVED] = {first, first, first, first}, high[INTERLEAVED] = {first, first, first, first};
    size_t i = 0;
    for (; n - i >= 4 * INTERLEAVED; i += 4 * INTERLEAVED) {
        for (size_t k = 0; k < INTERLEAVED; k++) {
            float32x4_t some = vld1q_f32(values + i + 4 * k);
            low[k] = vminq_f32(low[k], some);
            high[k] = vmaxq_f32(high[k], some);
        }
    }
    ends[0] = vminvq_f32(vminq_f32(vminq_f32(low[0], low[1]), vminq_f32(low[2], low[3])));
    ends[1] = vmaxvq_f32(vmaxq_f32(vmaxq_f32(high[0], high[1]), vmaxq_f32(high[2], high[3])));
    for (; i < n; i++) {
        ends[0] = values[i] < ends[0] ? values[i] : ends[0];
        ends[1] = values[i] > ends[1] ? values[i] : ends[1];
    }
}

TG_NEON_INLINE uint64x2_t ways(float64x2_t values, float64x2_t high, float64x2_t scale)
{
    return vcvtq_u64_f64(vmulq_f64(vsubq_f64(high, values), scale));
}

uint64_t tg_neon_ways_up(const float *values, double high, double scale, size_t n)
{
    const float64x2_t top = vdupq_n_f64(high), factor = vdupq_n_f64(scale);
    uint64x2_t sums[2] = {vdupq_n_u64(0), vdupq_n_u64(0)};
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        float32x4_t front = vld1q_f32(values + i), back = vld1q_f32(values + i + 4);
        sums[0] = vaddq_u64(sums[0], ways(vcvt_f64_f32(vget_low_f32(front)), top, factor));
        sums[1] = vaddq_u64(sums[1], ways(vcvt_high_f64_f32(front), top, factor));
        sums[0] = vaddq_u64(sums[0], ways(vcvt_f64_f32(vget_low_f32(back)), top, factor));
        sums[1] = vaddq_u64(sums[1], ways(vcvt_high_f64_f32(back), top, factor));
    }
    return vaddvq_u64(vaddq_u64(sums[0], sums[1])) + tg_scalar_ways_up(values + i, high, scale, n - i);
}

/* ---- order statistics ---------------------------------------------------------------------------------------------------- */

/* For each mask of four floats a byte shuffle that moves the marked ones to the front, and their length in bytes. A mask counts in
 * steps of a row. */
typedef struct row {
    uint8_t shuffle[16];
    size_t len, unused;
} row;

#define FLOAT(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
static const row rows[16] = {
    {{0}, 0, 0},
    {{FLOAT(0)}, 4, 0},
    {{FLOAT(1)}, 4, 0},
    {{FLOAT(0), FLOAT(1)}, 8, 0},
    {{FLOAT(2)}, 4, 0},
    {{FLOAT(0), FLOAT(2)}, 8, 0},
    {{FLOAT(1), FLOAT(2)}, 8, 0},
    {{FLOAT(0), FLOAT(1), FLOAT(2)}, 12, 0},
    {{FLOAT(3)}, 4, 0},
    {{FLOAT(0), FLOAT(3)}, 8, 0},
    {{FLOAT(1), FLOAT(3)}, 8, 0},
    {{FLOAT(0), FLOAT(1), FLOAT(3)}, 12, 0},
    {{FLOAT(2), FLOAT(3)}, 8, 0},
    {{FLOAT(0), FLOAT(2), FLOAT(3)}, 12, 0},
    {{FLOAT(1), FLOAT(2), FLOAT(3)}, 12, 0},
    {{FLOAT(0), FLOAT(1), FLOAT(2), FLOAT(3)}, 16, 0},
};
static const uint32_t bits_of_lanes[4] = {sizeof(row), 2 * sizeof(row), 4 * sizeof(row), 8 * sizeof(row)};

/* Stores the marked ones of four values at `out`, where there is space for four; returns their end. */
TG_NEON_INLINE float *put_marked(float *out, uint32_t marked, float32x4_t values)
{
    const row *r = (const row *)(const void *)((const char *)rows + marked);
    uint8x16_t together = vqtbl1q_u8(vreinterpretq_u8_f32(values), vld1q_u8(r->shuffle));
    vst1q_f32(out, vreinterpretq_f32_u8(together));
    return (float *)(void *)((char *)out + r->len);
}

/* Copies the values in [low, high] in their order, and counts those below; returns the number copied. */
static size_t keep_between(float *out, size_t *below, const float *values, size_t n, float low, float high)
{
    const float32x4_t least = vdupq_n_f32(low), most = vdupq_n_f32(high);
    const uint32x4_t bits = vld1q_u32(bits_of_lanes);
    float *to = out;
    uint32x4_t reached_n = vdupq_n_u32(0); /* of fewer than 2^32 values, as a bucket has */
    size_t i = 0;
    for (; n - i >= 8; i += 8) { /* there is space, as no more are copied than were read */
        for (size_t k = 0; k < 8; k += 4) {
            float32x4_t some = vld1q_f32(values + i + k);
            uint32x4_t reached = vcgeq_f32(some, least), kept = vandq_u32(reached, vcleq_f32(some, most));
            reached_n = vsubq_u32(reached_n, reached);
            to = put_marked(to, vaddvq_u32(vandq_u32(kept, bits)), some);
        }
    }
    size_t under = i - vaddlvq_u32(reached_n);
    for (; i < n; i++) {
        under += values[i] < low ? 1 : 0;
        if (values[i] >= low && values[i] <= high) {
            *to++ = values[i];
        }
    }
    *below = under;
    return (size_t)(to - out);
}

enum { SAMPLE = 16, FEW = 32 };

/* Sorts SAMPLE values. The rank of each is found by comparing it with all; ties keep their order. */
static void sort_sample(float sorted[SAMPLE], const float *few)
{
    static const uint32_t places[4] = {0, 1, 2, 3};
    const float32x4_t all[4] = {vld1q_f32(few), vld1q_f32(few + 4), vld1q_f32(few + 8), vld1q_f32(few + 12)};
    const uint32x4_t lanes = vld1q_u32(places);
    uint32x4_t ranks[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    for (uint32_t j = 0; j < SAMPLE; j++) {
        const float32x4_t one = vld1q_dup_f32(few + j);
        for (uint32_t v = 0; v < 4; v++) { /* values after this one count it if they are equal, others do not */
            uint32x4_t after = vcgtq_u32(vaddq_u32(lanes, vdupq_n_u32(4 * v)), vdupq_n_u32(j));
            uint32x4_t same = vandq_u32(vceqq_f32(all[v], one), after);
            ranks[v] = vsubq_u32(ranks[v], vorrq_u32(vcgtq_f32(all[v], one), same));
        }
    }
    uint32_t to[SAMPLE];
    for (size_t v = 0; v < 4; v++) {
        vst1q_u32(to + 4 * v, ranks[v]);
    }
    for (size_t i = 0; i < SAMPLE; i++) {
        sorted[to[i]] = few[i];
    }
}

/* The m-th of up to FEW values. */
static tg_ordered nth_of_few(const float *few, size_t n, size_t m)
{
    float padded[FEW]; /* by infinity: not less than any value, and equal only to itself */
    size_t vector_n = (n + 3) / 4;
    vst1q_f32(padded + 4 * (vector_n - 1), vdupq_n_f32(INFINITY));
    memcpy(padded, few, n * sizeof *few);
    for (size_t i = 0;; i++) {
        const float32x4_t one = vdupq_n_f32(few[i]);
        uint32x4_t less = vdupq_n_u32(0), equal = less;
        for (size_t v = 0; v < vector_n; v++) {
            float32x4_t some = vld1q_f32(padded + 4 * v);
            less = vsubq_u32(less, vcltq_f32(some, one));
            equal = vsubq_u32(equal, vceqq_f32(some, one));
        }
        size_t less_n = vaddvq_u32(less), equal_n = vaddvq_u32(equal) - (few[i] == INFINITY ? 4 * vector_n - n : 0);
        if (less_n <= m && m < less_n + equal_n) {
            return (tg_ordered){few[i], less_n, equal_n};
        }
    }
}

/* A range that most likely holds the m-th value, from the order statistics of a sample. */
typedef struct range {
    float low, high;
} range;

static range around(const float *values, size_t n, size_t m)
{
    enum { MARGIN = 3 };
    float sample[SAMPLE], sorted[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++) {
        sample[i] = values[n * (2 * i + 1) / (2 * SAMPLE)];
    }
    sort_sample(sorted, sample);
    size_t place = m * SAMPLE / n;
    return (range){place < MARGIN ? -INFINITY : sorted[place - MARGIN],
                   place + MARGIN >= SAMPLE ? INFINITY : sorted[place + MARGIN]};
}

/* The same for n values in a known range, assumed uniform, with a margin of some standard deviations. */
static range inside(range r, size_t n, size_t m)
{
    float width = r.high - r.low, margin = 2.0f / sqrtf((float)n);
    float share = ((float)m + 0.5f) / (float)n;
    return (range){fmaxf(r.low, r.low + width * (share - margin)), fminf(r.high, r.low + width * (share + margin))};
}

/* Narrows a range around the m-th value until few values are left in it. */
tg_ordered tg_neon_nth(float *scratch, const float *values, size_t n, size_t m)
{
    float *buffers[2] = {scratch, scratch + n};
    const float *among = values;
    size_t among_n = n, less = 0; /* values below the range */
    range r = {-INFINITY, INFINITY};
    for (int turn = 0; among_n > FEW; turn ^= 1) {
        bool bounded = isfinite(r.high - r.low);
        r = bounded ? inside(r, among_n, m - less) : around(among, among_n, m - less);
        size_t below = 0, kept = keep_between(buffers[turn], &below, among, among_n, r.low, r.high);
        if (m - less < below) { /* the sample was misleading: the value is below the range, */
            r = (range){-INFINITY, nextafterf(r.low, -INFINITY)};
            kept = keep_between(buffers[turn], &below, among, among_n, r.low, r.high);
        } else if (m - less >= below + kept) { /* or above it */
            r = (range){nextafterf(r.high, INFINITY), INFINITY};
            kept = keep_between(buffers[turn], &below, among, among_n, r.low, r.high);
        }
        less += below;
        if (r.low == r.high) {
            return (tg_ordered){.value = r.low, .less = less, .equal = kept};
        }
        if (kept == among_n) { /* few distinct values: narrowing makes no progress */
            return tg_scalar_nth(scratch, values, n, m);
        }
        among = buffers[turn];
        among_n = kept;
    }
    tg_ordered found = nth_of_few(among, among_n, m - less);
    found.less += less;
    return found;
}

/* The same where there may be less space, up to `end`. */
static float *put_guarded(float *out, const float *end, uint32_t marked, float32x4_t values)
{
    float few[4];
    if (end - out >= 4) {
        return put_marked(out, marked, values);
    }
    size_t n = (size_t)(put_marked(few, marked, values) - few);
    memcpy(out, few, n * sizeof *few);
    return out + n;
}

/* The values below the pivot are marked in the lower half, those above it in the upper half. */
TG_NEON_INLINE uint32_t mark_sides(float32x4_t some, float32x4_t pivot)
{
    const uint32x4_t bits = vld1q_u32(bits_of_lanes);
    uint32x4_t below = vandq_u32(vcltq_f32(some, pivot), bits), above = vandq_u32(vcgtq_f32(some, pivot), bits);
    return vaddvq_u32(vsliq_n_u32(below, above, 16));
}

/* How many times four values can be read, and four be stored on either side. */
static size_t safe_steps(size_t left, ptrdiff_t below, ptrdiff_t above)
{
    size_t least = (size_t)(below < above ? below : above);
    return (left < least ? left : least) / 4;
}

void tg_neon_split(float *out, const float *values, size_t n, const tg_ordered *at)
{
    const float32x4_t pivot = vdupq_n_f32(at->value);
    float *less = out, *more = out + at->less + at->equal;
    const float *end = out + n, *middle = more;
    size_t i = 0;
    for (size_t steps; (steps = safe_steps(n - i, middle - less, end - more)) > 0;) {
        for (; steps > 0; steps--, i += 4) {
            float32x4_t some = vld1q_f32(values + i);
            uint32_t marks = mark_sides(some, pivot);
            less = put_marked(less, marks & 0xffff, some);
            more = put_marked(more, marks >> 16, some);
        }
    }
    for (; n - i >= 4; i += 4) { /* one side is nearly full */
        float32x4_t some = vld1q_f32(values + i);
        uint32_t marks = mark_sides(some, pivot);
        less = put_guarded(less, middle, marks & 0xffff, some);
        more = put_guarded(more, end, marks >> 16, some);
    }
    for (; i < n; i++) {
        if (values[i] < at->value) {
            *less++ = values[i];
        } else if (values[i] > at->value) {
            *more++ = values[i];
        }
    }
    for (size_t e = 0; e < at->equal; e++) {
        out[at->less + e] = at->value;
    }
}
#endif
