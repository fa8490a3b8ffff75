/* See sparse.h. */
#include "kernels/sparse.h"

#include "kernels/kernels.h"

#include <string.h>

size_t tg_compress(float *out, const float *values, const uint64_t *mask, size_t n)
{
    return tg_kernels_best()->select.compress(out, values, mask, n);
}

void tg_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    if (mask == NULL) {
        tg_kernels_best()->passes.add(out, values, weight, n);
    } else {
        tg_kernels_best()->select.expand_add(out, mask, values, weight, n);
    }
}

void tg_expand_set(float *out, const uint64_t *mask, const float *values, size_t n)
{
    if (mask == NULL) {
        memcpy(out, values, n * sizeof *out);
    } else {
        tg_kernels_best()->select.expand_set(out, mask, values, n);
    }
}

/* Listed elements are far apart, so nearly every access is a cache miss, which hardware does not predict: each is prefetched so
 * many entries in advance. */
enum { PREFETCH_DISTANCE = 24 };

void tg_gather(float *out, const float *values, const uint32_t *list, size_t n)
{
    size_t i = 0;
    for (; n - i > PREFETCH_DISTANCE; i++) {
        __builtin_prefetch(values + list[i + PREFETCH_DISTANCE]);
        out[i] = values[list[i]];
    }
    for (; i < n; i++) {
        out[i] = values[list[i]];
    }
}

void tg_scatter_add(float *out, const uint32_t *list, const float *values, float weight, size_t n)
{
    size_t i = 0;
    for (; n - i > PREFETCH_DISTANCE; i++) {
        __builtin_prefetch(out + list[i + PREFETCH_DISTANCE], 1);
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
