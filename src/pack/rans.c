/* rANS with the chunk's own frequencies: symbols near their entropy. In recipes with it, `gaps` also codes index gaps so. */
#include "pack/rans_coder.h"

static uint64_t scratch_len(const double *p)
{
    (void)p;
    return tg_rans_scratch_len();
}

static size_t encode(uint8_t *out, size_t cap, const void *symbols, size_t count, const tg_coding *c)
{
    size_t len = cap < 1 ? 0 : tg_rans_encode(out + 1, out, cap - 1, 0, symbols, count, c->base, c->scratch);
    return len == 0 ? 0 : 1 + len;
}

static bool decode(void *symbols, const uint8_t *bytes, size_t len, size_t count, const tg_coding *c)
{
    return tg_rans_decode(symbols, bytes + 1, len - 1, bytes[0], count, c->base, c->scratch);
}

const tg_symbol_part tg_symbol_rans = {
    .part = {.name = "rans", .summary = "rANS: symbols near their entropy; codes index gaps too"},
    .codes_symbols = true,
    .scratch_len = scratch_len,
    .encode = encode,
    .decode = decode,
};
