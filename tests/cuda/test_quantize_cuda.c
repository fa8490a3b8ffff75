/* Kernels that quantize and decode, against the host executor: the same side data, symbols, residuals and sums, to the bit. Symbols
 * are compared before they are packed, and coordinates are chosen here, so that no other kernel takes part. */
#include "cuda/blocks.h"
#include "exec/cuda/gpu_calls.h"
#include "exec/cuda/run.h"
#include "frame/codec.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a step on the host -------------------------------------------------------------------------------------------------- */

typedef struct scenario {
    const char *recipe;
    tg_nonfinite nonfinite;
    float scale;  /* of gradients */
    bool has_bad; /* gradients hold NaN and Inf */
    int plain;    /* all gradients of a tensor are equal: 1; are 0: 2 */
} scenario;

typedef struct step {
    tg_codec *codec;
    test_model model;
    uint8_t *frame;
    const uint8_t *body;
    size_t frame_len;
    float *now, *next; /* residuals before and after */
    tg_body_view view;
} step;

static void fill(const scenario *s, test_model *m, uint64_t number)
{
    test_random r = {number + 7};
    test_model_fill(m, &r);
    for (size_t t = 0; t < m->tensor_n; t++) {
        for (uint64_t i = 0; m->tensors[t].dtype == TG_FP32 && i < m->tensors[t].dims[0]; i++) {
            float *g = (float *)m->grads[t] + i;
            *g = (s->plain == 1 ? -1.5f : s->plain == 2 ? (i % 2 == 0 ? 0.0f : -0.0f) : *g) * s->scale;
            if (s->has_bad && test_bits(&r) % 3000 == 0) {
                *g = test_bits(&r) % 2 == 0 ? NAN : -INFINITY;
            }
        }
    }
}

static void host_step(step *h, const scenario *s, uint64_t number)
{
    tg_codec *c = h->codec;
    fill(s, &h->model, number);
    c->executor->save(h->now, c->run, 0, c->plan->residual_n);
    MUST(tg_encode(&h->frame_len, c, h->frame, tg_encode_bound(c), number, (const void *const *)h->model.grads, why));
    c->executor->save(h->next, c->run, 0, c->plan->residual_n);
    h->body = h->frame + c->front_len;
    h->view = (tg_body_view){.bytes = h->body, .chunks = c->views};
    MUST(c->executor->find(&h->view, c->run, c->plan, 0, h->frame_len - c->front_len - TG_FRAME_CHECKSUM, why));
}

/* ---- the same on the device ------------------------------------------------------------------------------------------------ */

typedef struct gpu_step {
    tg_gpu_pass pass;
    tg_gpu_unit *units; /* on the host */
    tg_gpu_chunk *chunks;
    size_t chunk_n;
    tg_view *views;
    uint8_t **out; /* device addresses */
    uint64_t out_len;
} gpu_step;

static void upload_tables(gpu_step *g, const step *h)
{
    const tg_plan *plan = h->codec->plan;
    const tg_layout *l = plan->layout;
    size_t piece_n = 0;
    g->units = calloc(l->unit_n, sizeof *g->units);
    uint32_t kinds = 0;
    for (size_t i = 0; i < l->unit_n; i++) {
        tg_gpu_unit_of(&g->units[i], &plan->units[i], (uint32_t)piece_n);
        assert_null(tg_gpu_quantize_lacks(&g->units[i]));
        kinds |= tg_gpu_quantize_kinds(&g->units[i]);
        piece_n += l->units[i].piece_n;
    }
    tg_gpu_piece *pieces = calloc(piece_n, sizeof *pieces);
    tg_gpu_fill_pieces(pieces, l);
    g->chunk_n = plan->grid->first[plan->grid->cells];
    g->chunks = calloc(g->chunk_n, sizeof *g->chunks);
    tg_gpu_fill_chunks(g->chunks, plan);
    uint32_t *first = calloc(g->chunk_n + 1, sizeof *first), tile_n = tg_gpu_fill_tiles(NULL, first, plan);
    tg_gpu_tile *tiles = calloc(tile_n, sizeof *tiles);
    tg_gpu_fill_tiles(tiles, first, plan);
    g->pass = (tg_gpu_pass){.processors = 1,
                            .units = block_new(g->units, l->unit_n * sizeof *g->units),
                            .pieces = block_new(pieces, piece_n * sizeof *pieces),
                            .chunks = block_new(g->chunks, g->chunk_n * sizeof *g->chunks),
                            .chunk_n = (uint32_t)g->chunk_n,
                            .tiles = block_new(tiles, tile_n * sizeof *tiles),
                            .tile_n = tile_n,
                            .kinds = kinds,
                            .seed = l->seed,
                            .rank = plan->rank,
                            .nonfinite = (uint8_t)plan->nonfinite,
                            .has_values = 1};
    free(tiles);
    free(first);
    free(pieces);
}

