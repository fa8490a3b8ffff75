/* Dense, in the gradient's own half precision: finite blocks are copied, not converted. A block that holds NaN or Inf, or
 * spans several tensors, goes the plain way. */
#include "routes/dense.h"

const uint8_t *tg_gradient_bytes(const tg_encoding *e, uint64_t at, size_t n)
{
    const tg_piece *piece = tg_unit_piece(e->unit->unit, at);
    bool is_whole = n > 0 && at + n <= piece->at + piece->n;
    const uint8_t *grad = e->source->grads[piece->tensor];
    return is_whole ? grad + (at - piece->at) * sizeof(uint16_t) : NULL;
}

bool tg_bytes_are_finite(const tg_encoding *e, const uint8_t *bytes, size_t n)
{
    uint16_t exponent = e->unit->stages.quantize->wire_dtype == TG_FP16 ? 0x7c00 : 0x7f80;
    return tg_kernels_best()->halves.all_finite(bytes, exponent, n);
}

static void encode(tg_encoding *e)
{
    tg_plain p;
    tg_plain_start(&p, e);
    for (uint32_t done = 0, n = 0; done < e->chunk->n; done += n) {
        uint64_t at = e->chunk->at + done;
        n = e->chunk->n - done < TG_BLOCK ? e->chunk->n - done : TG_BLOCK;
        const uint8_t *bytes = tg_gradient_bytes(e, at, n);
        if (bytes != NULL && tg_bytes_are_finite(e, bytes, n)) {
            tg_plain_put(&p, bytes, n * p.len, bytes + n * p.len, n * p.len);
        } else if (!tg_plain_block(&p, at, n)) {
            return;
        }
    }
    tg_plain_end(&p);
}

const tg_route tg_route_verbatim = {.encode = encode, .add = tg_plain_add, .set = tg_plain_set, .hashes = true};
