/* Prefix and Rice codes for all processors with AVX2, which have BMI2 as well. Nothing here is a vector: where compilers may use vector
 * registers they keep numbers in them that these loops need at every step. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#define TG_TARGET __attribute__((target("bmi,bmi2")))
#include "kernels/prefix_loops.h"
#include "kernels/rice_loops.h"

TG_TARGET uint8_t *tg_prefix_write_bmi2(uint8_t *out, const uint8_t *end, const uint16_t *symbols, size_t count,
                                        const tg_prefix_codes *codes)
{
    return prefix_write(out, end, symbols, count, codes);
}

TG_TARGET void tg_prefix_read_bmi2(tg_prefix_stream *streams, size_t stream_n, const tg_prefix_tables *tables)
{
    prefix_read(streams, stream_n, tables);
}

TG_TARGET bool tg_rice_read_bmi2(tg_rice_reader *r, unsigned k, size_t n)
{
    return rice_read(r, k, n);
}
#endif
