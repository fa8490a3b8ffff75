/* Floats of 4 bits, e2m1, with an e4m3 for every 16 values and one single for all: NVFP4. Chunks are encoded independently, so
 * each has that single, and a tensor has one for every 262,144 elements. */
#include "quantize/blocks.h"
#include "quantize/bucket.h"

#include <math.h>

enum { ROUND, HADAMARD };

static const tg_param params[] = {TG_ROUND_PARAM, TG_HADAMARD_PARAM};

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

/* So that the largest value becomes the largest e4m3 times the largest e2m1. */
static void write_head(uint8_t *head, uint32_t largest)
{
    float value = tg_bits_float(largest);
    tg_put_float(head, isfinite(value) ? value / (tg_e4m3.largest * tg_e2m1.largest) : NAN);
}

static void encode_blocks(const tg_blocks *b, const double *p)
{
    (void)p;
    tg_kernels_best()->blocks.nv_encode(b->symbols, b->side, b->values, b->draws, tg_get_float(b->head), b->n);
}

static void decode_blocks(float *values, const uint16_t *symbols, const uint8_t *side, const uint8_t *head, size_t n,
                          const double *p)
{
    (void)p;
    tg_kernels_best()->blocks.nv_decode(values, symbols, side, tg_get_float(head), n);
}

const tg_quantize_part tg_quantize_nvfp4 = {
    .part = {.name = "nvfp4",
             .summary = "NVFP4: floats of 4 bits, times an e4m3 for every 16 values and a single for each chunk",
             .params = params,
             .param_n = sizeof params / sizeof *params},
    .base = base,
    .bucket_fixed = TG_NV_BLOCK,
    .side_len = side_len,
    .head_len = sizeof(float),
    .write_head = write_head,
    .draws = draws,
    .rotation = rotation,
    .encode_blocks = encode_blocks,
    .decode_blocks = decode_blocks,
};
