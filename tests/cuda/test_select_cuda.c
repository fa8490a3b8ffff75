/* Selection and indices on the GPU against the host: the same chunks to the byte and the same next residuals, for all select parts,
 * ties, special values and shapes of models; and damaged indices, which both refuse alike. */
#include "exec/cuda/select.h"
#include "exec/host.h"
#include "frame/codec.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tables.c; its header has another tg_run. */
void tg_gpu_unit_of(tg_gpu_unit *out, const tg_unit_plan *unit, uint32_t piece_first);
void tg_gpu_fill_pieces(tg_gpu_piece *out, const tg_layout *layout);
void tg_gpu_fill_chunks(tg_gpu_chunk *out, const tg_plan *plan);
uint32_t tg_gpu_fill_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan);

/* ---- a plan on both sides ------------------------------------------------------------------------------------------------- */

/* The device's side of a codec, in host memory, as the emulation has it. */
typedef struct device {
    tg_gpu_unit *units;
    tg_gpu_piece *pieces;
    tg_gpu_chunk *chunks;
    tg_gpu_tile *tiles;
    uint32_t *tile_first;
    tg_gpu_selection selection;
    void *host_part, *device_part;
    tg_gpu_verdict verdict;
    float *maxima, *next;
    uint8_t *bytes;
    uint32_t chunk_n;
    tg_gpu_pass pass;
} device;

static void *space(uint64_t len)
{
    void *block = calloc(1, len + 64);
    assert_non_null(block);
    memset(block, 0xa5, len + 64);
    return block;
}

static void open_tables(device *d, const tg_plan *plan)
{
    const tg_layout *l = plan->layout;
    uint32_t piece = 0;
    d->chunk_n = (uint32_t)plan->grid->first[plan->grid->cells];
    d->units = space(l->unit_n * sizeof *d->units);
    d->pieces = space(l->tensor_n * sizeof *d->pieces);
    d->chunks = space(d->chunk_n * sizeof *d->chunks);
    d->tile_first = space((d->chunk_n + 1) * sizeof *d->tile_first);
    for (size_t i = 0; i < l->unit_n; i++) {
        tg_gpu_unit_of(&d->units[i], &plan->units[i], piece);
        piece += (uint32_t)l->units[i].piece_n;
        assert_null(tg_gpu_select_lacks(&d->units[i]));
    }
    tg_gpu_fill_pieces(d->pieces, l);
    tg_gpu_fill_chunks(d->chunks, plan);
    d->tiles = space(tg_gpu_fill_tiles(NULL, d->tile_first, plan) * sizeof *d->tiles);
    (void)tg_gpu_fill_tiles(d->tiles, d->tile_first, plan);
}

static void open_selection(device *d, const tg_plan *plan, const tg_gpu_selection *parent)
{
    const tg_gpu_tables t = {d->units, d->pieces, d->chunks, (uint32_t)plan->layout->unit_n, d->chunk_n};
    tg_gpu_selection_lens lens = tg_gpu_selection_measure(&t, parent);
    d->host_part = space(lens.host);
    d->device_part = space(lens.device);
    tg_gpu_selection_set_up(&d->selection, d->host_part, d->device_part, &t, parent);
    memcpy(d->device_part, d->host_part, lens.copied);
}

