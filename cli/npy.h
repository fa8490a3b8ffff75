/* NumPy's .npy files: a strict reader of bytes in memory, and the header for a writer. Little-endian fp32 and
 * fp16 in row-major order; all else is refused with a sentence that names what was found and how to convert
 * it. Depends on nothing but the C library, so that it can be fuzzed alone.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "tersegrad/tersegrad.h"

#define CLI_NPY_DIMS 64
#define CLI_NPY_WHY 256
#define CLI_NPY_HEADER_CAP 2048 /* room for any header that cli_npy_header writes */

typedef struct cli_npy {
    tg_dtype dtype;
    uint32_t dim_n;
    uint64_t dims[CLI_NPY_DIMS];
    uint64_t element_n;
    size_t data_at; /* the elements are the bytes from here to the end, aligned or not */
} cli_npy;

/* Reads the whole of a file. 0 if it is sound; otherwise -1 and one sentence in `why`. */
int cli_npy_parse(cli_npy *out, const uint8_t *src, size_t src_len, char why[CLI_NPY_WHY]);

/* Writes the header that NumPy itself would write for such an array and returns its length. The elements
 * follow it. `dtype` is TG_FP32 or TG_FP16: the format has no bf16. */
size_t cli_npy_header(uint8_t dst[CLI_NPY_HEADER_CAP], tg_dtype dtype, const uint64_t *dims, uint32_t dim_n);

#endif
