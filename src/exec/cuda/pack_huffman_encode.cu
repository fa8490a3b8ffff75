/* The encoder of huffman (pack/huffman.c) on the GPU: a block a tile. Where a tile begins is known, since its counts and the code
 * lengths are. A byte in which two tiles meet is written by the first of them, which also knows the symbols that follow. */
#include "exec/cuda/pack_prefix.h"

/* A thread has neighbouring symbols, in whole words of the staged bytes: an odd number of words, so that threads are in different
 * banks, and enough for a tile that does not begin at a word. */
enum { THREADS = 256, EACH = 9 /* words of symbols of a byte; of two bytes twice as many */ };
enum { BITS_WORDS = TG_PACK_TILE * TG_PREFIX_BITS / 32 + 8 };

typedef struct encode_space {
    uint32_t codes[TG_PACK_BASE];
    uint4 symbols[2 * THREADS * EACH * 4 / 16];
    uint4 bits[BITS_WORDS / 4];
} encode_space;

/* ---- bits --------------------------------------------------------------------------------------------------------------- */

/* Bits that one thread puts into words. It shares the first and the last with other threads. */
typedef struct bit_writer {
    uint32_t *word;
    uint64_t held;
    uint32_t held_n;
    bool is_first;
} bit_writer;

TG_DEVICE void put_code(bit_writer *w, uint32_t code)
{
    w->held |= (uint64_t)(code >> 8) << w->held_n;
    w->held_n += code & 0xff;
    if (w->held_n >= 32) {
        if (w->is_first) {
            atomicOr(w->word++, (uint32_t)w->held);
        } else {
            *w->word++ = (uint32_t)w->held;
        }
        w->is_first = false;
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
    bit_writer w = {(uint32_t *)(void *)words + bit / 32, 0, bit % 32, true};
    return w;
}

/* ---- a tile ------------------------------------------------------------------------------------------------------------- */

/* What a thread does with its symbols, which are in bytes [from, to) of the staged ones. */
template <class Symbol, class Take> TG_DEVICE void for_each(const uint4 *staged, uint32_t from, uint32_t to, Take take)
{
    const uint32_t words = EACH * sizeof(Symbol), in_word = 4 / sizeof(Symbol), bits = 8 * sizeof(Symbol);
    const uint32_t first = threadIdx.x * words;
    for (uint32_t i = first; i < first + words; i++) {
        if (4 * i + 4 <= from || 4 * i >= to) {
            continue;
        }
        uint32_t word = ((const uint32_t *)(const void *)staged)[i];
        for (uint32_t k = 0; k < in_word; k++) {
            uint32_t at = 4 * i + k * (uint32_t)sizeof(Symbol);
            if (at >= from && at < to) {
                take((uint32_t)(Symbol)(word >> k * bits));
            }
        }
    }
}

/* Puts the codes of the symbols in bytes [from, to) from bit `bit` on; returns the bits of all threads. */
template <class Symbol> TG_DEVICE uint32_t put_tile(encode_space *e, uint32_t from, uint32_t to, uint32_t bit)
{
    uint32_t own = 0, all = 0;
    for_each<Symbol>(e->symbols, from, to, [&](uint32_t symbol) { own += e->codes[symbol] & 0xff; });
    uint32_t before = tg_sum_before_in_block(own, &all);
    bit_writer w = start_bits(e->bits, bit + before);
    for_each<Symbol>(e->symbols, from, to, [&](uint32_t symbol) { put_code(&w, e->codes[symbol]); });
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
    const uint8_t *from = j.symbols + t.lo * symbol_len;
    uint32_t first = tg_place_of(from), last = first + n * symbol_len;
    uint8_t *to = stream + bit / 8;
    uint32_t place = tg_place_of(to), start = 8 * place + bit % 8;
    for (uint32_t i = threadIdx.x; i < BITS_WORDS / 4; i += THREADS) {
        e->bits[i] = make_uint4(0, 0, 0, 0);
    }
    tg_stage_in(e->symbols, from, n * symbol_len);
    __syncthreads();
    uint32_t bits = j.is_wide ? put_tile<uint16_t>(e, first, last, start) : put_tile<uint8_t>(e, first, last, start);
    __syncthreads();
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
