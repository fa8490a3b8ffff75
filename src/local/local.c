/* The arithmetic of local steps; see tersegrad/local.h. Products and sums are rounded one by one (the library is built without
 * contraction), so that PyTorch's elementwise operations give the same bits on any device. */
#include "tersegrad/local.h"

#include "base/status.h"

#include <string.h>

enum { BLOCK = 1024 }; /* elements that are converted at a time */

static size_t block_of(size_t left)
{
    return left < BLOCK ? left : BLOCK;
}

static void subtract(float *move, const float *start, const float *weights, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        move[i] = start[i] - weights[i];
    }
}

void tg_local_move(float *move, const float *start, const void *weights, tg_dtype dtype, size_t n)
{
    size_t len = tg_dtype_len(dtype);
    if (move == NULL || start == NULL || weights == NULL || len == 0) {
        return;
    }
    if (dtype == TG_FP32) {
        subtract(move, start, weights, n);
        return;
    }
    for (size_t at = 0, some = 0; at < n; at += some) {
        uint16_t rounded[BLOCK];
        float began[BLOCK], ended[BLOCK];
        some = block_of(n - at);
        tg_narrow(rounded, start + at, dtype, some);
        tg_widen(began, rounded, dtype, some);
        tg_widen(ended, (const uint8_t *)weights + at * len, dtype, some);
        subtract(move + at, began, ended, some);
    }
}

void tg_local_outer(float *start, float *velocity, const float *average, const tg_outer *outer, size_t n)
{
    if (start == NULL || average == NULL || outer == NULL) {
        return;
    }
    const float rate = outer->rate, momentum = outer->momentum;
    if (velocity == NULL) {
        for (size_t i = 0; i < n; i++) {
            start[i] = start[i] - rate * average[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        velocity[i] = momentum * velocity[i] + average[i];
        start[i] = start[i] - rate * (average[i] + momentum * velocity[i]);
    }
}

static void mix(float *weights, const float *start, float keep, size_t n)
{
    const float rest = 1 - keep;
    for (size_t i = 0; i < n; i++) {
        weights[i] = keep * weights[i] + rest * start[i];
    }
}

void tg_local_mix(void *weights, tg_dtype dtype, const float *start, float keep, size_t n)
{
    size_t len = tg_dtype_len(dtype);
    if (weights == NULL || start == NULL || len == 0) {
        return;
    }
    if (keep == 0) {
        tg_narrow(weights, start, dtype, n);
        return;
    }
    if (dtype == TG_FP32) {
        mix(weights, start, keep, n);
        return;
    }
    for (size_t at = 0, some = 0; at < n; at += some) {
        float mixed[BLOCK];
        some = block_of(n - at);
        tg_widen(mixed, (uint8_t *)weights + at * len, dtype, some);
        mix(mixed, start + at, keep, some);
        tg_narrow((uint8_t *)weights + at * len, mixed, dtype, some);
    }
}