static device open_device(const tg_codec *c)
{
    device d = {0};
    const tg_plan *plan = c->plan;
    uint64_t n = plan->layout->element_n, len = 0;
    open_tables(&d, plan);
    open_selection(&d, plan, NULL);
    for (uint32_t i = 0; i < d.chunk_n; i++) {
        len += tg_chunk_bound(plan, &plan->grid->chunks[i]) + 3;
    }
    d.maxima = space(n * sizeof *d.maxima);
    d.next = space(plan->residual_n * sizeof *d.next);
    d.bytes = space(len + 64);
    tg_gpu_space s = {.symbols = space(2 * n),
                      .values = space(n * sizeof *s.values),
                      .positions = space(n * sizeof *s.positions),
                      .words = space(4 * n),
                      .views = space(d.chunk_n * sizeof *s.views),
                      .out = space(d.chunk_n * sizeof *s.out),
                      .clips = space(plan->layout->unit_n * sizeof *s.clips)};
    for (size_t i = 0; i < plan->layout->unit_n; i++) {
        s.clips[i] = 1.0f;
    }
    uint8_t *at = d.bytes + 9; /* chunks stand at any address */
    for (uint32_t i = 0; i < d.chunk_n; i++) {
        s.out[i] = at;
        at += tg_chunk_bound(plan, &plan->grid->chunks[i]) + i % 3;
    }
    d.pass = (tg_gpu_pass){.units = d.units,
                           .pieces = d.pieces,
                           .chunks = d.chunks,
                           .chunk_n = d.chunk_n,
                           .tiles = d.tiles,
                           .tile_n = d.tile_first[d.chunk_n],
                           .next = d.next,
                           .space = s,
                           .seed = plan->layout->seed,
                           .rank = plan->rank,
                           .nonfinite = (uint8_t)plan->nonfinite,
                           .has_values = (plan->holds & TG_HAS_VALUES) != 0};
    return d;
}

static void close_device(device *d)
{
    const tg_gpu_space *s = &d->pass.space;
    void *const blocks[] = {d->units,       d->pieces, d->chunks, d->tiles, d->tile_first, d->host_part,
                            d->device_part, d->maxima, d->next,   d->bytes, s->symbols,    s->values,
                            s->positions,   s->words,  s->views,  s->out,   s->clips};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        free(blocks[i]);
    }
}

/* ---- one step ------------------------------------------------------------------------------------------------------------- */

/* The symbols of `sign`, packed: the part of other kernels. */
static void write_signs(const device *d)
{
    for (uint32_t i = 0; i < d->chunk_n; i++) {
        const tg_gpu_chunk *chunk = &d->chunks[i];
        const tg_gpu_unit *u = &d->units[chunk->unit];
        tg_view *v = &d->pass.space.views[i];
        uint8_t *symbols = d->pass.space.symbols + 2 * chunk->element_at;
        if (u->quantize != TG_GPU_SIGN || v->count == 0 || !d->pass.has_values) {
            continue;
        }
        uint16_t *wide = space(v->count * sizeof *wide);
        for (uint32_t j = 0; j < v->count; j++) {
            symbols[j] = signbit(d->pass.space.values[chunk->element_at + j]) ? 1 : 0;
            wide[j] = symbols[j];
        }
        tg_bits_write(d->pass.space.out[i] + v->symbols, wide, v->count, 2);
        v->indices = v->symbols + tg_bits_len(v->count, 2);
        free(wide);
    }
}

static void encode(device *d, const tg_codec *c, uint64_t step, const tg_source *source)
{
    tg_gpu_pass *p = &d->pass;
    p->grads = source->grads;
    p->flat = source->flat;
    p->now = c->run->residuals.now;
    p->step = step;
    p->verdict = &d->verdict;
    memset(&d->verdict, 0, sizeof d->verdict);
    if (d->selection.drawn_n > 0) {
        tg_gpu_draw_coordinates(p, &d->selection, 1);
    }
    tg_gpu_count_known(p, &d->selection);
    tg_gpu_select_sparse(p, &d->selection, d->maxima);
    tg_gpu_lay_out_sparse(p);
    tg_gpu_encode_values(p);
    write_signs(d);
    tg_gpu_write_indices(p);
}

static bool same_view(const tg_view *a, const tg_view *b)
{
    return a->side == b->side && a->symbols == b->symbols && a->indices == b->indices && a->count == b->count &&
           a->index_len == b->index_len && a->mode == b->mode && a->is_listed == b->is_listed &&
           a->is_joint == b->is_joint;
}

