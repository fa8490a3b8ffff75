/* Symbols of a chunk into bytes, block by block or, for a coder, as a whole. */
#include "routes/dense.h"

void tg_packer_start(tg_packer *p, tg_encoding *e)
{
    const tg_format *f = &e->unit->format;
    *p = (tg_packer){.e = e, .side = e->out, .out = e->out + tg_side_len(f, e->chunk->n)};
}

uint16_t *tg_packer_next(const tg_packer *p)
{
    return p->e->scratch->chunk->symbols + (p->count - p->packed);
}

void tg_packer_advance(tg_packer *p, size_t n)
{
    const tg_format *f = &p->e->unit->format;
    p->count += n;
    if (f->coded || p->count == p->e->chunk->n) {
        return; /* the coder needs all of them, and the last are written at the end */
    }
    uint16_t *symbols = p->e->scratch->chunk->symbols;
    size_t waiting = (size_t)(p->count - p->packed);
    size_t done = tg_bits_write_some(p->out + tg_bits_len(p->packed, f->base), symbols, waiting, f->base);
    memmove(symbols, symbols + done, (waiting - done) * sizeof *symbols);
    p->packed += done;
}

void tg_packer_end(tg_packer *p)
{
    tg_encoding *e = p->e;
    const tg_format *f = &e->unit->format;
    uint8_t *out = p->out + tg_bits_len(p->packed, f->base);
    size_t waiting = (size_t)(p->count - p->packed);
    size_t len = tg_write_symbols(out, e, e->scratch->chunk->symbols, waiting, p->side);
    e->result->view = (tg_view){
        .symbols = (uint64_t)(p->out - e->out), .indices = (uint64_t)(out - e->out) + len, .count = e->chunk->n};
}
