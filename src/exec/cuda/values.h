/* What a symbol means, of all quantizers, given what travels with its bucket: as `table` and `decode_bucket` of the host, with the
 * same bits, those of NaNs included. A GPU returns the same NaN whatever it is given; a CPU keeps the bits of its operand. */
#ifndef TG_EXEC_CUDA_VALUES_H
#define TG_EXEC_CUDA_VALUES_H

#include "exec/cuda/bucket.h"

/* Whether a body may be added: the kernel before this one knows it. All blocks ask. */
TG_DEVICE bool tg_may_add(const tg_gpu_pass &p)
{
    tg_after_previous();
    return p.sound == nullptr || __ldcg(p.sound) != 0;
}

/* ---- NaNs as CPUs give them ---------------------------------------------------------------------------------------------- */

TG_DEVICE bool tg_is_nan(float x)
{
    return tg_key(x) > TG_KEY_INF;
}

/* The result of an operation on two numbers, or the NaN among them; that of no NaN is -NaN. */
TG_DEVICE float tg_with_nan(float result, float a, float b)
{
    if (!tg_is_nan(result)) {
        return result;
    }
    return tg_is_nan(a) ? tg_quiet(a) : tg_is_nan(b) ? tg_quiet(b) : __uint_as_float(0xffc00000u);
}

TG_DEVICE float tg_times(float a, float b)
{
    return tg_with_nan(a * b, a, b);
}

TG_DEVICE float tg_plus(float a, float b)
{
    return tg_with_nan(a + b, a, b);
}

TG_DEVICE float tg_flip_sign(float x)
{
    return __uint_as_float(__float_as_uint(x) ^ 0x80000000u);
}

/* ---- floats of a few bits -------------------------------------------------------------------------------------------------- */

typedef struct tg_gpu_minifloat {
    uint32_t fraction_bits, bias, zero; /* zero: its symbol, which is also the number of the largest magnitude */
    uint32_t in_shapes;                 /* its column in the table of shapes */
} tg_gpu_minifloat;

TG_DEVICE tg_gpu_minifloat tg_minifloat_of(const tg_gpu_unit &u)
{
    if (u.quantize == TG_GPU_FP4) {
        return {1, 1, 5, 0};
    }
    return u.quantize_params[0] == 0 ? tg_gpu_minifloat{2, 15, 123, 1} : tg_gpu_minifloat{3, 10, 119, 2};
}

/* 2^exponent, of a normal float. */
TG_DEVICE float tg_power(int exponent)
{
    return __uint_as_float((uint32_t)(127 + exponent) << 23);
}

/* Magnitude number m of a format. */
TG_DEVICE float tg_minifloat_magnitude(const tg_gpu_minifloat &f, uint32_t m)
{
    float unit = tg_power(1 - (int)f.bias - (int)f.fraction_bits);
    return m < 1u << f.fraction_bits ? (float)m * unit
                                     : __uint_as_float(((127u - f.bias) << 23) + (m << (23 - f.fraction_bits)));
}

TG_DEVICE float tg_minifloat_value(const tg_gpu_minifloat &f, float step, unsigned symbol)
{
    uint32_t m = symbol < f.zero ? f.zero - symbol : symbol - f.zero;
    float most = tg_is_finite(step) ? TG_FLOAT_MAX : INFINITY;
    float value = tg_times(tg_minifloat_magnitude(f, m), step);
    value = value > most ? most : value;
    value = value < -most ? -most : value;
    return symbol < f.zero && !tg_is_nan(step) ? tg_times(value, -1.0f) : value;
}

/* ---- all ------------------------------------------------------------------------------------------------------------------- */

TG_DEVICE float tg_qsgd_value(float norm, unsigned symbol, double levels)
{
    return tg_with_nan((float)((double)norm * (((int)symbol - levels) / levels)), norm, norm);
}

TG_DEVICE float tg_linear_value(float least, float largest, unsigned symbol, double steps)
{
    double value = (double)least + ((double)largest - (double)least) * (symbol / steps);
    return tg_with_nan((float)value, least, largest);
}

TG_DEVICE float tg_symbol_value(const tg_gpu_unit &u, const uint8_t *side, unsigned symbol)
{
    enum { ORQ_HALF = 3 };
    const double *params = u.quantize_params;
    float first = u.quantize == TG_GPU_NATURAL || u.quantize == TG_GPU_ORQ ? 0.0f : tg_read_float(side);
    switch (u.quantize) {
    case TG_GPU_SIGN: return symbol == 0 ? first : tg_flip_sign(first);
    case TG_GPU_BINGRAD:
        if (params[0] == 1) {
            return symbol != 0 ? first : tg_flip_sign(first);
        }
        return symbol != 0 ? tg_read_float(side + 4) : first;
    case TG_GPU_ORQ:
        return params[ORQ_HALF] != 0
                   ? tg_fp16_to_float((uint16_t)(side[2 * symbol] | (uint32_t)side[2 * symbol + 1] << 8))
                   : tg_read_float(side + 4 * symbol);
    case TG_GPU_LINEAR: return tg_linear_value(first, tg_read_float(side + 4), symbol, params[0] - 1);
    case TG_GPU_QSGD: return tg_qsgd_value(first, symbol, params[0]);
    case TG_GPU_TERNARY: return symbol == 1 ? tg_times(first, 0.0f) : symbol == 0 ? tg_flip_sign(first) : first;
    case TG_GPU_NATURAL: return __uint_as_float(symbol << 23);
    default: return tg_minifloat_value(tg_minifloat_of(u), first, symbol);
    }
}

#endif
