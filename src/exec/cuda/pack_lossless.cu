/* Lossless coding of floats (pack/lossless.c) on the GPU: a word is rotated left by one bit and split. Its lower bytes go to the
 * frame, its upper byte, which the range coder takes as a symbol and which is counted, to scratch; and back. A thread takes 16 bytes of
 * words at a time, and a block stages them in shared memory, because they stand at any address in a frame. */
#include "exec/cuda/pack.h"

enum { THREADS = 256, PART = 4096 * 2 /* bytes of words that are staged at a time */ };

/* ---- words in vectors --------------------------------------------------------------------------------------------------- */

/* 16 bytes of words of 4 bytes become 12 lower and 4 upper bytes; of words of 2 bytes, 8 and 8. `lower` has 3 or 2 words, `upper`
 * 1 or 2. */
TG_DEVICE void split_fours(uint32_t *lower, uint32_t *upper, const uint32_t *words)
{
    uint32_t r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = words[i] << 1 | words[i] >> 31;
    }
    lower[0] = (r[0] & 0xffffff) | r[1] << 24;
    lower[1] = (r[1] >> 8 & 0xffff) | r[2] << 16;
    lower[2] = (r[2] >> 16 & 0xff) | r[3] << 8;
    upper[0] = r[0] >> 24 | (r[1] >> 24) << 8 | (r[2] >> 24) << 16 | (r[3] >> 24) << 24;
}

TG_DEVICE void join_fours(uint32_t *words, const uint32_t *lower, const uint32_t *upper)
{
    uint32_t r[4] = {
        (lower[0] & 0xffffff) | upper[0] << 24, lower[0] >> 24 | (lower[1] & 0xffff) << 8 | (upper[0] >> 8) << 24,
        lower[1] >> 16 | (lower[2] & 0xff) << 16 | (upper[0] >> 16) << 24, lower[2] >> 8 | (upper[0] >> 24) << 24};
    for (int i = 0; i < 4; i++) {
        words[i] = r[i] >> 1 | r[i] << 31;
    }
}

/* Both halves of a word rotated by one bit. */
TG_DEVICE uint32_t rotate_halves_left(uint32_t pair)
{
    return (pair << 1 & 0xfffefffe) | (pair >> 15 & 0x00010001);
}

TG_DEVICE uint32_t rotate_halves_right(uint32_t pair)
{
    return (pair >> 1 & 0x7fff7fff) | (pair << 15 & 0x80008000);
}

TG_DEVICE void split_twos(uint32_t *lower, uint32_t *upper, const uint32_t *words)
{
    for (int i = 0; i < 2; i++) {
        uint32_t a = rotate_halves_left(words[2 * i]), b = rotate_halves_left(words[2 * i + 1]);
        lower[i] = (a & 0xff) | (a >> 8 & 0xff00) | (b & 0xff) << 16 | (b >> 16 & 0xff) << 24;
        upper[i] = (a >> 8 & 0xff) | (a >> 16 & 0xff00) | (b >> 8 & 0xff) << 16 | (b >> 24) << 24;
    }
}

TG_DEVICE void join_twos(uint32_t *words, const uint32_t *lower, const uint32_t *upper)
{
    for (int i = 0; i < 4; i++) {
        uint32_t l = lower[i / 2] >> i % 2 * 16, u = upper[i / 2] >> i % 2 * 16;
        words[i] = rotate_halves_right((l & 0xff) | (u & 0xff) << 8 | (l & 0xff00) << 8 | (u & 0xff00) << 16);
    }
}

/* ---- splitting ---------------------------------------------------------------------------------------------------------- */

enum { UPPERS = 256, WARPS = THREADS / 32 };

typedef struct split_space {
    uint4 words[PART / 16 + 2];
    uint4 lowers[PART / 16 + 2], uppers[PART / 16 + 2]; /* each from its first byte on */
    uint32_t counts[WARPS][UPPERS];                     /* of upper bytes */
} split_space;

/* Counts the upper bytes of one vector of words, `n` of them. */
TG_DEVICE void count_uppers(uint32_t *counts, const uint32_t *uppers, uint32_t n)
{
    TG_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        if (i < n) {
            atomicAdd(&counts[uppers[i / 4] >> i % 4 * 8 & 0xff], 1u);
        }
    }
}

