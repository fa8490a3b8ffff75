/* binary16 and bfloat16; see half.h. */
#include "half.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float cli_half_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

float cli_half_from_fp16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f;
    uint32_t fraction = bits & 0x3ff;
    if (exponent == 31) {
        return float_of(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent > 0) {
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    }
    float size = (float)fraction * 0x1p-24f; /* a denormal, and exact as a binary32 */
    return sign != 0 ? -size : size;
}

uint16_t cli_half_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 0x40); /* a NaN stays one */
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t cli_half_to_fp16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (size >= 0x477ff000) {
        return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    }
    if (size >= 0x38800000) { /* 2^-14: normal in both formats */
        uint32_t rounded = size + 0xfff + (size >> 13 & 1);
        return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
    }
    /* Adding 0.5 leaves 2^-24, a denormal's unit, as the last bit of the sum, which the addition rounds to. */
    return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000));
}

void cli_half_widen(float *out, const void *src, size_t n, tg_dtype dtype)
{
    const uint16_t *halves = src;
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *out);
    }
    if (dtype == TG_FP16) {
        for (size_t i = 0; i < n; i++) {
            out[i] = cli_half_from_fp16(halves[i]);
        }
    }
    if (dtype == TG_BF16) {
        for (size_t i = 0; i < n; i++) {
            out[i] = cli_half_from_bf16(halves[i]);
        }
    }
}

void cli_half_narrow(void *out, const float *src, size_t n, tg_dtype dtype)
{
    uint16_t *halves = out;
    if (dtype == TG_FP32) {
        memcpy(out, src, n * sizeof *src);
    }
    if (dtype == TG_FP16) {
        for (size_t i = 0; i < n; i++) {
            halves[i] = cli_half_to_fp16(src[i]);
        }
    }
    if (dtype == TG_BF16) {
        for (size_t i = 0; i < n; i++) {
            halves[i] = cli_half_to_bf16(src[i]);
        }
    }
}
