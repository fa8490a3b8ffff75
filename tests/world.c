/* A world of ranks in one thread. */
#include "world.h"

#include "exchange/exchange.h"

#include <stdlib.h>
#include <string.h>

tg_options test_setup_options(const test_setup *setup)
{
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.exchange = setup->exchange;
    opt.verify_every = setup->verify_every;
    opt.threads = setup->threads;
    opt.nonfinite = setup->nonfinite;
    opt.host_size = setup->host_size;
    opt.allocator = setup->allocator;
    return opt;
}

test_world test_world_new(uint32_t n, const test_setup *setup)
{
    return test_world_new_grouped(n, setup, NULL);
}

test_world test_world_new_grouped(uint32_t n, const test_setup *setup, const uint32_t *group_of)
{
    return test_world_new_hosted(n, setup, group_of, setup->host_size);
}

test_world test_world_new_hosted(uint32_t n, const test_setup *setup, const uint32_t *group_of, uint32_t host_size)
{
    test_world w = {.n = n,
                    .ranks = calloc(n, sizeof(tg_exchange *)),
                    .models = calloc(n, sizeof *w.models),
                    .grads = calloc(n, sizeof *w.grads),
                    .outcomes = calloc(n, sizeof *w.outcomes),
                    .sent = calloc(n, sizeof *w.sent)};
    tg_options opt = test_setup_options(setup);
    opt.group_of = group_of;
    opt.host_size = host_size;
    for (uint32_t r = 0; r < n; r++) {
        w.models[r] = test_model_new(setup->lens, setup->tensor_n, setup->dtype);
        w.grads[r] = w.models[r].grads;
        if (setup->rows != NULL) {
            test_model_shape(&w.models[r], setup->rows);
        }
        tg_detail reason = {""};
        tg_status status =
            tg_exchange_new(&w.ranks[r], setup->recipe, w.models[r].tensors, setup->tensor_n, r, n, &opt, &reason);
        if (status != TG_OK && status != TG_E_RECIPE) {
            fail_msg("%s by %s: %s", setup->recipe, setup->exchange, reason.text);
        }
    }
    return w;
}

bool test_world_exists(const test_world *w)
{
    return w->ranks[0] != NULL;
}

void test_world_free(test_world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tg_exchange_free(w->ranks[r]);
        test_model_free(&w->models[r]);
    }
    free(w->sent);
    free(w->outcomes);
    free((void *)w->grads);
    free(w->models);
    free(w->ranks);
}

void test_world_fill(test_world *w, uint64_t step)
{
    for (uint32_t r = 0; r < w->n; r++) {
        test_random random = {step * 1000 + r};
        test_model_fill(&w->models[r], &random);
    }
}

/* Counts the bytes sent, then calls the test's tap. */
typedef struct counter {
    test_world *world;
    const tg_tap *next;
} counter;

static tg_status count(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    counter *c = context;
    assert_true(from != to); /* a rank sends nothing to itself over the link */
    c->world->sent[from] += len;
    return c->next == NULL ? TG_OK : c->next->message(c->next->context, kind, from, to, data, len);
}

tg_status test_world_reduce(test_world *w, uint64_t step, const tg_tap *tap, tg_detail *why)
{
    counter c = {w, tap};
    tg_tap counting = {count, &c};
    return tg_lockstep_reduce(w->outcomes, w->ranks, w->n, step, w->grads, &counting, why);
}

void test_world_step(test_world *w, uint64_t step)
{
    test_world_fill(w, step);
    MUST(test_world_reduce(w, step, NULL, why));
    assert_true(test_world_identical(w));
}

bool test_world_identical(const test_world *w)
{
    for (uint32_t r = 1; r < w->n; r++) {
        if (!test_model_equal(&w->models[0], &w->models[r])) {
            return false;
        }
    }
    return true;
}

/* The error-feedback state of a codec; the caller frees it. */
static float *residuals_of(const tg_codec *c)
{
    float *out = test_room((c->plan->residual_n + 1) * sizeof *out);
    c->executor->save(out, c->run, 0, c->plan->residual_n);
    return out;
}