static void upload_space(gpu_step *g, const step *h)
{
    const tg_plan *plan = h->codec->plan;
    uint64_t n = plan->layout->element_n;
    tg_gpu_space *s = &g->pass.space;
    tg_gpu_verdict none = {0};
    float *ones = calloc(plan->layout->unit_n, sizeof *ones);
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        ones[i] = 1;
    }
    s->symbols = block_new(NULL, 2 * n);
    s->words = block_new(NULL, 4 * n);
    s->values = block_new(NULL, 4 * n);
    s->positions = block_new(NULL, 4 * n);
    s->magnitudes = block_new(NULL, (n / 1024 + g->chunk_n) * sizeof(double));
    s->moments = block_new(NULL, (n / 1024 + g->chunk_n) * sizeof *s->moments);
    tg_gpu_progress *begun = calloc(g->chunk_n, sizeof *begun);
    s->progress = block_new(begun, g->chunk_n * sizeof *begun);
    s->next_tile = block_new(&(uint32_t){0}, sizeof(uint32_t));
    free(begun);
    s->scales = block_new(NULL, plan->layout->unit_n * sizeof(float));
    s->clips = block_new(ones, plan->layout->unit_n * sizeof(float));
    s->overflows = block_new(NULL, g->chunk_n * sizeof(uint32_t));
    s->sums = block_new(NULL, 4 * n);
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        uint64_t slot_len = tg_gpu_quantize_scratch(&g->units[i]);
        s->slot_len = slot_len > s->slot_len ? slot_len : s->slot_len;
    }
    s->slot_n = 3;
    s->slots = block_new(NULL, s->slot_n * s->slot_len);
    g->pass.verdict = block_new(&none, sizeof none);
    g->views = calloc(g->chunk_n, sizeof *g->views);
    g->out = calloc(g->chunk_n, sizeof *g->out);
    g->out_len = 0;
    for (size_t i = 0; i < g->chunk_n; i++) {
        g->out_len += tg_chunk_bound(plan, &plan->grid->chunks[i]);
    }
    uint8_t *bytes = block_new(NULL, g->out_len);
    for (size_t i = 0; i < g->chunk_n; i++) {
        g->out[i] = bytes;
        bytes += tg_chunk_bound(plan, &plan->grid->chunks[i]);
    }
    s->out = block_new(g->out, g->chunk_n * sizeof *g->out);
    s->views = block_new(g->views, g->chunk_n * sizeof *g->views);
    free(ones);
}

static void upload_source(gpu_step *g, const step *h, uint64_t number)
{
    const tg_plan *plan = h->codec->plan;
    void **grads = calloc(h->model.tensor_n, sizeof *grads);
    for (size_t t = 0; t < h->model.tensor_n; t++) {
        uint64_t len = plan->layout->tensor_elements[t] * (h->model.tensors[t].dtype == TG_FP32 ? 4 : 2);
        grads[t] = block_new(h->model.grads[t], len);
    }
    g->pass.grads = block_new(grads, h->model.tensor_n * sizeof *grads);
    g->pass.now = block_new(h->now, plan->residual_n * sizeof(float));
    g->pass.next = block_new(NULL, plan->residual_n * sizeof(float));
    g->pass.step = number;
    free(grads);
}

