/* Momentum feedback and the warm-up of the ratio against Deep Gradient Compression as its paper has it. */
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct plain {
    float *velocity, *residual, *decoded;
    uint64_t n;
} plain;

static plain plain_new(uint64_t n)
{
    plain p = {test_room(n * 4), test_room(n * 4), test_room(n * 4), n};
    memset(p.velocity, 0, n * 4);
    memset(p.residual, 0, n * 4);
    return p;
}

static void plain_free(plain *p)
{
    free(p->velocity);
    free(p->residual);
    free(p->decoded);
}

/* u = m u + g; v = v + u; the k largest of |v| are sent, and both cleared there. */
static void plain_step(plain *p, const float *g, float m, double clip, uint64_t k)
{
    double sum = 0;
    for (uint64_t i = 0; i < p->n; i++) {
        sum += (double)g[i] * (double)g[i];
    }
    float shrink = clip > 0 && sqrt(sum) > clip ? (float)(clip / sqrt(sum)) : 1;
    for (uint64_t i = 0; i < p->n; i++) {
        p->velocity[i] = m * p->velocity[i] + shrink * g[i];
        p->residual[i] += p->velocity[i];
        p->decoded[i] = 0;
    }
    for (uint64_t sent = 0; sent < k; sent++) {
        uint64_t best = 0;
        for (uint64_t i = 1; i < p->n; i++) {
            best = fabsf(p->residual[i]) > fabsf(p->residual[best]) ? i : best;
        }
        p->decoded[best] = p->residual[best];
        p->residual[best] = p->velocity[best] = 0;
    }
}

static void check_against_plain(const char *recipe, float m, double clip, double ratio, uint64_t warmup)
{
    uint64_t n = 200;
    test_random random = {9};
    test_model model = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    float *residual = test_room(n * sizeof *residual);
    plain p = plain_new(n);
    tg_options opt = TG_OPTIONS_INIT;
    opt.describe = 1;
    tg_codec *c = NULL;
    MUST(tg_codec_new(&c, recipe, model.tensors, 1, &opt, why));
    for (uint64_t step = 0; step < 40; step++) {
        double now = step < warmup ? 0.25 * pow(ratio / 0.25, (double)step / (double)warmup) : ratio;
        test_model_fill(&model, &random);
        plain_step(&p, model.grads[0], m, clip, (uint64_t)fmax(1, floor(now * (double)n + 0.5)));
        test_frame f = test_encode(c, step, &model);
        test_decode(&back, &f);
        MUST(tg_codec_residual(c, residual, 0, why));
        for (uint64_t i = 0; i < n; i++) {
            assert_true(test_model_get(&back, 0, i) == p.decoded[i]);
            assert_true(residual[i] == p.residual[i]);
        }
        free(f.bytes);
    }
    tg_codec_free(c);
    plain_free(&p);
    free(residual);
    test_model_free(&back);
    test_model_free(&model);
}

static void follows_the_paper(void **state)
{
    (void)state;
    check_against_plain("dgc@0.02", 0.9f, 0, 0.02, 0);
    check_against_plain("momentum@0.5+topk@0.1", 0.5f, 0, 0.1, 0);
    check_against_plain("momentum@0.9,clip=3+topk@0.1", 0.9f, 3, 0.1, 0);
    check_against_plain("dgc@0.01,warmup=25", 0.9f, 0, 0.01, 25);
    check_against_plain("momentum@0+topk@0.02", 0, 0, 0.02, 0);
}

/* If everything is sent, this is an optimizer's momentum. */
static void is_plain_momentum_where_all_is_sent(void **state)
{
    (void)state;
    uint64_t n = 50;
    test_random random = {10};
    test_model m = test_model_new(&n, 1, TG_FP32), back = test_model_new(&n, 1, TG_FP32);
    float velocity[50] = {0};
    tg_options opt = TG_OPTIONS_INIT;
    opt.describe = 1;
    tg_codec *c = NULL;
    m.tensors[0].kind = TG_BIAS; /* exempt from dgc, but for its momentum */
    tg_tensor tensors[2] = {m.tensors[0], m.tensors[0]};
    tensors[1].name = "other";
    tensors[1].kind = TG_DENSE;
    MUST(tg_codec_new(&c, "dgc@0.1", tensors, 2, &opt, why));
    assert_string_equal(tg_codec_recipe(c, 0), "momentum@0.9+fp32");
    tg_codec_free(c);
    m.tensors[0].kind = TG_DENSE;
    MUST(tg_codec_new(&c, "momentum@0.9+fp32", m.tensors, 1, &opt, why));
    for (uint64_t step = 0; step < 10; step++) {
        test_model_fill(&m, &random);
        test_frame f = test_encode(c, step, &m);
        test_decode(&back, &f);
        for (uint64_t i = 0; i < n; i++) {
            velocity[i] = 0.9f * velocity[i] + test_model_get(&m, 0, i);
            assert_true(test_model_get(&back, 0, i) == velocity[i]);
        }
        free(f.bytes);
    }
    tg_codec_free(c);
    test_model_free(&back);
    test_model_free(&m);
}

/* Every rank clips its gradients, leader or not: if everything is sent, the average is that of clipped gradients. */
static void clips_on_ranks_that_follow(void **state)
{
    (void)state;
    static const uint64_t n = 64;
    test_setup setup = {
        .recipe = "momentum@0,clip=2+topk@1,coords=shared", .exchange = "allreduce", .lens = &n, .tensor_n = 1};
    test_world w = test_world_new(3, &setup);
    for (uint64_t step = 0; step < 3; step++) {
        double expected[64] = {0};
        test_world_fill(&w, step);
        for (uint32_t r = 0; r < 3; r++) {
            double sum = 0;
            for (uint64_t i = 0; i < n; i++) {
                sum += pow((double)test_model_get(&w.models[r], 0, i), 2);
            }
            assert_true(sqrt(sum) > 2);
            for (uint64_t i = 0; i < n; i++) {
                expected[i] += (double)test_model_get(&w.models[r], 0, i) * 2 / sqrt(sum) / 3;
            }
        }
        MUST(test_world_reduce(&w, step, NULL, why));
        for (uint64_t i = 0; i < n; i++) {
            assert_true(fabs((double)test_model_get(&w.models[0], 0, i) - expected[i]) < 1e-6);
        }
    }
    test_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(follows_the_paper),
                                       cmocka_unit_test(clips_on_ranks_that_follow),
                                       cmocka_unit_test(is_plain_momentum_where_all_is_sent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