static bool same_residuals(const tg_codec *a, const tg_codec *b)
{
    if (a == NULL || a->plan->residual_n == 0) {
        return true;
    }
    float *of_a = residuals_of(a), *of_b = residuals_of(b);
    bool same = memcmp(of_a, of_b, a->plan->residual_n * sizeof(float)) == 0;
    free(of_b);
    free(of_a);
    return same;
}

const tg_codec *test_codec_of(const tg_exchange *x)
{
    return tg_keeper(x) == NULL ? NULL : tg_keeper(x)->codec;
}

const tg_codec *test_answer_of(const tg_exchange *x)
{
    x = tg_keeper(x);
    return x == NULL || x->carrier == NULL ? NULL : x->carrier->answer;
}

/* What protocols with state of their own keep. */
static bool same_states(const tg_exchange *a, const tg_exchange *b)
{
    a = tg_keeper(a);
    b = tg_keeper(b);
    const tg_protocol_state *of = a == NULL ? NULL : a->protocol->state;
    if (of == NULL) {
        return true;
    }
    uint64_t n = of->saved_n(a);
    float *of_a = test_room((n + 1) * sizeof *of_a), *of_b = test_room((n + 1) * sizeof *of_b);
    of->save(of_a, a, 0, n);
    of->save(of_b, b, 0, n);
    bool same = of->saved_n(b) == n && memcmp(of_a, of_b, n * sizeof *of_a) == 0;
    free(of_b);
    free(of_a);
    return same;
}

bool test_world_same(const test_world *a, const test_world *b)
{
    for (uint32_t r = 0; r < a->n; r++) {
        if (!test_model_equal(&a->models[r], &b->models[r]) || !same_states(a->ranks[r], b->ranks[r]) ||
            !same_residuals(test_codec_of(a->ranks[r]), test_codec_of(b->ranks[r])) ||
            !same_residuals(test_answer_of(a->ranks[r]), test_answer_of(b->ranks[r]))) {
            return false;
        }
    }
    return true;
}

/* Adds an owner's residual of a unit, tensor by tensor. */
static void add_kept(double *out, const tg_layout *l, const tg_unit_plan *u, const float *kept)
{
    const tg_unit *unit = u->unit;
    for (size_t k = 0; k < unit->piece_n; k++) {
        const tg_piece *piece = &unit->pieces[k];
        uint64_t tensor_at = 0;
        for (size_t t = 0; t < piece->tensor; t++) {
            tensor_at += l->tensor_elements[t];
        }
        for (uint64_t i = 0; i < piece->n; i++) {
            if (piece->at + i >= u->lo && piece->at + i < u->hi) {
                out[tensor_at + i] += (double)kept[piece->at + i - u->lo];
            }
        }
    }
}

void test_world_owed(double *out, const test_world *w)
{
    uint64_t element_n = test_model_elements(&w->models[0]);
    float *residual = test_room(element_n * sizeof *residual);
    memset(out, 0, element_n * sizeof *out);
    for (uint32_t r = 0; r < w->n; r++) {
        const tg_layout *l = w->ranks[r]->codec->layout;
        const tg_codec *answer = test_answer_of(w->ranks[r]);
        float *kept = answer == NULL ? NULL : residuals_of(answer);
        uint64_t at = 0;
        for (size_t t = 0; t < l->tensor_n; at += l->tensor_elements[t++]) {
            MUST(tg_exchange_residual(w->ranks[r], residual, t, why));
            for (uint64_t i = 0; i < l->tensor_elements[t]; i++) {
                out[at + i] += (double)residual[i] / (double)w->n;
            }
        }
        for (size_t u = 0; answer != NULL && u < l->unit_n; u++) {
            if (answer->plan->units[u].planes > 0) {
                add_kept(out, l, &answer->plan->units[u], kept + answer->plan->units[u].residual_at);
            }
        }
        free(kept);
    }
    free(residual);
}
