/* Headers of chunks in a body. */
#ifndef TG_EXEC_CUDA_HEADER_H
#define TG_EXEC_CUDA_HEADER_H

#include "exec/cuda/index.h"
#include "exec/cuda/layout.h"

enum { TG_INDEX_HEADER = 6, TG_CODED_HEADER = 4 };

/* Reads the header of a chunk into a view whose offsets are from its start. False if no chunk has such a header. As tg_header_get of
 * routes/header.c. */
TG_DEVICE bool tg_get_header(tg_view *v, const uint8_t *header, const tg_gpu_unit &u, uint32_t n, uint32_t known_n,
                             bool has_values)
{
    enum { LIST_MAX = 16384 };
    *v = tg_view{};
    if (u.route == TG_GPU_ROUTE_NONE) {
        return true;
    }
    v->count = u.coordinates == TG_GPU_AT_EVERY ? n : known_n;
    if (u.coordinates == TG_GPU_AT_INDICES) {
        uint32_t word = tg_load32(header);
        v->index_len = (uint16_t)(header[4] | header[5] << 8);
        v->count = word & 0xffffffu;
        v->mode = (uint8_t)(word >> 24);
        v->is_joint = v->mode == TG_GPU_MODE_ADACOMP8 || v->mode == TG_GPU_MODE_ADACOMP16;
        v->is_listed = v->count <= LIST_MAX && v->mode <= TG_GPU_RICE_MAX && u.index == TG_GPU_INDEX_GAPS;
        header += TG_INDEX_HEADER;
        if (v->count > n || (v->count == 0 && (v->mode != 0 || v->index_len != 0))) {
            return false;
        }
    }
    if (has_values) {
        bool has_symbols = v->count > 0 && !v->is_joint;
        uint64_t symbols =
            has_symbols ? tg_gpu_plain_len(u, v->count) + (u.coded ? 1 : 0) : 0; /* of coded ones the most */
        if (u.coded) {
            uint32_t coded_len = tg_load32(header);
            if (coded_len > symbols) {
                return false;
            }
            symbols = coded_len;
        }
        v->symbols = tg_gpu_side_len(u, v->count);
        v->indices = v->symbols + symbols;
    }
    v->len = (uint32_t)(v->indices + v->index_len);
    return true;
}

/* Writes the header of a chunk. */
TG_DEVICE void tg_put_header(uint8_t *out, const tg_gpu_unit &u, const tg_view &v)
{
    const uint8_t *end = out + u.header_len;
    if (u.coordinates == TG_GPU_AT_INDICES && u.header_len > 0) {
        tg_store_bytes(out, v.count | (uint32_t)v.mode << 24, 4);
        tg_store_bytes(out + 4, v.index_len, 2);
        out += TG_INDEX_HEADER;
    }
    if (out < end) {
        tg_store_bytes(out, v.indices - v.symbols, TG_CODED_HEADER);
    }
}

/* The first 8 bytes beside a chunk's values; offsets are from `start`. */
TG_DEVICE uint64_t tg_first_bytes(const uint8_t *start, const tg_view &v)
{
    uint64_t side = 0;
    for (unsigned b = 0; b < 8 && v.side + b < v.symbols; b++) {
        side |= (uint64_t)start[v.side + b] << 8 * b;
    }
    return side;
}

#endif
