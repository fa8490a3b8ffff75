/* Reads and validates idx headers. All numbers are big-endian. */
#include "data/idx.h"

#include "data/refuse.h"

#include <inttypes.h>

enum { NUMBER_LEN = 4, BYTE_ELEMENTS = 0x08, IMAGE_DIMS = 3, LABEL_DIMS = 1 };

static uint32_t number_at(const uint8_t *src)
{
    return (uint32_t)src[0] << 24 | (uint32_t)src[1] << 16 | (uint32_t)src[2] << 8 | src[3];
}

static int read_header(uint32_t *dims, uint32_t dim_n, const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    if (src_len < NUMBER_LEN || src[0] != 0 || src[1] != 0) {
        return tr_data_refuse(why, "it is not an idx file");
    }
    if (src[2] != BYTE_ELEMENTS || src[3] != dim_n) {
        return tr_data_refuse(why, "its first bytes announce type %u in %u dimensions, but %s are type %d in %" PRIu32,
                              (unsigned)src[2], (unsigned)src[3], dim_n == LABEL_DIMS ? "labels" : "images",
                              BYTE_ELEMENTS, dim_n);
    }
    if (src_len < NUMBER_LEN * ((size_t)dim_n + 1)) {
        return tr_data_refuse(why, "it is cut off within its header");
    }
    for (uint32_t d = 0; d < dim_n; d++) {
        dims[d] = number_at(src + NUMBER_LEN * ((size_t)d + 1));
    }
    return 0;
}

static int judge(tr_idx *out, const uint32_t *dims, uint32_t dim_n, size_t src_len, char why[TR_WHY])
{
    tr_idx idx = {dims[0], 1, 1, NUMBER_LEN * ((size_t)dim_n + 1)};
    if (dim_n == IMAGE_DIMS) {
        idx.height = dims[1];
        idx.width = dims[2];
    }
    if (idx.n == 0 || idx.height == 0 || idx.width == 0) {
        return tr_data_refuse(why, "its header announces nothing at all");
    }
    if (idx.n > TR_IDX_COUNT_MAX || idx.height > TR_IDX_SIDE_MAX || idx.width > TR_IDX_SIDE_MAX) {
        return tr_data_refuse(why,
                              "its header announces %" PRIu32 " items of %" PRIu32 " x %" PRIu32
                              ", but at most %d of %d x %d are read",
                              idx.n, idx.height, idx.width, TR_IDX_COUNT_MAX, TR_IDX_SIDE_MAX, TR_IDX_SIDE_MAX);
    }
    uint64_t wanted = (uint64_t)idx.n * idx.height * idx.width;
    uint64_t data_len = src_len - idx.data_at;
    if (data_len != wanted) {
        return tr_data_refuse(why, "its header announces %" PRIu64 " bytes, but %s %" PRIu64 " follow it", wanted,
                              data_len < wanted ? "only" : "as many as", data_len);
    }
    *out = idx;
    return 0;
}

int tr_idx_images(tr_idx *out, const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    uint32_t dims[IMAGE_DIMS] = {0};
    if (read_header(dims, IMAGE_DIMS, src, src_len, why) != 0) {
        return -1;
    }
    return judge(out, dims, IMAGE_DIMS, src_len, why);
}

int tr_idx_labels(tr_idx *out, const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    uint32_t dims[LABEL_DIMS] = {0};
    if (read_header(dims, LABEL_DIMS, src, src_len, why) != 0 || judge(out, dims, LABEL_DIMS, src_len, why) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < out->n; i++) {
        unsigned label = src[out->data_at + i];
        if (label >= TR_IDX_CLASSES) {
            return tr_data_refuse(why, "label %" PRIu32 " is %u, but classes go from 0 to %d", i, label,
                                  TR_IDX_CLASSES - 1);
        }
    }
    return 0;
}
