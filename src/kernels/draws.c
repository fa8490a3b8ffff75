/* Random words of any range of a stream, by the `draw` kernel, which makes whole blocks of Philox. */
#include "base/philox.h"
#include "kernels/kernels.h"

void tg_draw_words(uint32_t *out, uint64_t key, uint64_t at, size_t n, uint32_t other, const void *prefetch)
{
    const tg_stream stream = {key};
    size_t head = (size_t)((0 - at) % 4) < n ? (size_t)((0 - at) % 4) : n, whole = (n - head) / 4;
    tg_stream_words(out, &stream, at, head, other);
    tg_kernels_best()->symbols.draw(out + head, key, (at + head) / 4, other, whole, prefetch);
    tg_stream_words(out + head + 4 * whole, &stream, at + head + 4 * whole, n - head - 4 * whole, other);
}
