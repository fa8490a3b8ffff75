/* The encoder of huffman (pack/huffman.c) on the GPU: a block a tile. Where a tile begins is known, since its counts and the code
 * lengths are. A byte in which two tiles meet is written by the first of them, which also knows the symbols that follow. */
#include "exec/cuda/pack_prefix.h"

enum { THREADS = 256, EACH = TG_PACK_TILE / THREADS /* symbols of a thread: neighbours */ };
enum { BITS_WORDS = TG_PACK_TILE * TG_PREFIX_BITS / 32 + 8 };

typedef struct encode_space {
    uint32_t codes[TG_PACK_BASE];
    uint4 symbols[2 * TG_PACK_TILE / 16 + 1];
    uint4 bits[BITS_WORDS / 4];
} encode_space;

/* ---- bits --------------------------------------------------------------------------------------------------------------- */

/* Bits that one thread adds to words which other threads may add bits to. */
typedef struct bit_writer {
    uint32_t *word;
    uint64_t held;
    uint32_t held_n;
} bit_writer;

TG_DEVICE void put_code(bit_writer *w, uint32_t code)
{
    w->held |= (uint64_t)(code >> 8) << w->held_n;
    w->held_n += code & 0xff;
    if (w->held_n >= 32) {
        atomicOr(w->word++, (uint32_t)w->held);
        w->held >>= 32;
        w->held_n -= 32;
    }
}

TG_DEVICE void end_bits(const bit_writer *w)
{
    if (w->held_n > 0) {
        atomicOr(w->word, (uint32_t)w->held);
    }
}

TG_DEVICE bit_writer start_bits(uint4 *words, uint32_t bit)
{
    bit_writer w = {(uint32_t *)(void *)words + bit / 32, 0, bit % 32};
    return w;
}

/* ---- a tile ------------------------------------------------------------------------------------------------------------- */

/* Puts the codes of n staged symbols from bit `bit` on; returns the bits of all threads. */
template <class Symbol> TG_DEVICE uint32_t put_tile(encode_space *e, const Symbol *symbols, uint32_t n, uint32_t bit)
{
    uint32_t lo = min(threadIdx.x * EACH, n), hi = min(lo + EACH, n), own = 0, all = 0;
    for (uint32_t i = lo; i < hi; i++) {
        own += e->codes[symbols[i]] & 0xff;
    }
    uint32_t before = tg_sum_before_in_block(own, &all);
    bit_writer w = start_bits(e->bits, bit + before);
    for (uint32_t i = lo; i < hi; i++) {
        put_code(&w, e->codes[symbols[i]]);
    }
    end_bits(&w);
    return all;
}

/* One thread fills the last byte with what follows the tile. */
TG_DEVICE void fill_byte(encode_space *e, const tg_pack_job &j, const tg_pack_tile &t, uint32_t bit)
{
    bit_writer w = start_bits(e->bits, bit);
    uint32_t left = (8 - bit % 8) % 8;
    for (uint32_t i = t.hi; i < t.end && left > 0; i++) {
        uint32_t code = e->codes[tg_pack_symbol(j, i)], length = code & 0xff, fits = min(length, left);
        put_code(&w, (code >> 8 & ((1u << fits) - 1)) << 8 | fits);
        left -= fits;
    }
    end_bits(&w);
}

/* Writes a tile to its stream, which begins at `stream`. */
TG_DEVICE void write_tile(uint8_t *stream, encode_space *e, const tg_pack_job &j, const tg_pack_tile &t, uint32_t bit)
{
    uint32_t n = t.hi - t.lo, symbol_len = j.is_wide ? 2 : 1;
    const uint8_t *from = j.symbols + t.lo * symbol_len, *staged = (uint8_t *)e->symbols + tg_place_of(from);
    uint8_t *to = stream + bit / 8;
    uint32_t place = tg_place_of(to), start = 8 * place + bit % 8;
    for (uint32_t i = threadIdx.x; i < BITS_WORDS / 4; i += THREADS) {
        e->bits[i] = make_uint4(0, 0, 0, 0);
    }
    tg_stage_in(e->symbols, from, n * symbol_len);
    __syncthreads();
    uint32_t bits =
        j.is_wide ? put_tile(e, (const uint16_t *)(const void *)staged, n, start) : put_tile(e, staged, n, start);
    if (threadIdx.x == 0) {
        fill_byte(e, j, t, start + bits);
    }
    __syncthreads();
    uint32_t skip = bit % 8 != 0 ? 1 : 0, end = (bit % 8 + bits + 7) / 8;
    tg_stage_out(to + skip, e->bits + (place + skip) / 16, end - skip);
}

__global__ static void __launch_bounds__(THREADS) encode_tiles(tg_gpu_pass p, uint8_t *scratch)
{
    __shared__ encode_space e;
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, TG_PACK_SYMBOLS) || !j.is_coded ||
        j.unit->symbol != TG_GPU_HUFFMAN) {
        return;
    }
    const tg_pack_code *code = tg_pack_scratch_of(p, scratch, j.chunk).code;
    if (code->is_coded == 0 || tile >= j.tile_n) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        e.codes[i] = code->plans[i].x;
    }
    uint8_t *out = p.space.out[j.chunk] + p.space.views[j.chunk].symbols;
    for (; tile < j.tile_n; tile += tiles) {
        tg_pack_tile t = tg_pack_tile_of(j, tile);
        if (t.lo < t.hi) {
            write_tile(out + code->tile_bytes[tile], &e, j, t, code->tile_bits[tile]);
        }
        __syncthreads();
    }
}

void tg_pack_huffman_encode(const tg_gpu_pass *p, uint8_t *scratch)
{
    TG_LAUNCH(encode_tiles, p->tile_n, THREADS, p->stream, *p, scratch);
}