/* ---- selected values, chosen here ------------------------------------------------------------------------------------------ */

/* What an element is, before it is selected: fp32 and finite. */
static float sum_of(const step *h, const tg_unit_plan *u, uint64_t at)
{
    const tg_piece *piece = tg_unit_piece(u->unit, at);
    float g = ((const float *)h->model.grads[piece->tensor])[at - piece->at];
    return u->planes == 0 ? g : g + h->now[u->residual_at + (at - u->lo)];
}

static bool is_sent(const step *h, const tg_unit_plan *u, uint64_t at)
{
    const tg_piece *piece = tg_unit_piece(u->unit, at);
    float sum = sum_of(h, u, at);
    if (u->format.bin == 0) {
        return fabsf(sum) >= (float)u->stages.select_params[2];
    }
    float g = ((const float *)h->model.grads[piece->tensor])[at - piece->at];
    float weight = (float)u->stages.select_params[u->stages.select->part.param_n - 1] - 1.0f;
    uint64_t from = u->lo + (at - u->lo) / u->format.bin * u->format.bin;
    float maximum = 0;
    for (uint64_t i = from; i < u->hi && i < from + u->format.bin; i++) {
        maximum = fmaxf(maximum, fabsf(sum_of(h, u, i)));
    }
    return fabsf(sum + weight * g) >= maximum && sum != 0;
}

static tg_view view_of(const tg_unit_plan *u, uint32_t count)
{
    uint64_t symbols = tg_side_len(&u->format, count);
    uint64_t len = u->format.coded ? 0 : tg_symbols_len(&u->format, count);
    return (tg_view){.symbols = symbols, .indices = symbols + len, .count = count};
}

static void select_values(gpu_step *g, const step *h)
{
    const tg_plan *plan = h->codec->plan;
    uint64_t n = plan->layout->element_n;
    float *values = calloc(n, sizeof *values);
    float *next = calloc(plan->residual_n + 1, sizeof *next);
    uint32_t *positions = calloc(n, sizeof *positions);
    for (size_t i = 0; i < g->chunk_n; i++) {
        const tg_gpu_chunk *chunk = &g->chunks[i];
        const tg_unit_plan *u = &plan->units[chunk->unit];
        uint32_t count = 0;
        for (uint64_t at = chunk->at; at < chunk->at + chunk->n && u->coordinates != TG_AT_EVERY; at++) {
            float sum = sum_of(h, u, at);
            if (u->planes > 0) {
                next[u->residual_at + (at - u->lo)] = sum;
            }
            if (is_sent(h, u, at)) {
                values[chunk->element_at + count] = sum;
                positions[chunk->element_at + count++] = (uint32_t)(at - chunk->at);
            }
        }
        g->views[i] = view_of(u, count);
    }
    tg_gpu_call_copy(g->pass.space.values, values, n * sizeof *values, NULL);
    tg_gpu_call_copy(g->pass.space.positions, positions, n * sizeof *positions, NULL);
    tg_gpu_call_copy(g->pass.next, next, plan->residual_n * sizeof *next, NULL);
    tg_gpu_call_copy(g->pass.space.views, g->views, g->chunk_n * sizeof *g->views, NULL);
    block_get(values, g->pass.space.values, sizeof *values);
    free(values);
    free(next);
    free(positions);
}

/* ---- comparison ------------------------------------------------------------------------------------------------------------ */

static void compare(const char *what, const scenario *s, const void *a, const void *b, size_t len, size_t unit_len)
{
    for (size_t i = 0; i < len; i++) {
        if (((const uint8_t *)a)[i] != ((const uint8_t *)b)[i]) {
            uint32_t x = 0, y = 0;
            memcpy(&x, (const uint8_t *)a + i / unit_len * unit_len, unit_len);
            memcpy(&y, (const uint8_t *)b + i / unit_len * unit_len, unit_len);
            fail_msg("%s, scale %g: %s number %zu of %zu is %08x and not %08x", s->recipe, (double)s->scale, what,
                     i / unit_len, len / unit_len, x, y);
        }
    }
}

