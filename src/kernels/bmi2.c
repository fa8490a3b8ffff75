/* See bmi2.h. The loops are scalar, and compiled without AVX: with it, compilers keep values in vector registers that these loops
 * need in general ones at every step. */
#include "kernels/bmi2.h"

#if defined(__x86_64__)
#define TG_TARGET __attribute__((target("bmi,bmi2,lzcnt")))
#include "kernels/mark_loops.h"
#include "kernels/prefix_loops.h"
#include "kernels/rice_loops.h"

TG_TARGET uint8_t *tg_bmi2_prefix_write(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                                        const tg_prefix_codes *codes)
{
    return prefix_write(out, end, symbols, count, codes);
}

TG_TARGET void tg_bmi2_prefix_read(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables)
{
    prefix_read(streams, stream_n, tables);
}

TG_TARGET bool tg_bmi2_rice_read(tg_rice_reader *r, unsigned k, size_t n)
{
    return rice_read(r, k, n);
}

TG_TARGET size_t tg_bmi2_rice_write(tg_rice_writer *w, unsigned k, const uint32_t *list, size_t count)
{
    return rice_write(w, k, list, count);
}

TG_TARGET size_t tg_bmi2_compress(float *out, const float *values, const uint64_t *mask, size_t n)
{
    return compress(out, values, mask, n);
}

TG_TARGET void tg_bmi2_expand_add(float *out, const uint64_t *mask, const float *values, float weight, size_t n)
{
    expand_add(out, mask, values, weight, n);
}

TG_TARGET void tg_bmi2_expand_set(float *out, const uint64_t *mask, const float *values, size_t n)
{
    expand_set(out, mask, values, n);
}
#endif
