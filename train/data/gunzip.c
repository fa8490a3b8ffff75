/* Decompresses gzip in memory. gzread needs a single call, but ignores bytes that follow the compressed data. */
#include "data/gunzip.h"

#include "data/refuse.h"

#include <stdlib.h>

#define ZLIB_CONST /* zlib does not write to its input */
#include <zlib.h>

enum { GZIP_ONLY = 16, FIRST_CAP = 1 << 16 };

/* The output so far. */
typedef struct buffer {
    uint8_t *bytes;
    size_t len, cap, max;
} buffer;

int tr_is_gzip(const uint8_t *src, size_t src_len)
{
    return src_len >= 2 && src[0] == 0x1f && src[1] == 0x8b;
}

/* Grows to one byte more than the maximum, so that a stream of exactly that length differs from a longer one. */
static int grow(buffer *r, char why[TR_WHY])
{
    size_t cap = r->cap == 0 ? FIRST_CAP : r->cap * 2;
    cap = cap > r->max + 1 ? r->max + 1 : cap;
    uint8_t *bytes = realloc(r->bytes, cap);
    if (bytes == NULL) {
        return tr_data_refuse_memory(why);
    }
    r->bytes = bytes;
    r->cap = cap;
    return 0;
}

/* A file may hold several concatenated streams; their contents are concatenated too. */
static int inflate_all(buffer *r, z_stream *z, char why[TR_WHY])
{
    for (;;) {
        if (r->len == r->cap && grow(r, why) != 0) {
            return -1;
        }
        z->next_out = r->bytes + r->len;
        z->avail_out = (uInt)(r->cap - r->len);
        int code = inflate(z, Z_NO_FLUSH);
        r->len = r->cap - z->avail_out;
        if (r->len > r->max) {
            return tr_data_refuse(why, "it holds more than %zu bytes", r->max);
        }
        if (code == Z_STREAM_END && z->avail_in == 0) {
            return 0;
        }
        if (code == Z_STREAM_END) {
            code = inflateReset(z);
        }
        if (code == Z_MEM_ERROR) {
            return tr_data_refuse_memory(why);
        }
        if (code == Z_BUF_ERROR || (code == Z_OK && z->avail_in == 0 && r->len < r->cap)) {
            return tr_data_refuse(why, "it is cut off within its packed data");
        }
        if (code != Z_OK) {
            return tr_data_refuse(why, "its packed data is damaged, or something else follows it");
        }
    }
}

int tr_gunzip(uint8_t **out, size_t *out_len, const uint8_t *src, size_t src_len, size_t max_len, char why[TR_WHY])
{
    buffer r = {NULL, 0, 0, max_len};
    z_stream z = {.next_in = src, .avail_in = (uInt)src_len};
    if (src_len > TR_GUNZIP_LEN_MAX || max_len > TR_GUNZIP_LEN_MAX) {
        return tr_data_refuse(why, "it is longer than what can be unpacked here");
    }
    if (inflateInit2(&z, MAX_WBITS + GZIP_ONLY) != Z_OK) {
        return tr_data_refuse_memory(why);
    }
    int status = inflate_all(&r, &z, why);
    (void)inflateEnd(&z);
    if (status != 0) {
        free(r.bytes);
        return -1;
    }
    *out = r.bytes;
    *out_len = r.len;
    return 0;
}
