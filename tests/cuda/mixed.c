/* A world of ranks some of which have a device. */
#include "mixed.h"

#include <stdlib.h>

bool mixed_has_device(mixed_kind kind, uint32_t rank)
{
    return kind == MIXED_ALL || (kind != MIXED_NONE && rank % 2 == (kind == MIXED_ODD ? 1 : 0));
}

static uint64_t len_of(const test_model *model, size_t t)
{
    return model->dims[t] * (model->tensors[t].dtype == TG_FP32 ? 4 : 2);
}

/* Replaces the exchange of a rank by one over device memory. */
static void move_rank(mixed *m, uint32_t r, const test_setup *setup, const uint32_t *group_of)
{
    const test_model *model = &m->world.models[r];
    tg_options opt = test_setup_options(setup);
    opt.group_of = group_of;
    opt.device = m->device;
    tg_exchange_free(m->world.ranks[r]);
    m->world.ranks[r] = NULL;
    MUST(tg_exchange_new(&m->world.ranks[r], setup->recipe, model->tensors, model->tensor_n, r, m->world.n, &opt, why));
    m->grads[r] = calloc(model->tensor_n, sizeof *m->grads[r]);
    assert_non_null(m->grads[r]);
    for (size_t t = 0; t < model->tensor_n; t++) {
        MUST(tg_cuda_acquire(&m->grads[r][t], m->device, len_of(model, t), why));
    }
    m->world.grads[r] = m->grads[r];
}

mixed mixed_new(uint32_t n, const test_setup *setup, const uint32_t *group_of, mixed_kind kind)
{
    mixed m = {.kind = kind, .grads = calloc(n, sizeof *m.grads)};
    assert_non_null(m.grads);
    MUST(tg_cuda_open(&m.device, 0, NULL, why));
    m.world = test_world_new_grouped(n, setup, group_of);
    for (uint32_t r = 0; r < n && test_world_exists(&m.world); r++) {
        if (mixed_has_device(kind, r)) {
            move_rank(&m, r, setup, group_of);
        }
    }
    return m;
}

void mixed_free(mixed *m)
{
    size_t tensor_n = m->world.models[0].tensor_n;
    for (uint32_t r = 0; r < m->world.n; r++) {
        for (size_t t = 0; m->grads[r] != NULL && t < tensor_n; t++) {
            tg_cuda_release(m->device, m->grads[r][t]);
        }
        free(m->grads[r]);
    }
    free(m->grads);
    test_world_free(&m->world);
    tg_cuda_close(m->device);
}

void mixed_put(const mixed *m, uint32_t r)
{
    const test_model *model = &m->world.models[r];
    for (size_t t = 0; m->grads[r] != NULL && t < model->tensor_n; t++) {
        MUST(tg_cuda_copy(m->device, m->grads[r][t], model->grads[t], len_of(model, t), why));
    }
}

void mixed_get(const mixed *m, uint32_t r)
{
    const test_model *model = &m->world.models[r];
    for (size_t t = 0; m->grads[r] != NULL && t < model->tensor_n; t++) {
        MUST(tg_cuda_copy(m->device, model->grads[t], m->grads[r][t], len_of(model, t), why));
    }
    MUST(tg_cuda_wait(m->device, why));
}

tg_link *mixed_link(const mixed *m, uint32_t r, tg_link *inner)
{
    tg_link *link = inner;
    if (mixed_has_device(m->kind, r)) {
        MUST(tg_cuda_link_new(&link, m->device, inner, m->world.n, why));
    }
    return link;
}

void mixed_unlink(const mixed *m, uint32_t r, tg_link *link)
{
    if (mixed_has_device(m->kind, r)) {
        tg_cuda_link_free(link);
    }
}

/* ---- in flight ----------------------------------------------------------------------------------------------------------- */

static void put_all(void *context, const test_world *w)
{
    const mixed_flight *f = context;
    for (uint32_t r = 0; r < w->n; r++) {
        mixed_put(&f->mixed, r);
    }
}

static void get_all(void *context, const test_world *w)
{
    const mixed_flight *f = context;
    for (uint32_t r = 0; r < w->n; r++) {
        mixed_get(&f->mixed, r);
    }
}

void mixed_take_off(mixed_flight *out, uint32_t n, const test_setup *setup, const uint32_t *group_of, mixed_kind kind,
                    uint64_t seed)
{
    enum { CHANNELS = 64 };
    *out = (mixed_flight){.mixed = mixed_new(n, setup, group_of, kind), .links = calloc(n, sizeof(tg_link *))};
    test_flight *f = &out->flight;
    *f = (test_flight){.world = out->mixed.world,
                       .link = test_loose_new(n, CHANNELS, ~seed),
                       .reducers = calloc(n, sizeof(tg_reducer *)),
                       .random = {seed},
                       .dead = n,
                       .around = {put_all, get_all, out}};
    assert_true(out->links != NULL && f->reducers != NULL);
    for (uint32_t r = 0; r < n && test_world_exists(&f->world); r++) {
        out->links[r] = mixed_link(&out->mixed, r, test_loose_link(f->link, r));
        MUST(tg_reducer_new(&f->reducers[r], f->world.ranks[r], out->links[r], why));
    }
}

void mixed_land(mixed_flight *f)
{
    for (uint32_t r = 0; r < f->mixed.world.n; r++) {
        tg_reducer_free(f->flight.reducers[r]);
        if (f->links[r] != NULL) {
            mixed_unlink(&f->mixed, r, f->links[r]);
        }
    }
    free(f->flight.reducers);
    free(f->links);
    test_loose_free(f->flight.link);
    mixed_free(&f->mixed);
}

void mixed_fly(mixed_flight *f, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step < to; step++) {
        test_world_fill(&f->flight.world, step);
        test_fly(&f->flight, step);
        test_must_succeed(&f->flight);
    }
}