/* A chunk is as the host wrote it, but for the scale. */
static void compare_chunk(const device *d, const tg_codec *c, uint32_t i, const char *what)
{
    const tg_written *expected = &c->run->work->written[i];
    const tg_view *v = &d->pass.space.views[i], *e = &expected->as.view;
    const tg_gpu_unit *u = &d->units[d->chunks[i].unit];
    const uint8_t *out = d->pass.space.out[i];
    uint64_t header = u->coordinates == TG_AT_INDICES ? TG_CHUNK_HEADER : 0, end = e->indices + e->index_len;
    if (!same_view(v, e)) {
        fail_msg("%s: chunk %u has count %u mode %u length %u at %llu, not count %u mode %u length %u at %llu", what, i,
                 v->count, v->mode, v->index_len, (unsigned long long)v->indices, e->count, e->mode, e->index_len,
                 (unsigned long long)e->indices);
    }
    if (memcmp(out, expected->bytes, header) != 0 ||
        memcmp(out + e->symbols, expected->bytes + e->symbols, end - e->symbols) != 0) {
        fail_msg("%s: chunk %u has other bytes", what, i);
    }
}

static void compare_residuals(const device *d, const tg_codec *c, const char *what)
{
    const float *next = c->run->residuals.next;
    for (uint64_t i = 0; i < c->plan->residual_n; i++) {
        if (memcmp(&next[i], &d->next[i], sizeof *next) != 0) {
            fail_msg("%s: residual %llu is %a, not %a", what, (unsigned long long)i, (double)d->next[i],
                     (double)next[i]);
        }
    }
}

static bool has_signs(const tg_codec *c)
{
    bool any = false;
    for (size_t i = 0; i < c->layout->unit_n; i++) {
        any = any || c->plan->units[i].values == TG_VALUES_SIGNS;
    }
    return any;
}

/* Coordinates that are read again are those that were written, also where another rank has drawn its own. */
static void read_back(device *d, const tg_codec *c, const char *what)
{
    uint64_t n = c->layout->element_n;
    uint32_t *written = space(n * sizeof *written);
    uint8_t *symbols = space(2 * n);
    memcpy(written, d->pass.space.positions, n * sizeof *written);
    memcpy(symbols, d->pass.space.symbols, 2 * n);
    memset(d->pass.space.positions, 0xee, n * sizeof *written);
    memset(d->pass.space.symbols, 0xee, 2 * n);
    for (uint32_t i = 0; i < d->chunk_n; i++) {
        tg_view *v = &d->pass.space.views[i];
        v->indices += (uint64_t)(d->pass.space.out[i] - d->bytes);
    }
    d->pass.rank++;
    tg_gpu_draw_coordinates(&d->pass, &d->selection, 1);
    tg_gpu_count_known(&d->pass, &d->selection);
    tg_gpu_read_indices(&d->pass, d->bytes, &d->selection);
    d->pass.rank--;
    for (uint32_t i = 0; i < d->chunk_n; i++) {
        const tg_gpu_chunk *chunk = &d->chunks[i];
        const tg_view *v = &d->pass.space.views[i];
        if (memcmp(written + chunk->element_at, d->pass.space.positions + chunk->element_at,
                   v->count * sizeof *written) != 0) {
            fail_msg("%s: coordinates of chunk %u are read as others", what, i);
        }
        if (v->is_joint &&
            memcmp(symbols + 2 * chunk->element_at, d->pass.space.symbols + 2 * chunk->element_at, v->count) != 0) {
            fail_msg("%s: symbols of chunk %u are read as others", what, i);
        }
    }
    assert_int_equal(d->verdict.bad_chunk, 0);
    free(written);
    free(symbols);
}

/* ---- models ----------------------------------------------------------------------------------------------------------------- */

typedef enum values {
    GAUSSIAN,
    TIES,
    ZEROS,
    CONSTANT,
    DENORMALS,
    SPARSE,
    BLOCKS,
    HEAVY,
    SAMPLED,
    SPECIAL,
    VALUES_N
} values;

static float value_of(values kind, test_random *r, uint64_t i)
{
    float g = test_gaussian(r);
    static const float levels[] = {0.5f, -0.5f, 0.25f, 1.0f, -1.0f};
    static const float specials[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f, -0.0f};
    switch (kind) {
    case TIES: return levels[test_bits(r) % 5];
    case ZEROS: return i % 2 == 0 ? 0.0f : -0.0f;
    case CONSTANT: return -0.125f;
    case DENORMALS: return g * 1e-42f;
    case SPARSE: return test_bits(r) % 97 == 0 ? g : 0.0f;
    case BLOCKS: return i / 300 % 7 == 3 ? 1.0f + 0.01f * g : 0.0001f * g;
    case HEAVY: return g * g * g * expf(4 * g);
    case SAMPLED:
        return i % 1023 < 32 ? 10.0f + g
                             : 0.01f * g; /* the sample of a unit of 262,145 elements has large ones alone */
    case SPECIAL: return test_bits(r) % 50 == 0 ? specials[test_bits(r) % 8] : g;
    default: return g;
    }
}

