/* The encoder of huffman (pack/huffman.c) on the GPU: a warp a stream. A lane has neighbouring symbols; where its codes begin is the
 * sum of the lengths of all before them. The bytes of a stream wait in scratch until the lengths of all streams are known. */
#include "exec/cuda/pack_prefix.h"

enum { WARPS = 8, THREADS = WARPS * 32, EACH = TG_PACK_STREAM / 32 /* symbols of a lane */ };
enum { BLOCKS = TG_PACK_PARTS / WARPS / 2 /* of a chunk; each takes two streams a warp */ };
enum { BITS_WORDS = TG_PACK_STREAM_WORDS / 2 /* of 32 bits */ };

typedef struct encode_space {
    uint32_t codes[TG_PACK_BASE];
    uint4 bits[WARPS][BITS_WORDS / 4];
} encode_space;

/* ---- bits --------------------------------------------------------------------------------------------------------------- */

/* Bits that one thread puts into words. It shares the first and the last with other threads. */
typedef struct bit_writer {
    uint32_t *word;
    uint64_t held;
    uint32_t held_n;
    bool is_first;
} bit_writer;

/* Up to 32 bits, of one code or two. */
TG_DEVICE void put_bits(bit_writer *w, uint32_t bits, uint32_t n)
{
    w->held |= (uint64_t)bits << w->held_n;
    w->held_n += n;
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

/* ---- a stream ------------------------------------------------------------------------------------------------------------- */

/* What a lane does with its symbols and their numbers, `n` of them from any address on, four bytes at a time. Up to 3 bytes before and
 * after them are read. */
template <class Symbol, class Take> TG_DEVICE void for_each(const Symbol *symbols, uint32_t n, Take take)
{
    const uint32_t in_word = 4 / sizeof(Symbol), bits = 8 * sizeof(Symbol);
    const uint8_t *from = (const uint8_t *)symbols, *end = (const uint8_t *)(symbols + n);
    uint32_t shift = (uint32_t)((uintptr_t)from % 4) * 8;
    const uint32_t *words = (const uint32_t *)(const void *)(from - shift / 8);
    uint32_t held = n > 0 ? words[0] : 0;
#pragma unroll
    for (uint32_t i = 0; i < EACH / in_word; i++) {
        uint32_t next = (const uint8_t *)(words + i + 1) < end ? words[i + 1] : 0;
        uint32_t word = __funnelshift_r(held, next, shift);
        held = next;
#pragma unroll
        for (uint32_t k = 0; k < in_word; k++) {
            if (i * in_word + k < n) {
                take((uint32_t)(Symbol)(word >> k * bits), i * in_word + k);
            }
        }
    }
}

/* A warp codes `n` symbols into words of shared memory, which become scratch at `to`; returns the bytes of the stream. */
template <class Symbol>
TG_DEVICE uint32_t write_stream(uint16_t *to, encode_space *e, uint4 *bits, const Symbol *symbols, uint32_t n)
{
    uint32_t first = min(tg_lane() * EACH, n), count = min((uint32_t)EACH, n - first), own = 0;
    for (uint32_t i = tg_lane(); i < BITS_WORDS / 4; i += TG_WARP) {
        bits[i] = make_uint4(0, 0, 0, 0);
    }
    for_each(symbols + first, count, [&](uint32_t symbol, uint32_t) { own += e->codes[symbol] & 0xff; });
    uint32_t bit = tg_sum_before(own), all = __shfl_sync(TG_ALL_LANES, bit + own, 31), len = (all + 7) / 8;
    __syncwarp();
    bit_writer w = {(uint32_t *)(void *)bits + bit / 32, 0, bit % 32, true};
    uint32_t before = 0; /* the first code of two */
    for_each(symbols + first, count, [&](uint32_t symbol, uint32_t i) {
        uint32_t code = e->codes[symbol];
        if (i % 2 == 0) {
            before = code;
        } else {
            put_bits(&w, before >> 8 | (code >> 8) << (before & 0xff), (before & 0xff) + (code & 0xff));
        }
    });
    if (count % 2 == 1) {
        put_bits(&w, before >> 8, before & 0xff);
    }
    end_bits(&w);
    __syncwarp();
    for (uint32_t i = tg_lane(); 16 * i < len; i += TG_WARP) {
        ((uint4 *)(void *)to)[i] = bits[i];
    }
    __syncwarp();
    return len;
}

__global__ static void __launch_bounds__(THREADS) encode_streams(tg_gpu_pass p, uint8_t *scratch)
{
    __shared__ encode_space e;
    uint32_t chunk = p.first + blockIdx.x / BLOCKS, part = blockIdx.x % BLOCKS * WARPS, warp = threadIdx.x / TG_WARP;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_job_of(&j, p, scratch, chunk, TG_PACK_SYMBOLS) || !j.is_coded || j.unit->symbol != TG_GPU_HUFFMAN) {
        return;
    }
    tg_pack_scratch s = tg_pack_scratch_of(p, scratch, chunk);
    if (s.code->is_coded == 0 || part >= s.code->part_n) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < j.base; i += THREADS) {
        e.codes[i] = s.code->plans[i].x;
    }
    __syncthreads();
    for (part += warp; part < s.code->part_n; part += BLOCKS * WARPS) {
        uint32_t from = part * TG_PACK_STREAM, n = min((uint32_t)TG_PACK_STREAM, j.count - from);
        uint16_t *to = s.words + part * TG_PACK_STREAM_WORDS;
        uint32_t len = j.is_wide
                           ? write_stream(to, &e, e.bits[warp], (const uint16_t *)(const void *)j.symbols + from, n)
                           : write_stream(to, &e, e.bits[warp], j.symbols + from, n);
        if (tg_lane() == 0) {
            s.code->part_len[part] = len;
        }
    }
}

void tg_pack_huffman_encode(const tg_gpu_pass *p, uint8_t *scratch)
{
    TG_LAUNCH_EARLY(encode_streams, p->overlaps, p->chunk_n * BLOCKS, THREADS, p->stream, *p, scratch);
}
