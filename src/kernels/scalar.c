/* The hot loops in plain C: the reference that any faster version must match bit for bit. */
#include "base/bits.h"
#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/scalar_buckets.h"
#define TG_TARGET
#include "kernels/prefix_loops.h"
#include "kernels/rans_loops.h"
#include "kernels/rice_loops.h"
#include "kernels/word_loops.h"

#include <float.h>
#include <math.h>
#include <string.h>

void tg_widen(float *out, const void *src, tg_dtype dtype, size_t n)
{
    if (out == NULL || src == NULL) {
        return;
    }
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *out);
        return;
    }
    const tg_kernels *k = tg_kernels_best();
    (dtype == TG_FP16 ? k->fp16_widen : k->bf16_widen)(out, src, n);
}

void tg_narrow(void *out, const float *src, tg_dtype dtype, size_t n)
{
    if (out == NULL || src == NULL) {
        return;
    }
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *src);
        return;
    }
    const tg_kernels *k = tg_kernels_best();
    (void)(dtype == TG_FP16 ? k->fp16_narrow : k->bf16_narrow)(out, src, n);
}

enum { PIECE = 1024 }; /* elements that wait between one form and another */

bool tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n)
{
    float quotients[PIECE];
    bool finite = true;
    for (size_t done = 0; done < n; done += PIECE) {
        size_t m = n - done < PIECE ? n - done : PIECE;
        for (size_t i = 0; i < m; i++) {
            quotients[i] = values[done + i] / divisor;
        }
        finite = finite && (divisor == 1.0f || tg_all_finite(quotients, m));
        tg_narrow((uint8_t *)out + done * tg_dtype_len(dtype), quotients, dtype, m);
    }
    return finite;
}

static bool is_finite(float value)
{
    return (tg_float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

void tg_scale(float *out, const float *values, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float scaled = factor * values[i];
        bool overflows = !is_finite(scaled) && is_finite(values[i]);
        out[i] = overflows ? copysignf(FLT_MAX, scaled) : scaled;
    }
}

void tg_saturate(float *sums, const float *given, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_finite(sums[i]) && is_finite(given[i])) {
            sums[i] = isnan(sums[i]) ? 0.0f : copysignf(FLT_MAX, sums[i]);
        }
    }
}

float tg_average_share(size_t n)
{
    float share = 0.5f;
    for (size_t reach = 1; reach < n; reach *= 2) {
        share *= 0.5f;
    }
    return share;
}

void tg_average_shared(float *sums, float share, size_t value_n, size_t n)
{
    float divisor = (float)value_n * share;
    for (size_t i = 0; i < n; i++) {
        float average = sums[i] / divisor;
        sums[i] = is_finite(sums[i]) && !is_finite(average) ? copysignf(FLT_MAX, average) : average;
    }
}

void tg_zero_nonfinite(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = is_finite(values[i]) ? values[i] : 0.0f;
    }
}

double tg_sum_magnitudes(const float *values, size_t n)
{
    double of[2];
    (void)tg_kernels_best()->moments(of, values, n);
    return of[0];
}

double tg_sum_squares(const float *values, size_t n)
{
    return tg_kernels_best()->squares(values, n);
}

size_t tg_compress(float *out, const float *values, const uint64_t *mask, size_t n)
{
    size_t count = 0;
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            out[count++] = values[w * 64 + tg_lowest(word)];
        }
    }
    return count;
}

void tg_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    if (mask == NULL) {
        tg_kernels_best()->add(out, values, weight, n);
        return;
    }
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            out[w * 64 + tg_lowest(word)] += weight * *values++;
        }
    }
}

void tg_expand_set(float *out, const uint64_t *mask, const float *values, size_t n)
{
    if (mask == NULL) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            out[w * 64 + tg_lowest(word)] = *values++;
        }
    }
}

/* Elements of a list are far from each other, and each may be the first that is touched of its neighbourhood: those that come so
 * many behind are asked for before they are needed. */
enum { ENTRIES_AHEAD = 24 };

void tg_gather(float *out, const float *values, const uint32_t *list, size_t n)
{
    size_t i = 0;
    for (; n - i > ENTRIES_AHEAD; i++) {
        __builtin_prefetch(values + list[i + ENTRIES_AHEAD]);
        out[i] = values[list[i]];
    }
    for (; i < n; i++) {
        out[i] = values[list[i]];
    }
}

void tg_scatter_add(float *out, const uint32_t *list, const float *values, float weight, size_t n)
{
    size_t i = 0;
    for (; n - i > ENTRIES_AHEAD; i++) {
        __builtin_prefetch(out + list[i + ENTRIES_AHEAD], 1);
        out[list[i]] += weight * values[i];
    }
    for (; i < n; i++) {
        out[list[i]] += weight * values[i];
    }
}

void tg_scatter_set(float *out, const uint32_t *list, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[list[i]] = values[i];
    }
}

void tg_scalar_stream_bytes(uint8_t *out, const uint8_t *bytes, size_t len)
{
    memcpy(out, bytes, len);
}

