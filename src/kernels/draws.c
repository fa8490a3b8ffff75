/* See draws.h. */
#include "kernels/draws.h"

#include "base/philox.h"
#include "kernels/kernels.h"

tg_draws tg_draw(uint16_t *upper, uint64_t key, uint64_t at, size_t n, uint32_t other, const void *prefetch)
{
    const tg_stream stream = {key};
    size_t before = (size_t)((0 - at) % TG_HALVES), head = before < n ? before : n;
    size_t block_n = (n - head + TG_HALVES - 1) / TG_HALVES;
    tg_stream_halves(upper, &stream, at, head, TG_HALF_UPPER, other);
    tg_kernels_best()->symbols.draw(upper + head, key, (at + head) / TG_HALVES, other, block_n, prefetch);
    return (tg_draws){upper, key, at, other};
}

uint32_t tg_draw_bits(const tg_draws *d, size_t i)
{
    const tg_stream stream = {d->key};
    uint16_t lower;
    tg_stream_halves(&lower, &stream, d->at + i, 1, TG_HALF_LOWER, d->other);
    return (uint32_t)d->upper[i] << 16 | lower;
}

float tg_draw_unit(const tg_draws *d, size_t i)
{
    uint32_t bits = tg_draw_bits(d, i);
    int surplus = bits >> 24 == 0 ? 0 : 8 - __builtin_clz(bits); /* of its bits beyond the 24 of a float */
    return (float)(bits >> surplus << surplus) * 0x1p-32f;
}

bool tg_draw_settle(const tg_draws *d, size_t i, float x, float y)
{
    return tg_draw_unit(d, i) * x < y;
}