static void fill(test_model *m, values kind, test_random *r)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        for (uint64_t i = 0; i < m->dims[t]; i++) {
            test_model_set(m, t, i, value_of(kind, r, i));
        }
    }
}

typedef struct setting {
    const char *recipe;
    const uint64_t *lens;
    size_t tensor_n;
    tg_dtype dtype;
    tg_nonfinite nonfinite;
    uint32_t slices;
    unsigned holds;
} setting;

static tg_codec *open_codec(const setting *s, const test_model *m)
{
    tg_codec *c = NULL;
    tg_layout *layout = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 42;
    opt.rank = 3;
    opt.nonfinite = s->nonfinite;
    MUST(tg_codec_layout(&layout, s->recipe, m->tensors, m->tensor_n, &opt, why));
    const tg_codec_purpose purpose = {.slices = s->slices, .groups = {.n = 1}, .holds = s->holds};
    MUST(tg_codec_make(&c, layout, &purpose, &opt, why));
    return c;
}

/* The host's write of a step, of all cells. */
static void write_on_host(tg_codec *c, uint64_t step, const tg_source *source, uint8_t *bytes, uint64_t *hashes)
{
    uint32_t cells = c->grid->cells;
    tg_body *bodies = space(cells * sizeof *bodies);
    uint64_t at = 0;
    for (uint32_t s = 0; s < cells; s++) {
        bodies[s] = (tg_body){.bytes = bytes + at, .hashes = hashes + c->grid->first[s]};
        at += tg_body_bound(c->plan, s);
    }
    MUST(tg_host_select(c->run, 0, step, source, why));
    MUST(tg_host_write(bodies, c->run, c->plan, 0, cells, source, why));
    free(bodies);
}

/* Some steps by both, with the residuals of each step from the host. */
static void try_setting(const setting *s, values kind, int steps)
{
    test_random r = {kind + 7u};
    test_model m = test_model_new(s->lens, s->tensor_n, s->dtype);
    tg_codec *c = open_codec(s, &m);
    device d = open_device(c);
    uint64_t bound = 0;
    for (uint32_t i = 0; i < c->grid->cells; i++) {
        bound += tg_body_bound(c->plan, i);
    }
    uint8_t *bytes = space(bound);
    uint64_t *hashes = space(d.chunk_n * sizeof *hashes);
    const tg_source source = {.grads = (const void *const *)m.grads};
    for (int step = 0; step < steps; step++) {
        char what[200];
        (void)snprintf(what, sizeof what, "%s, %zu tensors from %llu on, values %d, dtype %d, step %d", s->recipe,
                       s->tensor_n, (unsigned long long)s->lens[0], (int)kind, (int)s->dtype, step);
        fill(&m, kind, &r);
        write_on_host(c, (uint64_t)step, &source, bytes, hashes);
        encode(&d, c, (uint64_t)step, &source);
        for (uint32_t i = 0; i < d.chunk_n; i++) {
            if (d.units[d.chunks[i].unit].coordinates != TG_AT_EVERY) {
                compare_chunk(&d, c, i, what);
            }
        }
        if (!has_signs(c) && (s->holds & TG_HAS_VALUES) != 0) {
            compare_residuals(&d, c, what);
        }
        read_back(&d, c, what);
        c->executor->commit(c->run);
    }
    free(bytes);
    free(hashes);
    close_device(&d);
    tg_codec_free(c);
    test_model_free(&m);
}

static const uint64_t one[] = {1}, small[] = {1, 2, 31, 32, 33, 100, 257, 1023, 4095, 4097},
                      middle[] = {16385, 34021, 7}, mixed[] = {16384, 17000, 999}, large[] = {262145, 40000},
                      huge[] = {400001};
