/* The hot loops in plain C: the reference that any faster version must match bit for bit. */
#include "base/bits.h"
#include "base/bytes.h"
#include "base/half.h"
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

void tg_widen(float *out, const void *src, tg_dtype dtype, size_t n)
{
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *out);
        return;
    }
    const uint16_t *halves = src;
    if (dtype == TG_FP16) {
        for (size_t i = 0; i < n; i++) {
            out[i] = tg_fp16_to_float(halves[i]);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = tg_bf16_to_float(halves[i]);
    }
}

void tg_store(void *out, tg_dtype dtype, const float *values, float divisor, size_t n)
{
    if (dtype == TG_FP32) {
        float *floats = out;
        for (size_t i = 0; i < n; i++) {
            floats[i] = values[i] / divisor;
        }
        return;
    }
    uint16_t *halves = out;
    if (dtype == TG_FP16) {
        for (size_t i = 0; i < n; i++) {
            halves[i] = tg_float_to_fp16(values[i] / divisor);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        halves[i] = tg_float_to_bf16(values[i] / divisor);
    }
}

void tg_narrow(void *out, const float *src, tg_dtype dtype, size_t n)
{
    tg_store(out, dtype, src, 1.0f, n); /* a division by 1 changes no bit */
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

bool tg_all_finite(const float *values, size_t n)
{
    uint32_t bad = 0; /* no early exit, so that the loop vectorizes; the bad case is rare */
    for (size_t i = 0; i < n; i++) {
        bad |= (uint32_t)!is_finite(values[i]);
    }
    return bad == 0;
}

void tg_zero_nonfinite(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = is_finite(values[i]) ? values[i] : 0.0f;
    }
}

static double sum_in_order(const double sums[16])
{
    double sum = 0;
    for (int i = 0; i < 16; i++) {
        sum += sums[i];
    }
    return sum;
}

double tg_sum_magnitudes(const float *values, size_t n)
{
    double sums[16] = {0};
    for (size_t i = 0; i < n; i++) {
        sums[i % 16] += fabs((double)values[i]);
    }
    return sum_in_order(sums);
}

double tg_sum_squares(const float *values, size_t n)
{
    double sums[16] = {0};
    for (size_t i = 0; i < n; i++) {
        sums[i % 16] += (double)values[i] * (double)values[i];
    }
    return sum_in_order(sums);
}

size_t tg_count_nonzero(const float *values, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += values[i] != 0 ? 1 : 0;
    }
    return count;
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
        for (size_t i = 0; i < n; i++) {
            out[i] += weight * values[i];
        }
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

size_t tg_rans_rounds_scalar(uint16_t *symbols, uint32_t states[32], const uint8_t **words, const uint8_t *end,
                             size_t count, const tg_rans_slots *slots)
{
    const uint8_t *at = *words;
    size_t i = 0;
    for (; count - i >= 32 && end - at >= 64; i += 32) {
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t slot = slots->slots[states[l] & 4095];
            uint32_t x = ((slot >> 8 & 4095) + 1) * (states[l] >> 12) + (slot >> 20);
            uint32_t low = x < 1u << 15 ? 1 : 0;
            symbols[i + l] = (uint16_t)(slot & 255);
            states[l] = low != 0 ? x << 16 | tg_get16(at) : x;
            at += 2 * low;
        }
    }
    *words = at;
    return i;
}
