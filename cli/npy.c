/* NumPy's .npy format, versions 1.0 to 3.0 (numpy/lib/format.py describes it); see npy.h for what is taken.
 * The header is a Python dict literal. It is read by a little parser for exactly the three keys that the
 * format has, each once and in any order, because nothing else has ever been written there.
 */
#include "npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the elements of .npy files are taken as they are, which needs a little-endian machine"
#endif

enum { MAGIC_LEN = 6, ALIGNMENT = 64 };
static const uint8_t magic[MAGIC_LEN] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* What the header says, before it is judged. */
typedef struct header {
    char descr[32];
    int has_descr, has_order, has_shape;
    int is_fortran;
    uint32_t dim_n;
    uint64_t dims[CLI_NPY_DIMS];
} header;

typedef struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    char *why;
} cursor;

static int refuse(char *why, const char *sentence)
{
    snprintf(why, CLI_NPY_WHY, "%s", sentence);
    return -1;
}

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) {
        c->at++;
    }
}

/* Takes `wanted`, and the space before it, if it is next. */
static int take(cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != (uint8_t)wanted) {
        return 0;
    }
    c->at++;
    return 1;
}

static int take_word(cursor *c, const char *word)
{
    size_t len = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len) != 0) {
        return 0;
    }
    c->at += len;
    return 1;
}

/* A quoted text without escapes, cut to what fits into `out`. */
static int take_text(cursor *c, char *out, size_t cap)
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
        return 0;
    }
    uint8_t quote = *c->at++;
    size_t len = 0;
    while (c->at < c->end && *c->at != quote && *c->at != '\\' && *c->at >= 0x20 && *c->at != 0x7f) {
        if (len + 1 < cap) {
            out[len++] = (char)*c->at;
        }
        c->at++;
    }
    out[len] = '\0';
    if (c->at == c->end || *c->at != quote) {
        return 0;
    }
    c->at++;
    return 1;
}

static int take_number(cursor *c, uint64_t *out)
{
    uint64_t value = 0;
    skip_space(c);
    const uint8_t *first = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        uint64_t digit = (uint64_t)(*c->at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        value = value * 10 + digit;
        c->at++;
    }
    if (c->at == first || (*first == '0' && c->at - first > 1)) {
        return 0; /* Python has no 007 either */
    }
    *out = value;
    return 1;
}

static int read_shape(cursor *c, header *h)
{
    int comma = 1;
    if (!take(c, '(')) {
        return refuse(c->why, "its header holds no tuple as shape");
    }
    while (!take(c, ')')) {
        if (!comma) {
            return refuse(c->why, "its shape is not a tuple of numbers");
        }
        if (h->dim_n == CLI_NPY_DIMS) {
            return refuse(c->why, "it has more than 64 dimensions");
        }
        if (!take_number(c, &h->dims[h->dim_n])) {
            return refuse(c->why, "its shape is not a tuple of numbers below 2^64");
        }
        h->dim_n++;
        comma = take(c, ',');
    }
    /* "(3)" is a number in brackets, not a tuple. */
    if (h->dim_n == 1 && !comma) {
        return refuse(c->why, "its shape is not a tuple");
    }
    return 0;
}

static int read_member(cursor *c, header *h)
{
    char key[16];
    if (!take_text(c, key, sizeof key) || !take(c, ':')) {
        return refuse(c->why, "its header is not a dict of descr, fortran_order and shape");
    }
    if (strcmp(key, "descr") == 0 && !h->has_descr) {
        h->has_descr = 1;
        if (take_text(c, h->descr, sizeof h->descr)) {
            return 0;
        }
        return refuse(c->why, "its elements are not plain numbers (a structured dtype); save each field of "
                              "it on its own, for example np.save(f, x['field'].astype('<f4'))");
    }
    if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
        h->has_order = 1;
        h->is_fortran = take_word(c, "True");
        if (h->is_fortran || take_word(c, "False")) {
            return 0;
        }
        return refuse(c->why, "its fortran_order is neither True nor False");
    }
    if (strcmp(key, "shape") == 0 && !h->has_shape) {
        h->has_shape = 1;
        return read_shape(c, h);
    }
    snprintf(c->why, CLI_NPY_WHY, "its header has '%s' twice or should not have it", key);
    return -1;
}

static int read_header(cursor *c, header *h)
{
    int comma = 1;
    if (!take(c, '{')) {
        return refuse(c->why, "its header is not a dict of descr, fortran_order and shape");
    }
    while (!take(c, '}')) {
        if (!comma) {
            return refuse(c->why, "its header is not a dict of descr, fortran_order and shape");
        }
        if (read_member(c, h) != 0) {
            return -1;
        }
        comma = take(c, ',');
    }
    skip_space(c);
    if (c->at != c->end) {
        return refuse(c->why, "its header goes on behind the dict");
    }
    if (!h->has_descr || !h->has_order || !h->has_shape) {
        return refuse(c->why, "its header lacks descr, fortran_order or shape");
    }
    return 0;
}

static int judge_dtype(tg_dtype *out, const header *h, char *why)
{
    if (strcmp(h->descr, "<f4") == 0) {
        *out = TG_FP32;
    } else if (strcmp(h->descr, "<f2") == 0) {
        *out = TG_FP16;
    } else {
        snprintf(why, CLI_NPY_WHY,
                 "its dtype is '%s', but only little-endian fp32 ('<f4') and fp16 ('<f2') can be read; "
                 "convert it, for example with np.save(f, x.astype('<f4'))",
                 h->descr);
        return -1;
    }
    return 0;
}

