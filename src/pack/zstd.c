/* Zstandard (RFC 8878), for comparison. Its input is one byte a symbol, or two if the base is above 256; words are unchanged.
 * Its contexts are placed in the scratch buffer, so that it allocates nothing. */
#define ZSTD_STATIC_LINKING_ONLY /* for contexts in caller's memory */
#include "base/bytes.h"
#include "base/memory.h"
#include "pack/pack.h"

#include <zstd.h>

enum { LEVEL = 0, FORM = 1, BYTES_MAX = 4 * TG_PACK_MAX };

static const tg_param params[] = {
    {.name = "level",
     .summary = "compression level of zstd",
     .lowest = 1,
     .highest = 9,
     .is_whole = true,
     .is_main = true,
     .standard = 3},
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The scratch buffer: symbols as bytes, then a context. */
static uint64_t scratch_len(const double *p)
{
    ZSTD_compressionParameters least = ZSTD_getCParams((int)p[LEVEL], 1, 0);
    uint64_t context = larger(ZSTD_estimateDCtxSize(), ZSTD_estimateCCtxSize_usingCParams(least));
    for (unsigned long long len = 1; len <= BYTES_MAX; len *= 2) { /* zstd's parameters depend on the length */
        ZSTD_compressionParameters of_len = ZSTD_getCParams((int)p[LEVEL], len, 0);
        context = larger(context, ZSTD_estimateCCtxSize_usingCParams(of_len));
    }
    return BYTES_MAX + tg_apart(context);
}

static uint32_t width(const tg_coding *c)
{
    return c->base == 0 ? c->word_len : c->base <= 256 ? 1 : 2;
}

static void *context_memory(const tg_coding *c)
{
    return (uint8_t *)c->scratch + BYTES_MAX;
}

static size_t encode(uint8_t *out, size_t cap, const void *symbols, size_t count, const tg_coding *c)
{
    uint8_t *packed = c->scratch;
    const uint8_t *bytes = c->base == 0 ? symbols : packed;
    const uint16_t *narrow = symbols;
    uint32_t each = width(c);
    for (size_t i = 0; c->base != 0 && i < count; i++) {
        packed[each * i] = (uint8_t)narrow[i];
        if (each == 2) {
            packed[2 * i + 1] = (uint8_t)(narrow[i] >> 8);
        }
    }
    if (cap < 2) {
        return 0;
    }
    ZSTD_CCtx *context = ZSTD_initStaticCCtx(context_memory(c), (size_t)scratch_len(c->params) - BYTES_MAX);
    if (context == NULL) {
        return 0;
    }
    out[0] = FORM;
    size_t len = ZSTD_compressCCtx(context, out + 1, cap - 1, bytes, each * count, (int)c->params[LEVEL]);
    return ZSTD_isError(len) ? 0 : 1 + len;
}

/* Accepts exactly one zstd frame of the expected length, with symbols below the base. */
static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    uint8_t *unpacked = c->base == 0 ? symbols : c->scratch;
    uint16_t *narrow = symbols;
    uint32_t each = width(c);
    if (bytes[0] != FORM || ZSTD_findFrameCompressedSize(bytes + 1, len - 1) != len - 1 ||
        ZSTD_getFrameContentSize(bytes + 1, len - 1) != each * (unsigned long long)count) {
        return false;
    }
    ZSTD_DCtx *context = ZSTD_initStaticDCtx(context_memory(c), (size_t)scratch_len(c->params) - BYTES_MAX);
    if (context == NULL || ZSTD_decompressDCtx(context, unpacked, each * count, bytes + 1, len - 1) != each * count) {
        return false;
    }
    if (c->base == 0) {
        return true;
    }
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        narrow[i] = each == 1 ? unpacked[i] : tg_get16(unpacked + 2 * i);
        largest = narrow[i] > largest ? narrow[i] : largest;
    }
    return largest < c->base;
}

const tg_symbol_part tg_symbol_zstd = {
    .part = {.name = "zstd",
             .summary = "zstd: symbols or words, for comparison",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .codes_symbols = true,
    .codes_words = true,
    .scratch_len = scratch_len,
    .encode = encode,
    .decode = decode,
};
