/* Floats of 4 bits, e2m1, with a power of two for every 32 values: MXFP4 of OCP Microscaling v1.0. */
#include "quantize/blocks.h"

enum { ROUND, HADAMARD, BLOCK };

static const tg_param params[] = {TG_ROUND_PARAM, TG_HADAMARD_PARAM, TG_BLOCK_PARAM(TG_MX_BLOCK)};

static uint32_t base(const double *p)
{
    (void)p;
    return 16;
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
    tg_kernels_best()->blocks.mx_encode(b->symbols, b->side, b->values, b->draws, &tg_e2m1, (uint32_t)p[BLOCK], b->n);
}

static void decode_blocks(float *values, const uint16_t *symbols, const uint8_t *side, const uint8_t *head, size_t n,
                          const double *p)
{
    (void)head;
    tg_kernels_best()->blocks.mx_decode(values, symbols, side, &tg_e2m1, (uint32_t)p[BLOCK], n);
}

const tg_quantize_part tg_quantize_mxfp4 = {
    .part = {.name = "mxfp4",
             .summary = "MXFP4: floats of 4 bits, times a power of two for every 32 values",
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
