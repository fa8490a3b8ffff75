#include "packing.h"

#include "exec/cuda/gpu_calls.h"
#include "quantize/shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory that both the host and kernels see, and up to 255 bytes more. */
static void *get_memory(size_t len)
{
    void *memory = NULL;
    const char *why = "";
    if (tg_gpu_call_acquire(&memory, len + 255, 1, &why) != 0) {
        fail_msg("memory: %s", why);
    }
    memset(memory, 0, len + 255);
    return memory;
}

static void free_memory(void *memory)
{
    tg_gpu_call_release(memory, 1);
}

static void wait_for_kernels(void)
{
    const char *why = "";
    if (tg_gpu_call_wait(NULL, &why) != 0) {
        fail_msg("a kernel failed: %s", why);
    }
}

enum { SIDE = 5, SCRATCH = 4 << 20 };

extern const tg_symbol_part tg_symbol_huffman, tg_symbol_lossless;

/* ---- the host ---------------------------------------------------------------------------------------------------------- */

static const tg_symbol_part *part_of(const packing_chunk *c)
{
    return c->pack == TG_GPU_HUFFMAN ? &tg_symbol_huffman
           : c->pack == TG_GPU_RANS  ? &tg_symbol_rans
                                     : &tg_symbol_lossless;
}

static tg_coding coding_of(const packing_chunk *c, uint8_t *lengths, double *params)
{
    static _Alignas(64) uint8_t scratch[SCRATCH];
    params[0] = c->by_model ? 1 : 0;
    tg_coding coding = {.base = c->base, .word_len = c->word_len, .params = params, .scratch = scratch};
    if ((c->quantize == TG_GPU_FP4 || c->quantize == TG_GPU_FP8) && c->row < TG_SHAPE_N) {
        int format = c->quantize == TG_GPU_FP4 ? TG_SHAPE_FP4 : c->base == 247 ? TG_SHAPE_FP8 : TG_SHAPE_FP8E4M3;
        const char *digits = tg_shapes[c->row].format[format].lengths;
        for (uint32_t s = 0; s < c->base; s++) {
            lengths[s] = (uint8_t)(digits[s] <= '9' ? digits[s] - '0' : digits[s] - 'a' + 10);
        }
        coding.lengths = lengths;
    }
    return coding;
}

static void encode_on_host(packing_chunk *c)
{
    uint8_t lengths[TG_BASE_MAX];
    double params[2] = {0};
    tg_coding coding = coding_of(c, lengths, params);
    c->bytes = malloc((size_t)tg_plain_len(c->count, &coding) + 64);
    assert_non_null(c->bytes);
    if (c->pack == TG_GPU_BITS) {
        tg_bits_write(c->bytes, c->symbols, c->count, c->base);
        c->len = (size_t)tg_bits_len(c->count, c->base);
    } else {
        c->len = tg_coded_write(c->bytes, c->base != 0 ? (void *)c->symbols : (void *)c->words, c->count, part_of(c),
                                &coding);
    }
}