/* Symbols as words, from those of a base on the device. */
static uint16_t *get_symbols(const gpu_step *g, const tg_gpu_chunk *chunk, uint32_t base, uint32_t count)
{
    uint16_t *symbols = calloc(count + 1, sizeof *symbols);
    uint8_t *bytes = calloc(2 * count + 1, 1);
    block_get(bytes, g->pass.space.symbols + 2 * chunk->element_at, (base > 256 ? 2 : 1) * (uint64_t)count);
    for (uint32_t i = 0; i < count; i++) {
        symbols[i] = (uint16_t)(base > 256 ? bytes[2 * i] | bytes[2 * i + 1] << 8 : bytes[i]);
    }
    free(bytes);
    return symbols;
}

static void compare_chunk(const gpu_step *g, const step *h, const scenario *s, size_t i)
{
    const tg_plan *plan = h->codec->plan;
    const tg_gpu_chunk *chunk = &g->chunks[i];
    const tg_format *f = &plan->units[chunk->unit].format;
    const tg_view *view = &h->view.chunks[i];
    if (f->plain_len != 0 || view->count == 0) {
        return;
    }
    size_t side_len = (size_t)tg_side_len(f, view->count);
    uint8_t *side = calloc(side_len + 1, 1);
    block_get(side, g->out[i] + g->views[i].side, side_len);
    compare("byte of side data", s, side, h->body + view->side, side_len, 1);
    uint16_t *symbols = get_symbols(g, chunk, f->base, view->count), *expected = calloc(view->count, sizeof *expected);
    if (!f->coded) {
        assert_true(tg_bits_read(expected, h->body + view->symbols, view->count, f->base));
        compare("symbol", s, symbols, expected, view->count * sizeof *symbols, sizeof *symbols);
    }
    free(expected);
    free(symbols);
    free(side);
}

/* Sums of the body: set, then added to by a weight. */
static void compare_sums(gpu_step *g, const step *h, const scenario *s)
{
    const tg_codec *c = h->codec;
    uint64_t n = c->layout->element_n;
    float *sums = calloc(n, sizeof *sums), *expected = calloc(n, sizeof *expected);
    tg_sink flat = {.flat = expected, .divisor = 1};
    size_t len = h->frame_len - c->front_len;
    const uint8_t *body = block_new(h->body, len);
    tg_gpu_call_copy(g->pass.space.views, h->view.chunks, g->chunk_n * sizeof *g->views, NULL);
    tg_gpu_call_copy(g->pass.space.sums, sums, n * sizeof *sums, NULL);
    g->pass.is_answer = 0;
    tg_gpu_add_dense(&g->pass, body, 1, 1);
    tg_gpu_add_sparse(&g->pass, body, 1, 1);
    block_get(sums, g->pass.space.sums, n * sizeof *sums);
    c->executor->sum(c->run, 0, &h->view, 1, &flat);
    compare("value", s, sums, expected, n * sizeof *sums, sizeof *sums);
    tg_gpu_add_dense(&g->pass, body, -0.3f, 0);
    tg_gpu_add_sparse(&g->pass, body, -0.3f, 0);
    block_get(sums, g->pass.space.sums, n * sizeof *sums);
    float **added = calloc(c->layout->tensor_n, sizeof *added);
    for (size_t u = 0; u < c->layout->unit_n; u++) {
        for (size_t p = 0; p < c->layout->units[u].piece_n; p++) {
            const tg_piece *piece = &c->layout->units[u].pieces[p];
            added[piece->tensor] = expected + c->layout->units[u].at + piece->at;
        }
    }
    tg_sink to_tensors = {.added = added, .weight = -0.3f};
    c->executor->sum(c->run, 0, &h->view, 1, &to_tensors);
    compare("sum", s, sums, expected, n * sizeof *sums, sizeof *sums);
    free(added);
    free(expected);
    free(sums);
}

