/* The upper half of a single: its range, 8 significant bits, to nearest even. A finite value stays finite. */
#include "kernels/kernels.h"
#include "quantize/quantize.h"

enum { PIECE = 1024 }; /* values whose halves lie between floats and words */

static void encode(uint32_t *words, float *decoded, const float *values, size_t n)
{
    const tg_kernels *k = tg_kernels_best();
    uint16_t halves[PIECE];
    for (size_t done = 0; done < n; done += PIECE) {
        size_t m = n - done < PIECE ? n - done : PIECE;
        k->bf16_narrow(halves, values + done, m);
        k->bf16_widen(decoded + done, halves, m);
        for (size_t i = 0; i < m; i++) {
            words[done + i] = halves[i];
        }
    }
}

static void decode(float *values, const uint32_t *words, size_t n)
{
    const tg_kernels *k = tg_kernels_best();
    uint16_t halves[PIECE];
    for (size_t done = 0; done < n; done += PIECE) {
        size_t m = n - done < PIECE ? n - done : PIECE;
        for (size_t i = 0; i < m; i++) {
            halves[i] = (uint16_t)words[done + i];
        }
        k->bf16_widen(values + done, halves, m);
    }
}

const tg_quantize_part tg_quantize_bf16 = {
    .part = {.name = "bf16", .summary = "the upper half of a single: 8 significant bits, its whole range"},
    .plain_len = 2,
    .adds_up = true,
    .encode = encode,
    .decode = decode,
};