enum { BOTH = TG_HAS_INDICES | TG_HAS_VALUES };
#define LENS(lens) lens, sizeof(lens) / sizeof *(lens)

static void try_shapes(const char *recipe, tg_dtype dtype, values kind)
{
    tg_nonfinite nonfinite = kind == SPECIAL ? TG_NONFINITE_PASS : TG_NONFINITE_ERROR;
    const setting settings[] = {{recipe, LENS(one), dtype, nonfinite, 1, BOTH},
                                {recipe, LENS(small), dtype, nonfinite, 1, BOTH},
                                {recipe, LENS(middle), dtype, nonfinite, 1, BOTH},
                                {recipe, LENS(middle), dtype, TG_NONFINITE_ZERO, 3, BOTH}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        try_setting(&settings[i], kind, 1 + (int)i % 2);
    }
}

/* All kinds of values in tensors of some lengths, other dtypes in all of them. */
static void try_values(const char *recipe)
{
    for (int kind = 0; kind < VALUES_N; kind++) {
        tg_nonfinite nonfinite = kind == SPECIAL ? TG_NONFINITE_PASS : TG_NONFINITE_ERROR;
        const setting s = {recipe, LENS(mixed), TG_FP32, nonfinite, 1 + (uint32_t)kind % 2, BOTH};
        try_setting(&s, (values)kind, 2);
    }
    try_shapes(recipe, TG_FP16, GAUSSIAN);
    try_shapes(recipe, TG_BF16, TIES);
}