/* pack/bits.c does it all by itself. */
size_t tg_scalar_bits_write(uint8_t *out, const uint16_t *symbols, size_t count, tg_digits d)
{
    (void)out;
    (void)symbols;
    (void)count;
    (void)d;
    return 0;
}

size_t tg_scalar_bits_read(uint16_t *symbols, const uint8_t *bytes, size_t count, tg_digits d, bool *sound)
{
    (void)symbols;
    (void)bytes;
    (void)count;
    (void)d;
    *sound = true;
    return 0;
}

size_t tg_scalar_count_few(uint32_t *counts, const uint16_t *symbols, size_t n, uint32_t base)
{
    (void)counts;
    (void)symbols;
    (void)n;
    (void)base;
    return 0;
}

bool tg_scalar_numbers_below(const uint8_t *bytes, size_t n, uint32_t bits, uint64_t limit)
{
    uint64_t held = 0, mask = (UINT64_C(1) << bits) - 1;
    uint32_t held_n = 0, bad = 0;
    for (size_t i = 0; i < n; i++) {
        for (; held_n < bits; held_n += 8) {
            held |= (uint64_t)*bytes++ << held_n;
        }
        bad |= (held & mask) >= limit ? 1 : 0;
        held >>= bits;
        held_n -= bits;
    }
    return bad == 0;
}

/* ---- those with versions for other instruction sets ------------------------------------------------------------------ */

static bool all_finite(const float *values, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= (uint32_t)!is_finite(values[i]);
    }
    return bad == 0;
}

static bool halves_finite(const void *halves, uint16_t exponent, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((((const tg_any_half *)halves)[i] & exponent) == exponent) {
            return false;
        }
    }
    return true;
}

static bool accumulate(float *out, float *also, const float *a, const float *b, float share, size_t n, bool streams)
{
    (void)streams;
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] + share * b[i];
    }
    for (size_t i = 0; also != NULL && i < n; i++) {
        also[i] = out[i];
    }
    return all_finite(out, n);
}

static bool subtract(float *out, const float *a, const float *b, size_t n, bool streams)
{
    (void)streams;
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] - b[i];
    }
    return all_finite(out, n);
}

static void copy(float *out, const float *values, size_t n, bool streams)
{
    (void)streams;
    memcpy(out, values, n * sizeof *out);
}

static void add(float *sums, const float *values, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * values[i];
    }
}

static bool fp16_narrow(void *halves, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((tg_any_half *)halves)[i] = tg_float_to_fp16(values[i]);
    }
    return all_finite(values, n);
}

static void fp16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_fp16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static void fp16_add(float *sums, const void *halves, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * tg_fp16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static bool bf16_narrow(void *halves, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((tg_any_half *)halves)[i] = tg_float_to_bf16(values[i]);
    }
    return all_finite(values, n);
}

static void bf16_widen(float *out, const void *halves, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static void bf16_add(float *sums, const void *halves, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += weight * tg_bf16_to_float(((const tg_any_half *)halves)[i]);
    }
}

static void mark_keys(uint64_t *mask, const float *values, uint32_t least, size_t n)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (size_t i = 0; i < n; i++) {
        mask[i / 64] |= (uint64_t)((tg_float_bits(values[i]) & 0x7fffffffu) >= least) << i % 64;
    }
}

static uint32_t largest_key(const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = tg_float_bits(values[i]) & 0x7fffffffu;
        largest = key > largest ? key : largest;
    }
    return largest;
}

static void mark_bin(uint64_t *mask, size_t at, const float *u, const float *g, float more, uint32_t least, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t reach = tg_float_bits(u[i] + more * g[i]) & 0x7fffffffu;
        bool is_in = (reach >= least || reach > 0x7f800000u) && (tg_float_bits(u[i]) & 0x7fffffffu) != 0;
        mask[(at + i) / 64] |= (uint64_t)is_in << (at + i) % 64;
    }
}

const tg_kernels tg_kernels_scalar = {
    .all_finite = all_finite,
    .halves_finite = halves_finite,
    .accumulate = accumulate,
    .subtract = subtract,
    .copy = copy,
    .add = add,
    .fp16_narrow = fp16_narrow,
    .fp16_widen = fp16_widen,
    .fp16_add = fp16_add,
    .bf16_narrow = bf16_narrow,
    .bf16_widen = bf16_widen,
    .bf16_add = bf16_add,
    .mark_keys = mark_keys,
    .list_marks = tg_scalar_list_marks,
    .largest_key = largest_key,
    .mark_bin = mark_bin,
    TG_SCALAR_SELECT,
    .stream_bytes = tg_scalar_stream_bytes,
    .bits_write = tg_scalar_bits_write,
    .bits_read = tg_scalar_bits_read,
    .numbers_below = tg_scalar_numbers_below,
    .count_few = tg_scalar_count_few,
    TG_SCALAR_BUCKETS,
    .split_words = split_words,
    .join_words = join_words,
    .rans_push = rans_push,
    .rans_pull = rans_pull,
    .prefix_write = prefix_write,
    .prefix_read = prefix_read,
    .rice_read = rice_read,
};
