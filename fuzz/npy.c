/* Any bytes as a .npy file: it is refused with an error, or its shape and length agree and its header can be written. */
#include "npy.h"

#include "support.h"

#include <string.h>

/* The product of the dimensions; promises that it needs no more than 64 bits. */
static uint64_t product_of(const cli_npy *npy)
{
    uint64_t product = 1;
    for (uint32_t d = 0; d < npy->dim_n; d++) {
        if (npy->dims[d] == 0) {
            return 0;
        }
    }
    for (uint32_t d = 0; d < npy->dim_n; d++) {
        PROMISE(product <= UINT64_MAX / npy->dims[d], "a shape fits in 64 bits");
        product *= npy->dims[d];
    }
    return product;
}

/* Writing and reading again gives the same. */
static void check_written(const cli_npy *npy, const uint8_t *data, size_t data_len)
{
    uint8_t header[CLI_NPY_HEADER_CAP];
    char why[CLI_NPY_WHY];
    cli_npy again;
    size_t header_len = cli_npy_header(header, npy->dtype, npy->dims, npy->dim_n);
    PROMISE(header_len <= sizeof header, "a header fits its room");
    uint8_t *file = fuzz_room(header_len + data_len, 0);
    memcpy(file, header, header_len);
    memcpy(file + header_len, data, data_len);
    PROMISE(cli_npy_parse(&again, file, header_len + data_len, why) == 0, "a file that was written can be read");
    PROMISE(again.dtype == npy->dtype && again.dim_n == npy->dim_n && again.element_n == npy->element_n &&
                memcmp(again.dims, npy->dims, npy->dim_n * sizeof *npy->dims) == 0 && again.data_at == header_len,
            "a file that was written says the same");
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    cli_npy npy;
    char *why = fuzz_room(CLI_NPY_WHY, 'x');
    if (cli_npy_parse(&npy, data, len, why) == 0) {
        PROMISE(npy.dtype == TG_FP32 || npy.dtype == TG_FP16, "only fp32 and fp16 are read");
        PROMISE(npy.data_at <= len && npy.dim_n <= CLI_NPY_DIMS, "elements and shape are inside");
        PROMISE(npy.element_n == product_of(&npy), "the elements are as many as the shape says");
        PROMISE(npy.element_n <= len && npy.element_n * tg_dtype_len(npy.dtype) == len - npy.data_at,
                "the bytes are as many as the elements need");
        PROMISE(memchr(data + 12, '\0', npy.data_at - 12) == NULL, "a header is text");
        check_written(&npy, data + npy.data_at, len - npy.data_at);
    } else {
        fuzz_check_sentence(why, CLI_NPY_WHY);
    }
    free(why);
    return 0;
}
