/* Lossless coding of floats (pack/lossless.c) on the GPU: a word is rotated left by one bit and split. Its lower bytes go to the
 * frame, its upper byte, which the range coder takes as a symbol, to scratch; and back. */
#include "exec/cuda/pack.h"

enum { WARPS = 8, THREADS = WARPS * 32, PART = 2048 /* words that are staged at a time */, COPIES = 4 };

typedef struct split_space {
    uint4 lowers[PART * 3 / 16 + 1], uppers[PART / 16 + 1];
    uint32_t counters[WARPS][256 * COPIES];
} split_space;

TG_DEVICE uint32_t load_word(const uint8_t *words, uint32_t word_len, uint32_t i)
{
    return word_len == 4 ? ((const uint32_t *)(const void *)words)[i] : ((const uint16_t *)(const void *)words)[i];
}

TG_DEVICE uint32_t rotate_left(uint32_t word, uint32_t bits)
{
    return (word << 1 | word >> (bits - 1)) & (uint32_t)((1ull << bits) - 1);
}

TG_DEVICE uint32_t rotate_right(uint32_t word, uint32_t bits)
{
    return (word >> 1 | word << (bits - 1)) & (uint32_t)((1ull << bits) - 1);
}

/* Stages words [lo, lo + n): lower bytes to `lowers`, upper bytes to `uppers`, which are counted. */
TG_DEVICE void split_part(uint8_t *lowers, uint8_t *uppers, uint32_t *counters, const uint8_t *words, uint32_t word_len,
                          uint32_t lo, uint32_t n)
{
    uint32_t rest = word_len - 1;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t word = rotate_left(load_word(words, word_len, lo + i), 8 * word_len), upper = word >> 8 * rest;
        for (uint32_t b = 0; b < rest; b++) {
            lowers[i * rest + b] = (uint8_t)(word >> 8 * b);
        }
        uppers[i] = (uint8_t)upper;
        atomicAdd(&counters[upper * COPIES + tg_lane() % COPIES], 1u);
    }
}

/* Splits one tile, all threads of a block together. */
TG_DEVICE void split_tile(uint8_t *out, uint16_t *counts, split_space *s, const tg_pack_job &j, uint32_t tile)
{
    tg_pack_tile t = tg_pack_tile_of(j, tile);
    uint32_t word_len = j.unit->plain_len, rest = word_len - 1;
    for (uint32_t i = threadIdx.x; i < WARPS * 256 * COPIES; i += THREADS) {
        (&s->counters[0][0])[i] = 0;
    }
    for (uint32_t lo = t.lo; lo < t.hi; lo += PART) {
        uint32_t n = min((uint32_t)PART, t.hi - lo);
        uint8_t *to = out + (uint64_t)lo * rest, *upper_to = (uint8_t *)j.symbols + lo;
        __syncthreads();
        split_part((uint8_t *)s->lowers + tg_place_of(to), (uint8_t *)s->uppers + tg_place_of(upper_to),
                   s->counters[threadIdx.x / TG_WARP], j.words, word_len, lo, n);
        __syncthreads();
        tg_stage_out(to, s->lowers, n * rest);
        tg_stage_out(upper_to, s->uppers, n);
    }
    for (uint32_t symbol = threadIdx.x; symbol < 256; symbol += THREADS) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < WARPS * COPIES; i++) {
            sum += s->counters[i / COPIES][symbol * COPIES + i % COPIES];
        }
        counts[symbol] = (uint16_t)sum;
    }
    __syncthreads();
}

__global__ static void __launch_bounds__(THREADS) split_tiles(tg_gpu_pass p, uint8_t *scratch)
{
    __shared__ split_space s;
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, TG_PACK_WORDS)) {
        return;
    }
    uint8_t *out = p.space.out[j.chunk] + p.space.views[j.chunk].symbols + 1;
    uint16_t *counts = tg_pack_scratch_of(p, scratch, j.chunk).counts;
    for (; tile < j.tile_n; tile += tiles) {
        split_tile(out, counts + tile * TG_PACK_BASE, &s, j, tile);
    }
}

void tg_pack_split(const tg_gpu_pass *p, uint8_t *scratch)
{
    TG_LAUNCH(split_tiles, p->tile_n, THREADS, p->stream, *p, scratch);
}

/* ---- back --------------------------------------------------------------------------------------------------------------- */

/* Joins words [lo, lo + n). Without uppers, the staged bytes are the words. */
TG_DEVICE void join_part(uint8_t *words, const uint8_t *lowers, const uint8_t *uppers, uint32_t word_len, uint32_t n)
{
    uint32_t rest = uppers != nullptr ? word_len - 1 : word_len;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t word = 0;
        for (uint32_t b = 0; b < rest; b++) {
            word |= (uint32_t)lowers[i * rest + b] << 8 * b;
        }
        if (uppers != nullptr) {
            word = rotate_right(word | (uint32_t)uppers[i] << 8 * rest, 8 * word_len);
        }
        if (word_len == 4) {
            ((uint32_t *)(void *)words)[i] = word;
        } else {
            ((uint16_t *)(void *)words)[i] = (uint16_t)word;
        }
    }
}

/* A block takes tiles of coded and of plain chunks. */
__global__ static void __launch_bounds__(THREADS) join_tiles(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch)
{
    __shared__ uint4 lowers[PART * 4 / 16 + 1];
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, TG_PACK_WORDS)) {
        return;
    }
    const tg_view *v = &p.space.views[j.chunk];
    const uint8_t *bytes = body + v->symbols;
    uint64_t len = v->indices - v->symbols;
    bool is_plain = len > 0 && bytes[0] == 0;
    if (len == 0 || (is_plain ? len != 1 + (uint64_t)j.plain_len : len < 1 + (uint64_t)j.lower_len)) {
        tg_refuse_chunk(p, j.chunk);
        return;
    }
    uint32_t word_len = j.unit->plain_len, rest = is_plain ? word_len : word_len - 1;
    for (uint32_t lo = tile * PART; lo < j.count; lo += tiles * PART) {
        uint32_t n = min((uint32_t)PART, j.count - lo);
        const uint8_t *from = bytes + 1 + (uint64_t)lo * rest;
        tg_stage_in(lowers, from, n * rest);
        __syncthreads();
        join_part((uint8_t *)j.words + (uint64_t)lo * word_len, (const uint8_t *)lowers + tg_place_of(from),
                  is_plain ? nullptr : j.symbols + lo, word_len, n);
        __syncthreads();
    }
}

void tg_pack_join(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    TG_LAUNCH(join_tiles, p->tile_n, THREADS, p->stream, *p, body, scratch);
}