static void try_large(const char *recipe, values kind)
{
    const setting settings[] = {{recipe, LENS(large), TG_FP32, TG_NONFINITE_ERROR, 1, BOTH},
                                {recipe, LENS(huge), TG_FP32, TG_NONFINITE_ERROR, 2, BOTH}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        try_setting(&settings[i], kind, 1);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------ */

static void test_bins(void **state)
{
    (void)state;
    try_values("ef+adabins@50+fp32");
    try_values("ef+adabins@500+sign@scale=meanmax+adacomp16");
    try_shapes("adabins@1+fp16", TG_FP32, GAUSSIAN);
    try_shapes("ef@decay=0.5+adabins@64+sign+adacomp8", TG_FP32, SPARSE);
    try_shapes("momentum+adabins@7,scope=model,weight=3+bf16", TG_FP32, GAUSSIAN);
    try_shapes("ef+adabins@16384+fp32", TG_FP32, GAUSSIAN);
    try_shapes("ef+adabins@5000,scope=model+fp32+bitmap", TG_FP32, TIES);
    try_large("ef+adabins@500+fp32", GAUSSIAN);
    try_large("ef+adabins@6000+fp32", GAUSSIAN);
}

static void test_top(void **state)
{
    (void)state;
    try_values("ef+topk@0.01+fp32");
    try_values("topk@0.2+fp16");
    try_values("ef+topk@0.001,scope=model+fp32+rans");
    try_shapes("momentum+topk@0.01,warmup=3+bf16", TG_FP32, GAUSSIAN);
    try_shapes("ef+topk@1+fp32", TG_FP32, GAUSSIAN);
    try_shapes("ef+topk@0.6,scope=model+fp32", TG_FP32, TIES);
    try_large("ef+topk@0.01+fp32", GAUSSIAN);
    try_large("ef+topk@0.01+fp32", TIES);
    try_large("ef+topk@0.03+fp32", BLOCKS);
    try_large("ef+topk@0.02+fp32", SAMPLED);
    try_large("topk@0.05+fp32", CONSTANT);
}

static void test_threshold(void **state)
{
    (void)state;
    try_values("ef+threshold@1+fp32");
    try_values("threshold@0+fp16");
    try_shapes("momentum+threshold@2+bf16", TG_FP32, GAUSSIAN);
    try_large("ef+threshold@0.99+fp32", BLOCKS);
}

static void test_drawn(void **state)
{
    (void)state;
    static const char *const recipes[] = {"ef+randomk@0.01,coords=own+fp32",
                                          "randomk@0.1,unbiased=yes,coords=shared+fp16",
                                          "ef+randomk@0.7,coords=own+fp32",
                                          "ef+randomk@1,coords=shared+bf16",
                                          "momentum+randomk@0.5,scope=model,coords=own+fp32",
                                          "ef+randomblock@0.01,coords=own+fp32",
                                          "randomblock@0.3,unbiased=yes,coords=shared+fp32",
                                          "ef+randomblock@0.6,scope=model,coords=own+fp32"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        try_shapes(recipes[i], TG_FP32, GAUSSIAN);
        try_shapes(recipes[i], TG_FP32, SPECIAL);
        try_large(recipes[i], GAUSSIAN);
    }
}

static void test_leader(void **state)
{
    (void)state;
    static const char *const recipes[] = {"ef+topk@0.01,coords=shared+fp32", "ef+threshold@1,coords=shared+fp32",
                                          "ef+adabins@50,coords=shared+sign",
                                          "momentum+topk@0.1,coords=shared,scope=model+fp32+rans"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const setting settings[] = {{recipes[i], LENS(small), TG_FP32, TG_NONFINITE_ERROR, 1, TG_HAS_INDICES},
                                    {recipes[i], LENS(middle), TG_FP32, TG_NONFINITE_ERROR, 1, TG_HAS_INDICES}};
        try_setting(&settings[0], GAUSSIAN, 2);
        try_setting(&settings[1], GAUSSIAN, 2);
    }
}

/* Values at coordinates of a leader, from its frame. */
static void try_followers(const char *recipe)
{
    test_random r = {11};
    test_model m = test_model_new(mixed, 3, TG_FP32);
    const setting led = {recipe, LENS(mixed), TG_FP32, TG_NONFINITE_ERROR, 1, TG_HAS_INDICES};
    const setting follows = {recipe, LENS(mixed), TG_FP32, TG_NONFINITE_ERROR, 1, TG_HAS_VALUES};
    tg_codec *leader = open_codec(&led, &m), *follower = open_codec(&follows, &m);
    device of_leader = open_device(leader), of_follower = open_device(follower);
    uint8_t *bytes = space(tg_body_bound(leader->plan, 0) + tg_body_bound(follower->plan, 0));
    uint64_t *hashes = space(of_leader.chunk_n * sizeof *hashes);
    const tg_source source = {.grads = (const void *const *)m.grads};
    fill(&m, GAUSSIAN, &r);
    write_on_host(leader, 0, &source, bytes, hashes);
    size_t len = 0;
    for (uint32_t i = 0; i < of_leader.chunk_n; i++) {
        len += leader->run->work->written[i].as.view.len;
    }
    tg_body_view view = {.bytes = bytes, .chunks = leader->views};
    MUST(tg_host_find(&view, leader->run, leader->plan, 0, len, why));
    tg_host_follow(follower->run, leader->plan, 0, &view);
    tg_host_clip(follower->run, 0, &source);
    tg_body body = {.bytes = bytes + len, .hashes = hashes};
    MUST(tg_host_write(&body, follower->run, follower->plan, 0, 1, &source, why));
    encode(&of_leader, leader, 0, &source);
    read_back(&of_leader, leader, recipe);
    tg_gpu_follow_leader(&of_leader.pass, &of_follower.selection);
    encode(&of_follower, follower, 0, &source);
    for (uint32_t i = 0; i < of_follower.chunk_n; i++) {
        assert_int_equal(of_follower.selection.known_n[i], follower->run->work->known_n[i]);
        compare_chunk(&of_follower, follower, i, recipe);
    }
    compare_residuals(&of_follower, follower, recipe);
    free(bytes);
    free(hashes);
    close_device(&of_leader);
    close_device(&of_follower);
    tg_codec_free(leader);
    tg_codec_free(follower);
    test_model_free(&m);
}

static void test_followers(void **state)
{
    (void)state;
    try_followers("ef+topk@0.01,coords=shared+fp32");
    try_followers("momentum+threshold@2,coords=shared,scope=model+fp16");
    try_followers("ef+adabins@50,coords=shared+bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bins),      cmocka_unit_test(test_top),
                                       cmocka_unit_test(test_threshold), cmocka_unit_test(test_drawn),
                                       cmocka_unit_test(test_leader),    cmocka_unit_test(test_followers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
