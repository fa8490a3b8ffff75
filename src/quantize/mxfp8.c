/* Floats of 8 bits with a power of two for every 64 values: MXFP8 of OCP Microscaling v1.0, but for the length of blocks, which is 32
 * there. A float of 8 bits has range enough for 64, and the scales take half the bytes. */
#include "quantize/blocks.h"

enum { FORMAT, ROUND, HADAMARD, BLOCK };

const char *const tg_round_choices[] = {"nearest", "random", NULL};
const char *const tg_hadamard_choices[] = {"no", "32", "64", "128", NULL};
static const char *const format_choices[] = {"e4m3", "e5m2", NULL};

static const tg_param params[] = {
    {.name = "format", .summary = "bits of exponent and of fraction", .choices = format_choices, .is_main = true},
    TG_ROUND_PARAM,
    TG_HADAMARD_PARAM,
    TG_BLOCK_PARAM(2 * TG_MX_BLOCK),
};

static const tg_block_format *format(const double *p)
{
    return p[FORMAT] == 0 ? &tg_e4m3 : &tg_e5m2;
}

static uint32_t base(const double *p)
{
    (void)p;
    return 256;
}

static uint32_t side_len(const double *p)
{
    (void)p;
    return 1;
}

static bool draws(const double *p)
{
    return p[ROUND] == TG_ROUND_RANDOM;
}

static uint32_t rotation(const double *p)
{
    return tg_rotation_of(p[HADAMARD]);
}

static const char *refuses(const double *p)
{
    return tg_block_refused(p[BLOCK]);
}

static void encode_blocks(const tg_blocks *b, const double *p)
{
    tg_kernels_best()->blocks.mx_encode(b->symbols, b->side, b->values, b->draws, format(p), (uint32_t)p[BLOCK], b->n);
}

static void decode_blocks(float *values, const uint16_t *symbols, const uint8_t *side, const uint8_t *head, size_t n,
                          const double *p)
{
    (void)head;
    tg_kernels_best()->blocks.mx_decode(values, symbols, side, format(p), (uint32_t)p[BLOCK], n);
}

const tg_quantize_part tg_quantize_mxfp8 = {
    .part = {.name = "mxfp8",
             .summary = "MXFP8: floats of 8 bits, times a power of two for every 64 values",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_param = BLOCK,
    .side_len = side_len,
    .draws = draws,
    .refuses = refuses,
    .rotation = rotation,
    .encode_blocks = encode_blocks,
    .decode_blocks = decode_blocks,
};