/* Splits `len` bytes of words, which begin at a word of 4 bytes in shared memory, and counts their upper bytes. What is after them becomes
 * something, too. */
TG_DEVICE void split_part(split_space *s, const uint32_t *words, uint32_t word_len, uint32_t len)
{
    uint32_t *lowers = (uint32_t *)s->lowers, *uppers = (uint32_t *)s->uppers, *counts = s->counts[threadIdx.x / TG_WARP];
    for (uint32_t v = threadIdx.x; v * 16 < len; v += THREADS) {
        uint32_t n = min(len - v * 16, 16u) / word_len, upper[2] = {0, 0};
        if (word_len == 4) {
            split_fours(lowers + 3 * v, upper, words + 4 * v);
            uppers[v] = upper[0];
        } else {
            split_twos(lowers + 2 * v, upper, words + 4 * v);
            uppers[2 * v] = upper[0];
            uppers[2 * v + 1] = upper[1];
        }
        count_uppers(counts, upper, n);
    }
}

/* Puts the counts of a tile where tables are made of them, and begins anew. */
TG_DEVICE void end_counts(split_space *s, uint16_t *counts)
{
    static_assert((int)THREADS == (int)UPPERS, "a thread a symbol");
    uint32_t sum = 0;
    TG_UNROLL
    for (uint32_t w = 0; w < WARPS; w++) {
        sum += s->counts[w][threadIdx.x];
        s->counts[w][threadIdx.x] = 0;
    }
    if (counts != nullptr) {
        counts[threadIdx.x] = (uint16_t)sum;
    }
}

/* A whole part from word `lo` on, of a chunk whose words begin at a multiple of 16: words come from memory and upper bytes go there
 * without shared memory. */
TG_DEVICE void split_whole(split_space *s, const tg_pack_job &j, uint8_t *out, uint32_t lo)
{
    enum { AT_ONCE = PART / 16 / THREADS };
    uint32_t word_len = j.unit->plain_len, *lowers = (uint32_t *)s->lowers, *counts = s->counts[threadIdx.x / TG_WARP];
    const uint4 *from = (const uint4 *)(const void *)(j.words + (uint64_t)lo * word_len);
    uint8_t *uppers = (uint8_t *)j.symbols + lo;
    uint4 held[AT_ONCE];
    TG_UNROLL
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        held[k] = from[k * THREADS + threadIdx.x];
    }
    TG_UNROLL
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        uint32_t v = k * THREADS + threadIdx.x, upper[2] = {0, 0};
        const uint32_t words[4] = {held[k].x, held[k].y, held[k].z, held[k].w};
        if (word_len == 4) {
            split_fours(lowers + 3 * v, upper, words);
            ((uint32_t *)(void *)uppers)[v] = upper[0];
        } else {
            split_twos(lowers + 2 * v, upper, words);
            ((uint2 *)(void *)uppers)[v] = make_uint2(upper[0], upper[1]);
        }
        count_uppers(counts, upper, 16 / word_len);
    }
    __syncthreads();
    uint32_t rest = word_len - 1;
    tg_copy_out(out + (uint64_t)lo * rest, (const uint8_t *)s->lowers, PART / word_len * rest);
    __syncthreads();
}

/* Words [lo, lo + n) of a chunk. */
TG_DEVICE void split_some(split_space *s, const tg_pack_job &j, uint8_t *out, uint32_t lo, uint32_t n)
{
    uint32_t word_len = j.unit->plain_len;
    const uint8_t *from = j.words + (uint64_t)lo * word_len;
    tg_stage_in(s->words, from, n * word_len);
    __syncthreads();
    const uint8_t *words = (const uint8_t *)s->words + tg_place_of(from);
    split_part(s, (const uint32_t *)(const void *)words, word_len, n * word_len);
    __syncthreads();
    tg_copy_out(out + (uint64_t)lo * (word_len - 1), (const uint8_t *)s->lowers, n * (word_len - 1));
    tg_copy_out((uint8_t *)j.symbols + lo, (const uint8_t *)s->uppers, n);
    __syncthreads();
}

