/* exp, the logistic function and tanh, with additions and multiplications alone: the same bits on every machine, and no
 * branches, so that compilers can vectorise loops over them. exp is within 2 ulp for |x| up to 87; larger x are clamped. NaN and
 * infinities give NaN, so that a model that has diverged shows. */
#ifndef TR_EXPONENTIAL_H
#define TR_EXPONENTIAL_H

#include <stdint.h>

typedef union tr_float_bits {
    float number;
    int32_t bits;
} tr_float_bits;

/* Clamps x to [-87, 87]. Uses integers, because compilers turn comparisons of floats into branches. */
static inline float tr_limit(float x)
{
    tr_float_bits limited = {x}, most = {87.0f};
    int32_t sign = limited.bits & INT32_MIN, size = limited.bits & INT32_MAX;
    limited.bits = sign | (size < most.bits ? size : most.bits);
    return limited.number;
}

static inline float tr_exp(float any)
{
    float x = tr_limit(any);
    /* x = k ln 2 + r. Adding 1.5 * 2^23 leaves the nearest integer k in the low bits. */
    tr_float_bits rounded = {x * 1.44269504f + 12582912.0f}, power;
    float k = rounded.number - 12582912.0f;
    float r = x - k * 0.693359375f + k * 2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.9875691500e-4f;                          /* the polynomial of the Cephes library */
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + (1.0f + 0.0f * any);                      /* 1, or NaN */
    power.bits = (int32_t)(((uint32_t)rounded.bits + 127) << 23); /* 2^k */
    return p * power.number;
}

static inline float tr_logistic(float x)
{
    return 1.0f / (1.0f + tr_exp(-x));
}

static inline float tr_tanh(float x)
{
    return 1.0f - 2.0f / (1.0f + tr_exp(2.0f * x));
}

#endif