static bool decode_on_host(const packing_chunk *c, const uint8_t *bytes, size_t len)
{
    static uint16_t symbols[2 * TG_PACK_MAX]; /* also words */
    uint8_t lengths[TG_BASE_MAX];
    double params[2] = {0};
    tg_coding coding = coding_of(c, lengths, params);
    if (c->pack == TG_GPU_BITS) {
        return len == tg_bits_len(c->count, c->base) && tg_bits_check(bytes, c->count, c->base);
    }
    return tg_coded_read(symbols, bytes, len, c->count, part_of(c), &coding);
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

static uint32_t draw_symbol(test_random *r, uint32_t shape, uint32_t base)
{
    if (shape == PACKING_SEVEN_BITS) {
        return (uint32_t)(test_bits(r) % 128);
    }
    double u = test_uniform(r), middle = (base - 1) / 2.0;
    switch (shape) {
    case 0: return (uint32_t)(u * base);
    case 1: return base / 2;
    case 2: return (uint32_t)fmin(fmax(middle + (double)test_gaussian(r) * base / 8 + 0.5, 0), base - 1);
    case 3: return (uint32_t)fmin(-log(1 - u) * base / 20, base - 1);
    case 4: return u < 0.001 ? (uint32_t)(u * 1000 * base) : base - 1;
    default: return u < 0.5 ? 0 : u < 0.95 ? 1 : (uint32_t)(test_uniform(r) * base);
    }
}

void packing_draw(packing_chunk *c, uint32_t shape, uint64_t seed)
{
    test_random r = {seed};
    c->symbols = calloc(c->count + 8, sizeof *c->symbols);
    c->words = calloc(c->count + 8, 4);
    assert_non_null(c->symbols);
    assert_non_null(c->words);
    for (uint32_t i = 0; i < c->count && c->base != 0; i++) {
        c->symbols[i] = (uint16_t)draw_symbol(&r, shape, c->base);
    }
    for (uint32_t i = 0; i < c->count && c->base == 0; i++) {
        float value = shape == 1 ? 0 : test_gaussian(&r) * (shape == 3 ? expf(8 * test_gaussian(&r)) : 0.01f);
        uint32_t bits = 0;
        memcpy(&bits, &value, sizeof bits);
        bits = shape == 0 ? (uint32_t)test_bits(&r) : c->word_len == 2 ? bits >> 16 : bits;
        memcpy(c->words + (size_t)i * c->word_len, &bits, c->word_len);
    }
}

void packing_add(packing *p, packing_chunk c, uint32_t shape, uint64_t seed)
{
    assert_true(p->chunk_n < PACKING_CHUNKS);
    packing_draw(&c, shape, seed);
    encode_on_host(&c);
    p->chunks[p->chunk_n++] = c;
}

/* ---- a pass ---------------------------------------------------------------------------------------------------------------- */

static tg_gpu_unit unit_of(const packing_chunk *c)
{
    tg_gpu_unit u = {.plain_len = c->word_len, .base = c->base, .gain = 1};
    u.route = c->is_sparse ? 7 : c->base != 0 ? 4 : 3;
    u.coordinates = c->is_sparse ? 3 : 0;
    u.values = c->base != 0 ? 2 : 1;
    u.coded = c->pack != TG_GPU_BITS;
    u.symbol = (uint8_t)c->pack;
    u.quantize = (uint8_t)(c->quantize != 0 ? c->quantize : TG_GPU_LINEAR);
    u.quantize_params[0] = c->quantize == TG_GPU_FP8 && c->base == 239 ? 1 : 0;
    u.symbol_params[0] = c->by_model ? 1 : 0;
    if (c->base != 0) {
        u.group_n = tg_bits_align(c->base) / 8;
        u.group_bits = (uint32_t)tg_bits_len(8 * u.group_n, c->base);
    }
    return u;
}

void packing_open(packing *p)
{
    const uint32_t first = 3; /* chunks before those of the pass are not its concern */
    uint32_t n = p->chunk_n, packs = 0, tile_n = 0;
    p->units = get_memory((n + first) * sizeof *p->units);
    p->table = get_memory((n + first) * sizeof *p->table);
    p->elements = 5;
    p->out_len = 64;
    for (uint32_t i = 0; i < n; i++) {
        const packing_chunk *c = &p->chunks[i];
        p->units[i + first] = unit_of(c);
        p->table[i + first] =
            (tg_gpu_chunk){.element_at = p->elements, .unit = i + first, .n = c->count + (c->is_sparse ? 7 : 0)};
        p->elements += p->table[i + first].n;
        p->out_len += (uint64_t)c->count * 5 + 1200;
        packs |= 1u << c->pack;
        tile_n += (p->table[i + first].n + TG_GPU_TILE - 1) / TG_GPU_TILE;
    }
    p->tiles = get_memory(tile_n * sizeof *p->tiles);
    p->pass.tiles = p->tiles;
    p->pass.tile_n = 0;
    for (uint32_t i = first; i < n + first; i++) {
        for (uint32_t from = 0; from < p->table[i].n; from += TG_GPU_TILE) {
            p->tiles[p->pass.tile_n++] = (tg_gpu_tile){.chunk = i, .from = from};
        }
    }
    p->out = get_memory(p->out_len);
    p->body = get_memory(p->out_len);
    p->scratch = get_memory(tg_gpu_pack_scratch(n, p->elements));
    p->pass.units = p->units;
    p->pass.chunks = p->table;
    p->pass.first = first;
    p->pass.chunk_n = n;
    p->pass.packs = packs;
    p->pass.has_values = 1;
    p->pass.verdict = get_memory(sizeof *p->pass.verdict);
    p->pass.space.symbols = get_memory(2 * p->elements + 64);
    p->pass.space.words = get_memory(4 * p->elements + 64);
    p->pass.space.views = get_memory((n + first) * sizeof(tg_view));
    p->pass.space.out = get_memory((n + first) * sizeof(uint8_t *));
}

void packing_close(packing *p)
{
    void *all[] = {p->units,
                   p->table,
                   p->tiles,
                   p->out,
                   p->body,
                   p->scratch,
                   p->pass.verdict,
                   p->pass.space.symbols,
                   p->pass.space.words,
                   p->pass.space.views,
                   p->pass.space.out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free_memory(all[i]);
    }
    for (uint32_t i = 0; i < p->chunk_n; i++) {
        free(p->chunks[i].symbols);
        free(p->chunks[i].words);
        free(p->chunks[i].bytes);
    }
    *p = (packing){0};
}

static void put_symbols(const packing *p, uint32_t i)
{
    const packing_chunk *c = &p->chunks[i];
    uint64_t at = p->table[i + p->pass.first].element_at;
    for (uint32_t k = 0; k < c->count && c->base != 0; k++) {
        if (c->base > 256) {
            memcpy(p->pass.space.symbols + 2 * at + 2 * (size_t)k, &c->symbols[k], 2);
        } else {
            p->pass.space.symbols[2 * at + k] = (uint8_t)c->symbols[k];
        }
    }
    memcpy(p->pass.space.words + 4 * at, c->words, c->base == 0 ? (size_t)c->count * c->word_len : 0);
}

void packing_check_writing(packing *p)
{
    uint64_t at = 0;
    memset(p->out, 0x5a, p->out_len);
    for (uint32_t i = 0; i < p->chunk_n; i++) {
        const packing_chunk *c = &p->chunks[i];
        tg_view *v = &p->pass.space.views[i + p->pass.first];
        at += 1 + i % 19; /* at any address */
        p->pass.space.out[i + p->pass.first] = p->out + at;
        *v = (tg_view){.symbols = SIDE, .count = c->count};
        p->out[at + 4] = c->row;
        at += c->len + SIDE + 1100;
        put_symbols(p, i);
    }
    tg_gpu_pack_symbols(&p->pass, p->scratch);
    tg_gpu_pack_words(&p->pass, p->scratch);
    wait_for_kernels();
    for (uint32_t i = 0; i < p->chunk_n; i++) {
        const packing_chunk *c = &p->chunks[i];
        const tg_view *v = &p->pass.space.views[i + p->pass.first];
        const uint8_t *bytes = p->pass.space.out[i + p->pass.first] + v->symbols;
        size_t len = (size_t)(v->indices - v->symbols), same = 0;
        for (; same < c->len && bytes[same] == c->bytes[same]; same++) {
        }
        if (len != c->len || same != c->len) {
            fail_msg(
                "chunk %u: base %u, word %u, pack %u, count %u: %zu bytes for %zu, the same up to %zu; form %u for %u",
                i, c->base, c->word_len, c->pack, c->count, len, c->len, same, bytes[0], c->bytes[0]);
        }
    }
}

static void put_body(const packing *p, uint32_t i, uint64_t at, const uint8_t *bytes, size_t len)
{
    const packing_chunk *c = &p->chunks[i];
    p->pass.space.views[i + p->pass.first] =
        (tg_view){.start = at, .side = at, .symbols = at + SIDE, .indices = at + SIDE + len, .count = c->count};
    p->body[at + 4] = c->row;
    memcpy(p->body + at + SIDE, bytes, len);
}

static void read_body(const packing *p)
{
    memset(p->pass.verdict, 0, sizeof *p->pass.verdict);
    tg_gpu_read_symbols(&p->pass, p->body, p->scratch);
    tg_gpu_read_words(&p->pass, p->body, p->scratch);
    wait_for_kernels();
}

static void compare_symbols(const packing *p, uint32_t i)
{
    const packing_chunk *c = &p->chunks[i];
    uint64_t at = p->table[i + p->pass.first].element_at;
    const uint8_t *symbols = p->pass.space.symbols + 2 * at, *words = p->pass.space.words + 4 * at;
    for (uint32_t k = 0; k < c->count && c->base != 0 && (c->is_sparse || c->pack != TG_GPU_BITS); k++) {
        uint32_t symbol = c->base > 256 ? symbols[2 * k] | (uint32_t)symbols[2 * k + 1] << 8 : symbols[k];
        if (symbol != c->symbols[k]) {
            fail_msg("chunk %u: base %u, pack %u, count %u: symbol %u is %u for %u", i, c->base, c->pack, c->count, k,
                     symbol, c->symbols[k]);
        }
    }
    if (c->base == 0) {
        assert_memory_equal(words, c->words, (size_t)c->count * c->word_len);
    }
}

void packing_check_reading(packing *p)
{
    uint64_t at = 0;
    memset(p->pass.space.symbols, 0xa5, 2 * p->elements);
    memset(p->pass.space.words, 0xa5, 4 * p->elements);
    for (uint32_t i = 0; i < p->chunk_n; i++) {
        at += i % 13;
        put_body(p, i, at, p->chunks[i].bytes, p->chunks[i].len);
        at += SIDE + p->chunks[i].len;
    }
    read_body(p);
    if (p->pass.verdict->bad_chunk != 0) {
        const packing_chunk *c = &p->chunks[~p->pass.verdict->bad_chunk - p->pass.first];
        fail_msg("refused: base %u, word %u, pack %u, count %u, form %u", c->base, c->word_len, c->pack, c->count,
                 c->bytes[0]);
    }
    for (uint32_t i = 0; i < p->chunk_n; i++) {
        compare_symbols(p, i);
    }
}

bool packing_is_sound(packing *p, const uint8_t *bytes, size_t len)
{
    const packing_chunk *c = &p->chunks[0];
    bool expected = decode_on_host(c, bytes, len);
    put_body(p, 0, 3, bytes, len);
    read_body(p);
    bool sound = p->pass.verdict->bad_chunk == 0;
    if (sound != expected) {
        fail_msg("base %u, word %u, pack %u, count %u, %zu bytes, form %u: the host says %s", c->base, c->word_len,
                 c->pack, c->count, len, bytes[0], expected ? "sound" : "damaged");
    }
    return sound;
}