/* A block takes tiles of a chunk, part after part. */
__global__ static void __launch_bounds__(THREADS) split_tiles(tg_gpu_pass p, uint8_t *scratch)
{
    __shared__ split_space s;
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, TG_PACK_WORDS) || tile >= j.tile_n) {
        return;
    }
    uint32_t part_n = PART / j.unit->plain_len;
    uint8_t *out = p.space.out[j.chunk] + p.space.views[j.chunk].symbols + 1;
    uint16_t *counts = tg_pack_scratch_of(p, scratch, j.chunk).counts;
    bool is_aligned = tg_place_of(j.words) == 0;
    end_counts(&s, nullptr);
    __syncthreads();
    for (; tile < j.tile_n; tile += tiles) {
        uint32_t end = min((tile + 1) * TG_PACK_TILE, j.count);
        for (uint32_t lo = tile * TG_PACK_TILE; lo < end; lo += part_n) {
            if (is_aligned && lo + part_n <= end) {
                split_whole(&s, j, out, lo);
            } else {
                split_some(&s, j, out, lo, min(part_n, end - lo));
            }
        }
        end_counts(&s, counts + tile * TG_PACK_BASE);
        __syncthreads();
    }
}

void tg_pack_split(const tg_gpu_pass *p, uint8_t *scratch)
{
    TG_LAUNCH_EARLY(split_tiles, p->overlaps, p->tile_n, THREADS, p->stream, *p, scratch);
}

/* ---- joining ------------------------------------------------------------------------------------------------------------ */

typedef struct join_space {
    uint4 lowers[PART / 16 + 2], uppers[PART / 16 + 2], words[PART / 16 + 2];
} join_space;

/* Three words of shared memory from any byte on. */
TG_DEVICE void load_three(uint32_t *words, const uint8_t *at)
{
    uint32_t shift = (uint32_t)((uintptr_t)at % 4) * 8, held[4];
    const uint32_t *from = (const uint32_t *)(const void *)(at - shift / 8);
    for (int i = 0; i < 4; i++) {
        held[i] = from[i];
    }
    for (int i = 0; i < 3; i++) {
        words[i] = __funnelshift_r(held[i], held[i + 1], shift);
    }
}

