/* Packing and reading of symbols and words: which kernels run, in their order. */
#include "exec/cuda/pack.h"

/* ---- what a launch is told --------------------------------------------------------------------------------------------------- */

static bool has(const tg_gpu_pass *p, uint32_t pack)
{
    return p->chunk_n > 0 && (p->packs == 0 || (p->packs >> pack & 1) != 0);
}

uint32_t tg_pack_share(const tg_gpu_pass *p)
{
    const uint32_t all = 768, least = 8, limit = 32; /* so many run at once on 132 multiprocessors */
    uint32_t each = p->chunk_n > 0 ? all / p->chunk_n : least, most = each < least ? least : each < limit ? each : limit;
    uint32_t mean = p->chunk_n > 0 ? (p->tile_n + p->chunk_n - 1) / p->chunk_n : 1;
    return has(p, TG_GPU_BITS) ? 0 : mean < most ? mean : most;
}

/* Whether some chunk may have symbols that are bits, be it because its coder found nothing shorter. */
static bool has_symbols(const tg_gpu_pass *p)
{
    return has(p, TG_GPU_BITS) || has(p, TG_GPU_RANS) || has(p, TG_GPU_HUFFMAN);
}

uint64_t tg_gpu_pack_scratch(uint32_t chunk_n, uint64_t element_n)
{
    return (uint64_t)TG_PACK_CHUNK * chunk_n + TG_PACK_ELEMENT * element_n;
}

const char *tg_gpu_pack_lacks(const tg_gpu_unit *unit)
{
    return unit->coded && unit->symbol > TG_GPU_LOSSLESS ? "zstd" : NULL;
}

/* ---- order ---------------------------------------------------------------------------------------------------------------- */

void tg_gpu_pack_symbols(const tg_gpu_pass *p, uint8_t *scratch)
{
    if (!p->counts_early && (has(p, TG_GPU_RANS) || has(p, TG_GPU_HUFFMAN))) {
        tg_pack_count(p, scratch);
    }
    if (has(p, TG_GPU_RANS)) {
        tg_pack_rans_table(p, scratch, TG_PACK_SYMBOLS);
        tg_pack_rans_encode(p, scratch, TG_PACK_SYMBOLS);
    }
    if (has(p, TG_GPU_HUFFMAN)) {
        tg_pack_huffman_table(p, scratch);
        tg_pack_huffman_encode(p, scratch);
    }
    if (has_symbols(p)) {
        tg_pack_place(p, scratch, TG_PACK_SYMBOLS);
    }
}

void tg_gpu_pack_words(const tg_gpu_pass *p, uint8_t *scratch)
{
    if (has(p, TG_GPU_LOSSLESS)) {
        tg_pack_split(p, scratch);
        tg_pack_rans_table(p, scratch, TG_PACK_WORDS);
        tg_pack_rans_encode(p, scratch, TG_PACK_WORDS);
        tg_pack_place(p, scratch, TG_PACK_WORDS);
    }
}

void tg_gpu_read_symbols(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    if (has_symbols(p)) {
        tg_pack_read_plain(p, body, scratch, TG_PACK_SYMBOLS);
    }
    if (has(p, TG_GPU_RANS)) {
        tg_pack_rans_decode(p, body, scratch, TG_PACK_SYMBOLS);
    }
    if (has(p, TG_GPU_HUFFMAN)) {
        tg_pack_huffman_decode(p, body, scratch);
    }
}

void tg_gpu_read_words(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    if (has(p, TG_GPU_LOSSLESS)) {
        tg_pack_rans_decode(p, body, scratch, TG_PACK_WORDS);
        if (!p->splits) {
            tg_pack_join(p, body, scratch);
        }
    }
}