static void gpu_compare(step *h, const scenario *s, uint64_t number)
{
    gpu_step g = {0};
    const tg_plan *plan = h->codec->plan;
    upload_tables(&g, h);
    upload_space(&g, h);
    upload_source(&g, h, number);
    bool is_sparse = plan->units[0].coordinates != TG_AT_EVERY;
    if (is_sparse) {
        select_values(&g, h);
    }
    tg_gpu_start_views(&g.pass);
    tg_gpu_quantize_dense(&g.pass);
    if (is_sparse) {
        tg_gpu_quantize_values(&g.pass);
    }
    tg_gpu_apply_scales(&g.pass);
    block_get(g.views, g.pass.space.views, g.chunk_n * sizeof *g.views);
    for (size_t i = 0; i < g.chunk_n; i++) {
        compare_chunk(&g, h, s, i);
    }
    float *next = calloc(plan->residual_n + 1, sizeof *next);
    block_get(next, g.pass.next, plan->residual_n * sizeof *next);
    compare("residual", s, next, h->next, plan->residual_n * sizeof *next, sizeof *next);
    tg_gpu_verdict verdict;
    block_get(&verdict, g.pass.verdict, sizeof verdict);
    assert_int_equal(verdict.bad_tensor, 0);
    assert_int_equal(verdict.bad_residual, 0);
    compare_sums(&g, h, s);
    free(next);
    free(g.out);
    free(g.views);
    free(g.chunks);
    free(g.units);
    blocks_free();
}

/* ---- scenarios ------------------------------------------------------------------------------------------------------------- */

static void try_scenario(const scenario *s, const uint64_t *lens, size_t tensor_n, tg_dtype dtype, int steps)
{
    step h = {.model = test_model_new(lens, tensor_n, dtype)};
    tg_options opt = TG_OPTIONS_INIT;
    opt.seed = 12345;
    opt.has_seed = 1;
    opt.rank = 3;
    opt.nonfinite = s->nonfinite;
    MUST(tg_codec_new(&h.codec, s->recipe, h.model.tensors, tensor_n, &opt, why));
    h.frame = malloc(tg_encode_bound(h.codec));
    h.now = calloc(h.codec->plan->residual_n + 1, sizeof *h.now);
    h.next = calloc(h.codec->plan->residual_n + 1, sizeof *h.next);
    for (int i = 0; i < steps; i++) {
        host_step(&h, s, (uint64_t)i);
        gpu_compare(&h, s, (uint64_t)i);
    }
    free(h.next);
    free(h.now);
    free(h.frame);
    tg_codec_free(h.codec);
    test_model_free(&h.model);
}

/* clang-format off */
static const char *const dense[] = {
    "ternary", "ternary@clip=2.5", "ternary@bucket=100", "ternary@bucket=5000", "ternary@bucket=65536", "qsgd@16",
    "qsgd@4,norm=max", "qsgd@200,bucket=512", "qsgd@1,bucket=1,clip=1", "qsgd@16,bucket=20000", "natural",
    "bingrad@b", "bingrad@zero", "bingrad@b,iters=0", "bingrad@b,iters=20,bucket=333",
    "bingrad@b,bucket=10000,clip=3", "bingrad@pb", "bingrad@pb,bucket=70,clip=2", "bingrad@pb,bucket=9000",
    "linear@16", "linear@256,bucket=77", "linear@3,bucket=3000,clip=2", "orq@9", "orq@3", "orq@17,bucket=500",
    "orq@5,half=yes,clip=3", "orq@9,bucket=7000", "orq@6,levels=exact", "orq@2,levels=exact,bucket=100",
    "orq@17,levels=exact,bucket=3000,half=yes,clip=3", "sign", "sign@scale=one", "fp8", "fp8@e4m3", "fp4",
    "fp8+huffman", "qsgd@16+rans", "mxfp8", "mxfp8@e5m2,round=random,block=32", "mxfp4@hadamard=64",
    "nvfp4@round=random", "nvfp4@hadamard=128", "mxfp8@hadamard=32,block=128", "mxfp4+rans",
};
/* clang-format on */