static int judge_shape(uint64_t *element_n, const header *h, char *why)
{
    uint64_t product = 1;
    uint32_t long_n = 0; /* dimensions along which there is something to order */
    int is_empty = 0;
    for (uint32_t d = 0; d < h->dim_n; d++) {
        is_empty |= h->dims[d] == 0;
        long_n += h->dims[d] > 1;
    }
    for (uint32_t d = 0; d < h->dim_n && !is_empty; d++) {
        if (product > UINT64_MAX / h->dims[d]) {
            return refuse(why, "its shape has more elements than fit in 64 bits");
        }
        product *= h->dims[d];
    }
    *element_n = is_empty ? 0 : product;
    if (h->is_fortran && long_n > 1 && !is_empty) {
        return refuse(why, "its elements are in column-major (Fortran) order; convert it, for example with "
                           "np.save(f, np.ascontiguousarray(x))");
    }
    return 0;
}

/* Finds the header text and sets out->data_at behind it. */
static int locate_header(cli_npy *out, cursor *text, const uint8_t *src, size_t src_len, char *why)
{
    if (src_len < MAGIC_LEN || memcmp(src, magic, MAGIC_LEN) != 0) {
        return refuse(why, "it is not a .npy file");
    }
    if (src_len < MAGIC_LEN + 2) {
        return refuse(why, "it is cut off within its header");
    }
    uint8_t version = src[MAGIC_LEN];
    if (version < 1 || version > 3 || src[MAGIC_LEN + 1] != 0) {
        snprintf(why, CLI_NPY_WHY, "it is .npy version %u.%u, but only 1.0, 2.0 and 3.0 can be read", (unsigned)version,
                 (unsigned)src[MAGIC_LEN + 1]);
        return -1;
    }
    size_t field_len = version == 1 ? 2 : 4;
    size_t text_at = MAGIC_LEN + 2 + field_len;
    if (src_len < text_at) {
        return refuse(why, "it is cut off within its header");
    }
    size_t text_len = 0;
    for (size_t i = field_len; i-- > 0;) {
        text_len = text_len << 8 | src[MAGIC_LEN + 2 + i];
    }
    if (text_len > src_len - text_at) {
        return refuse(why, "it is cut off within its header");
    }
    *text = (cursor){src + text_at, src + text_at + text_len, why};
    out->data_at = text_at + text_len;
    return 0;
}

int cli_npy_parse(cli_npy *out, const uint8_t *src, size_t src_len, char why[CLI_NPY_WHY])
{
    cli_npy npy = {0};
    header h = {0};
    cursor text;
    why[0] = '\0';
    if (locate_header(&npy, &text, src, src_len, why) != 0 || read_header(&text, &h) != 0 ||
        judge_dtype(&npy.dtype, &h, why) != 0 || judge_shape(&npy.element_n, &h, why) != 0) {
        return -1;
    }
    uint64_t element_len = npy.dtype == TG_FP32 ? 4 : 2;
    uint64_t data_len = src_len - npy.data_at;
    if (npy.element_n > UINT64_MAX / element_len || npy.element_n * element_len != data_len) {
        int is_short = npy.element_n > data_len / element_len;
        snprintf(why, CLI_NPY_WHY,
                 "its header announces %" PRIu64 " elements of %" PRIu64 " bytes, but %s %" PRIu64 " bytes follow it",
                 npy.element_n, element_len, is_short ? "only" : "as many as", data_len);
        return -1;
    }
    npy.dim_n = h.dim_n;
    memcpy(npy.dims, h.dims, sizeof npy.dims);
    *out = npy;
    return 0;
}

size_t cli_npy_header(uint8_t dst[CLI_NPY_HEADER_CAP], tg_dtype dtype, const uint64_t *dims, uint32_t dim_n)
{
    enum { TEXT_AT = MAGIC_LEN + 4 };
    /* 64 dimensions of 20 digits and ", " each: 1408 characters, and some 100 around them. */
    char *text = (char *)dst + TEXT_AT;
    size_t cap = CLI_NPY_HEADER_CAP - TEXT_AT;
    size_t len = (size_t)snprintf(text, cap, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                  dtype == TG_FP32 ? "<f4" : "<f2");
    for (uint32_t d = 0; d < dim_n && d < CLI_NPY_DIMS; d++) {
        const char *after = dim_n == 1 ? "," : d + 1 < dim_n ? ", " : "";
        len += (size_t)snprintf(text + len, cap - len, "%" PRIu64 "%s", dims[d], after);
    }
    len += (size_t)snprintf(text + len, cap - len, "), }");
    while ((TEXT_AT + len + 1) % ALIGNMENT != 0) {
        text[len++] = ' ';
    }
    text[len++] = '\n';

    memcpy(dst, magic, MAGIC_LEN);
    dst[MAGIC_LEN] = 1;
    dst[MAGIC_LEN + 1] = 0;
    dst[MAGIC_LEN + 2] = (uint8_t)(len & 0xff);
    dst[MAGIC_LEN + 3] = (uint8_t)(len >> 8);
    return TEXT_AT + len;
}