/* Joins `len` bytes of words to shared memory, from its first byte on. Where the bytes after them come from does not matter. */
TG_DEVICE void join_part(join_space *s, const uint8_t *lowers, const uint8_t *uppers, uint32_t word_len, uint32_t len)
{
    for (uint32_t v = threadIdx.x; v * 16 < len; v += THREADS) {
        uint32_t lower[3], upper[3], words[4];
        load_three(lower, lowers + v * (word_len == 4 ? 12 : 8));
        load_three(upper, uppers + v * (word_len == 4 ? 4 : 8));
        if (word_len == 4) {
            join_fours(words, lower, upper);
        } else {
            join_twos(words, lower, upper);
        }
        s->words[v] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* A share of a chunk, part after part. */
TG_DEVICE void join_share(join_space *s, const tg_pack_job &j, const uint8_t *lowers, uint32_t tile, uint32_t tiles)
{
    uint32_t word_len = j.unit->plain_len, rest = word_len - 1, part_n = PART / word_len;
    for (uint32_t lo = tile * part_n; lo < j.count; lo += tiles * part_n) {
        uint32_t n = min(part_n, j.count - lo);
        const uint8_t *from = lowers + (uint64_t)lo * rest, *upper = j.symbols + lo;
        tg_stage_in(s->lowers, from, n * rest);
        tg_stage_in(s->uppers, upper, n);
        __syncthreads();
        join_part(s, (const uint8_t *)s->lowers + tg_place_of(from), (const uint8_t *)s->uppers + tg_place_of(upper),
                  word_len, n * word_len);
        __syncthreads();
        tg_copy_out((uint8_t *)j.words + (uint64_t)lo * word_len, (const uint8_t *)s->words, n * word_len);
        __syncthreads();
    }
}

/* The parts of 16 bytes of words. */
typedef struct join_parts {
    uint32_t lower[3], upper[2];
} join_parts;

/* Loads those of vector v. The upper bytes of a chunk begin at a multiple of 16, the lower ones anywhere; up to 3 bytes before and after
 * those are read, which are in the frame. */
TG_DEVICE void load_parts(join_parts *to, const uint8_t *lowers, const uint8_t *uppers, uint32_t word_len, uint32_t v)
{
    const uint8_t *at = lowers + v * (word_len == 4 ? 12u : 8u);
    uint64_t low = tg_load64(at);
    to->lower[0] = (uint32_t)low;
    to->lower[1] = (uint32_t)(low >> 32);
    if (word_len == 4) {
        to->lower[2] = tg_load_word(at + 8);
        to->upper[0] = ((const uint32_t *)(const void *)uppers)[v];
    } else {
        uint2 upper = ((const uint2 *)(const void *)uppers)[v];
        to->upper[0] = upper.x;
        to->upper[1] = upper.y;
    }
}

/* A share of a chunk whose words begin at a multiple of 16: whole vectors without shared memory, then what is left. */
TG_DEVICE void join_aligned(const tg_pack_job &j, const uint8_t *lowers, uint32_t tile, uint32_t tiles)
{
    enum { AT_ONCE = 2 };
    uint32_t word_len = j.unit->plain_len, in_vector = 16 / word_len, whole = j.count / in_vector;
    uint4 *words = (uint4 *)(void *)(uint8_t *)j.words;
    for (uint32_t first = tile * THREADS + threadIdx.x; first < whole; first += AT_ONCE * tiles * THREADS) {
        join_parts parts[AT_ONCE];
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            load_parts(&parts[k], lowers, j.symbols, word_len, min(first + k * tiles * THREADS, whole - 1));
        }
        TG_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            uint32_t joined[4];
            if (word_len == 4) {
                join_fours(joined, parts[k].lower, parts[k].upper);
            } else {
                join_twos(joined, parts[k].lower, parts[k].upper);
            }
            words[min(first + k * tiles * THREADS, whole - 1)] = make_uint4(joined[0], joined[1], joined[2], joined[3]);
        }
    }
    uint32_t i = whole * in_vector + threadIdx.x;
    if (tile == 0 && i < j.count) {
        uint32_t bits = 8 * word_len, word = (uint32_t)j.symbols[i] << (bits - 8);
        for (uint32_t b = 0; b + 1 < word_len; b++) {
            word |= (uint32_t)lowers[i * (word_len - 1) + b] << 8 * b;
        }
        tg_store_bytes((uint8_t *)j.words + i * word_len, word >> 1 | word << (bits - 1), word_len);
    }
}

/* Words of the plain form. */
TG_DEVICE void copy_share(join_space *s, const tg_pack_job &j, const uint8_t *from, uint32_t tile, uint32_t tiles)
{
    for (uint32_t at = tile * PART; at < j.plain_len; at += tiles * PART) {
        uint32_t n = min((uint32_t)PART, j.plain_len - at);
        tg_stage_in(s->lowers, from + at, n);
        __syncthreads();
        tg_copy_out((uint8_t *)j.words + at, (const uint8_t *)s->lowers + tg_place_of(from + at), n);
        __syncthreads();
    }
}

/* A block takes a share of a chunk, coded or plain. */
__global__ static void __launch_bounds__(THREADS) join_tiles(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch)
{
    __shared__ join_space s;
    uint32_t tile = 0, tiles = 0;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!tg_pack_tile_job_of(&j, &tile, &tiles, p, scratch, TG_PACK_WORDS)) {
        return;
    }
    const tg_view *v = &p.space.views[j.chunk];
    const uint8_t *bytes = body + v->symbols;
    uint64_t len = v->indices - v->symbols;
    bool is_plain = len > 0 && bytes[0] == 0;
    if (len == 0 || (is_plain ? len != 1 + (uint64_t)j.plain_len : len < 1 + (uint64_t)j.lower_len)) {
        tg_refuse_chunk(p, j.chunk);
    } else if (is_plain) {
        copy_share(&s, j, bytes + 1, tile, tiles);
    } else if (tg_place_of(j.words) == 0) {
        join_aligned(j, bytes + 1, tile, tiles);
    } else {
        join_share(&s, j, bytes + 1, tile, tiles);
    }
}

void tg_pack_join(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    TG_LAUNCH_EARLY(join_tiles, p->overlaps, p->tile_n, THREADS, p->stream, *p, body, scratch);
}