/* Every quantizer, with feedback and without. */
static void test_dense(void **state)
{
    (void)state;
    const uint64_t lens[] = {1, 2049, 7001, 33};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
        char recipe[100];
        scenario s = {.recipe = dense[i], .scale = 1};
        try_scenario(&s, lens, 4, TG_FP32, 1);
        (void)snprintf(recipe, sizeof recipe, "ef@decay=0.75+%s", dense[i]);
        s.recipe = recipe;
        if (strstr(dense[i], "scale=one") == NULL) {
            try_scenario(&s, lens, 4, TG_FP32, 2);
        }
    }
}

/* Values that are tiny, huge, equal or 0, and halves. */
static void test_extremes(void **state)
{
    (void)state;
    const uint64_t lens[] = {2048, 1100};
    const float scales[] = {1e-39f, 1e-30f, 1e37f};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
            scenario s = {.recipe = dense[i], .scale = scales[k]};
            try_scenario(&s, lens, 2, TG_FP32, 1);
        }
        for (int plain = 1; plain <= 2; plain++) {
            scenario s = {.recipe = dense[i], .scale = 1, .plain = plain};
            try_scenario(&s, lens, 2, TG_FP32, 1);
        }
        scenario s = {.recipe = dense[i], .scale = 1};
        try_scenario(&s, lens, 2, TG_FP16, 1);
        try_scenario(&s, lens, 2, TG_BF16, 1);
    }
}

static void test_nonfinite(void **state)
{
    (void)state;
    const uint64_t lens[] = {9000, 600};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
        char recipe[100];
        scenario s = {.recipe = dense[i], .scale = 1, .has_bad = true, .nonfinite = TG_NONFINITE_PASS};
        try_scenario(&s, lens, 2, TG_FP32, 1);
        if (strstr(dense[i], "scale=one") == NULL) {
            (void)snprintf(recipe, sizeof recipe, "%s+%s", i % 2 == 0 ? "ef" : "momentum@0.5", dense[i]);
            s.recipe = recipe;
            try_scenario(&s, lens, 2, TG_FP32, 2);
            s.nonfinite = TG_NONFINITE_ZERO;
            try_scenario(&s, lens, 2, TG_FP32, 2);
        }
    }
}

/* Several chunks of a unit. */
static void test_long(void **state)
{
    (void)state;
    const uint64_t lens[] = {262144 + 5000, 100};
    const char *const recipes[] = {"ef+ternary", "ef+sign", "ef+fp8", "bingrad@b",
                                   "fp32",       "fp16",    "bf16",   "ef+nvfp4@round=random"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        scenario s = {.recipe = recipes[i], .scale = 1};
        try_scenario(&s, lens, 2, TG_FP32, 1);
    }
}

static void test_sparse(void **state)
{
    (void)state;
    const uint64_t lens[] = {1, 9000, 40};
    /* clang-format off */
    const char *const recipes[] = {
        "ef+threshold@0.8+ternary", "threshold@0.8+qsgd@16", "ef+threshold@0.5+natural",
        "ef+threshold@1.5+bingrad@b", "ef+threshold@1+linear", "ef+threshold@0.1,scope=model+orq@5",
        "ef+threshold@0.9+sign", "ef+threshold@100+sign", "ef+threshold@0.01,scope=model+fp8", "ef+adabins@7+sign",
        "ef+threshold@0.8,scope=model+bingrad@pb", "ef+threshold@0.8+fp4",
        "ef+threshold@0.5+orq@4,levels=exact,bucket=900", "ef+threshold@0.8+mxfp4@hadamard=32",
        "ef+threshold@0.1,scope=model+nvfp4", "threshold@0.5+mxfp8@round=random",
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        scenario s = {.recipe = recipes[i], .scale = 1};
        try_scenario(&s, lens, 3, TG_FP32, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense), cmocka_unit_test(test_extremes), cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_long),  cmocka_unit_test(test_sparse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
