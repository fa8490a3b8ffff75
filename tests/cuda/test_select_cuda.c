/* Selection and indices on the GPU against the host: the same chunks to the byte and the same next residuals, for all select parts,
 * ties, special values and shapes of models; and damaged indices, which both refuse alike. */
#include "cuda/selecting.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void fill(test_model *m, values kind, test_random *r, float scale)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        for (uint64_t i = 0; i < m->dims[t]; i++) {
            test_model_set(m, t, i, scale * value_of(kind, r, i));
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
    tg_body *bodies = test_space(cells * sizeof *bodies);
    uint64_t at = 0;
    for (uint32_t s = 0; s < cells; s++) {
        bodies[s] = (tg_body){.bytes = bytes + at, .hashes = hashes + c->grid->first[s] + 2 * s};
        at += tg_body_bound(c->plan, s);
    }
    MUST(tg_host_select(c->run, 0, step, source, why));
    MUST(tg_host_write(bodies, c->run, c->plan, 0, cells, source, why));
    free(bodies);
}

/* Whether other kernels end the residuals of some unit. */
static bool has_signs(const tg_codec *c)
{
    bool any = false;
    for (size_t i = 0; i < c->layout->unit_n; i++) {
        const tg_unit_plan *u = &c->plan->units[i];
        any = any || (u->values == TG_VALUES_SIGNS && !test_gpu_lists_scale(u));
    }
    return any;
}

/* Some steps by both, with the residuals of each step from the host. Gradients are scaled by scales[step], unless that is NULL.
 * Returns how often the device had to begin a step again. */
static uint32_t try_steps(const setting *s, values kind, const float *scales, int steps)
{
    uint32_t again_n = 0;
    test_random r = {kind + 7u};
    test_model m = test_model_new(s->lens, s->tensor_n, s->dtype);
    tg_codec *c = open_codec(s, &m);
    test_gpu d = test_gpu_open(c);
    uint64_t bound = 0;
    for (uint32_t i = 0; i < c->grid->cells; i++) {
        bound += tg_body_bound(c->plan, i);
    }
    uint8_t *bytes = test_space(bound);
    uint64_t *hashes = test_space((d.chunk_n + 2 * (size_t)c->grid->cells) * sizeof *hashes);
    const tg_source source = {.grads = (const void *const *)m.grads};
    for (int step = 0; step < steps; step++) {
        char what[200];
        (void)snprintf(what, sizeof what, "%s, %zu tensors from %llu on, values %d, dtype %d, step %d", s->recipe,
                       s->tensor_n, (unsigned long long)s->lens[0], (int)kind, (int)s->dtype, step);
        fill(&m, kind, &r, scales == NULL ? 1.0f : scales[step]);
        write_on_host(c, (uint64_t)step, &source, bytes, hashes);
        again_n += test_gpu_encode(&d, c, (uint64_t)step, &source);
        for (uint32_t i = 0; i < d.chunk_n; i++) {
            if (d.units[d.chunks[i].unit].coordinates != TG_AT_EVERY) {
                test_gpu_compare_chunk(&d, c, i, what);
            }
        }
        if (!has_signs(c) && (s->holds & TG_HAS_VALUES) != 0) {
            test_gpu_compare_residuals(&d, c, what);
        }
        test_gpu_read_back(&d, c, what);
        c->executor->commit(c->run);
    }
    free(bytes);
    free(hashes);
    test_gpu_close(&d);
    tg_codec_free(c);
    test_model_free(&m);
    return again_n;
}

static void try_setting(const setting *s, values kind, int steps)
{
    (void)try_steps(s, kind, NULL, steps);
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
    try_shapes("ef+adabins@1,weight=1+sign@scale=meanmax", TG_FP32, GAUSSIAN);
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

/* Bounds that are guessed from the step before: they hold while gradients move slowly, and change nothing where they do not. */
static void test_guesses(void **state)
{
    (void)state;
    static const uint64_t lens[] = {70001, 20000, 300};
    static const float steady[] = {1, 1, 1, 1, 1, 1}, jumps[] = {1, 1, 0.1f, 1, 30, 1, 1, 1};
    static const char *const recipes[] = {"ef+topk@0.01+fp32", "ef+topk@0.05+fp16", "topk@0.02+bf16",
                                          "momentum@0.5+topk@0.02+fp32"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const setting s = {recipes[i], LENS(lens), TG_FP32, TG_NONFINITE_ERROR, 1, BOTH};
        uint32_t again_n = try_steps(&s, GAUSSIAN, steady, 6);
        assert_true(again_n <= 2); /* the first residuals grow fast */
        assert_true(try_steps(&s, GAUSSIAN, jumps, 8) > 0);
    }
    const setting ties = {"ef+topk@0.01+fp32", LENS(lens), TG_FP32, TG_NONFINITE_ERROR, 2, BOTH};
    (void)try_steps(&ties, TIES, steady, 3);
    const setting special = {"ef+topk@0.01+fp16", LENS(lens), TG_FP32, TG_NONFINITE_PASS, 1, BOTH};
    (void)try_steps(&special, SPECIAL, steady, 4);
    const setting warm = {"momentum+topk@0.01,warmup=4+fp32", LENS(lens), TG_BF16, TG_NONFINITE_ZERO, 1, BOTH};
    (void)try_steps(&warm, GAUSSIAN, steady, 6);
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
    test_gpu of_leader = test_gpu_open(leader), of_follower = test_gpu_open(follower);
    uint8_t *bytes = test_space(tg_body_bound(leader->plan, 0) + tg_body_bound(follower->plan, 0));
    uint64_t *hashes = test_space((of_leader.chunk_n + 2) * sizeof *hashes);
    const tg_source source = {.grads = (const void *const *)m.grads};
    fill(&m, GAUSSIAN, &r, 1.0f);
    write_on_host(leader, 0, &source, bytes, hashes);
    size_t len = (size_t)leader->plan->headers_len[0];
    for (uint32_t i = 0; i < of_leader.chunk_n; i++) {
        len += leader->run->work->written[i].as.view.len;
    }
    tg_body_view view = {.bytes = bytes, .chunks = leader->views};
    MUST(tg_host_find(&view, leader->run, leader->plan, 0, len, why));
    tg_host_follow(follower->run, leader->plan, 0, &view);
    tg_host_clip(follower->run, 0, &source);
    tg_body body = {.bytes = bytes + len, .hashes = hashes};
    MUST(tg_host_write(&body, follower->run, follower->plan, 0, 1, &source, why));
    (void)test_gpu_encode(&of_leader, leader, 0, &source);
    test_gpu_read_back(&of_leader, leader, recipe);
    tg_gpu_follow_leader(&of_leader.pass, &of_follower.selection);
    (void)test_gpu_encode(&of_follower, follower, 0, &source);
    for (uint32_t i = 0; i < of_follower.chunk_n; i++) {
        assert_int_equal(of_follower.selection.known_n[i], follower->run->work->known_n[i]);
        test_gpu_compare_chunk(&of_follower, follower, i, recipe);
    }
    test_gpu_compare_residuals(&of_follower, follower, recipe);
    free(bytes);
    free(hashes);
    test_gpu_close(&of_leader);
    test_gpu_close(&of_follower);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bins),     cmocka_unit_test(test_top),
                                       cmocka_unit_test(test_guesses),  cmocka_unit_test(test_threshold),
                                       cmocka_unit_test(test_drawn),    cmocka_unit_test(test_leader),
                                       cmocka_unit_test(test_followers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
