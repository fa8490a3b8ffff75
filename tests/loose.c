#include "loose.h"

#include "link/reducer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 20000 }; /* calls of `test` without progress, before a rank is taken for lost */

/* The operation of a rank on a channel. */
typedef struct slot {
    const tg_op *op; /* NULL: none is under way */
    uint64_t number;
    uint32_t left_to_take, left_to_send; /* messages */
    bool *taken;                         /* from each rank */
} slot;

typedef struct end {
    tg_link link; /* must be first: a tg_link pointer is cast to end */
    test_loose *hub;
    uint32_t rank;
    bool is_dead;
    uint32_t dies_with; /* operations of groups under way; 0: never */
    uint64_t messages;
    slot *slots; /* one a channel */
} end;

struct test_loose {
    uint32_t world, channels;
    test_random random;
    end *ends;
    uint64_t idle;
    bool failed;
    tg_detail why;
    test_meddler meddler;
};

static tg_status fail_all(test_loose *l, const char *reason)
{
    if (!l->failed) {
        l->failed = true;
        (void)snprintf(l->why.text, sizeof l->why.text, "%.200s", reason);
    }
    return TG_E_LINK;
}

static tg_status give_reason(const test_loose *l, tg_detail *why)
{
    if (why != NULL) {
        *why = l->why;
    }
    return TG_E_LINK;
}

static tg_status start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    end *e = (end *)(void *)self;
    test_loose *l = e->hub;
    slot *s = &e->slots[channel];
    assert_true(channel < l->channels && s->op == NULL);
    if (l->failed) {
        return give_reason(l, why);
    }
    s->op = op;
    s->number++;
    s->left_to_take = s->left_to_send = 0;
    for (uint32_t p = 0; p < l->world; p++) {
        s->taken[p] = false;
        s->left_to_take += op->recvs[p].len > 0 ? 1 : 0;
        s->left_to_send += op->sends[p].len > 0 ? 1 : 0;
    }
    e->messages += s->left_to_send;
    if (e->dies_with > 0 && channel >= TG_GROUP_CHANNEL && --e->dies_with == 0) {
        e->is_dead = true;
    }
    return TG_OK;
}

/* Takes what rank p has sent on a channel, if it has. */
static void take(end *e, uint32_t channel, uint32_t p)
{
    test_loose *l = e->hub;
    slot *s = &e->slots[channel], *from = &l->ends[p].slots[channel];
    const tg_span *into = &s->op->recvs[p];
    if (into->len == 0 || s->taken[p] || from->op == NULL || from->number != s->number) {
        return;
    }
    if (from->op->sends[e->rank].len != into->len) {
        (void)fail_all(l, "lengths differ");
        return;
    }
    memcpy(into->data, from->op->sends[e->rank].data, (size_t)into->len);
    if (l->meddler.meddle != NULL) {
        l->meddler.meddle(l->meddler.context, channel, p, e->rank, into->data, into->len);
    }
    s->taken[p] = true;
    s->left_to_take--;
    from->left_to_send--;
    l->idle = 0;
}

static tg_status test(tg_link *self, uint32_t channel, tg_detail *why)
{
    end *e = (end *)(void *)self;
    test_loose *l = e->hub;
    slot *s = &e->slots[channel];
    assert_true(channel < l->channels && s->op != NULL);
    if (!l->failed && ++l->idle > (uint64_t)PATIENCE * l->world) {
        (void)fail_all(l, "a rank is lost");
    }
    if (l->failed) {
        return give_reason(l, why);
    }
    bool is_doomed = e->is_dead || (e->dies_with > 0 && channel >= TG_GROUP_CHANNEL);
    if (is_doomed || test_bits(&l->random) % 3 == 0) {
        return TG_MORE;
    }
    for (uint32_t p = 0; p < l->world; p++) {
        take(e, channel, p);
    }
    if (l->failed) {
        return give_reason(l, why);
    }
    if (s->left_to_take > 0 || s->left_to_send > 0) {
        return TG_MORE;
    }
    s->op = NULL;
    l->idle = 0;
    return TG_OK;
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    (void)self, (void)op, (void)why;
    return TG_E_LINK; /* this link is for operations that are started */
}

static void abort_link(tg_link *self, const char *reason)
{
    (void)fail_all(((end *)(void *)self)->hub, reason);
}

test_loose *test_loose_new(uint32_t world, uint32_t channels, uint64_t seed)
{
    test_loose *l = test_room(sizeof *l);
    *l = (test_loose){.world = world, .channels = channels, .random = {seed}, .ends = calloc(world, sizeof *l->ends)};
    assert_non_null(l->ends);
    for (uint32_t r = 0; r < world; r++) {
        end *e = &l->ends[r];
        *e = (end){.link = {.carry = carry, .abort = abort_link, .start = start, .test = test, .channel_n = channels},
                   .hub = l,
                   .rank = r,
                   .slots = calloc(channels, sizeof *e->slots)};
        assert_non_null(e->slots);
        for (uint32_t c = 0; c < channels; c++) {
            e->slots[c].taken = calloc(world, sizeof(bool));
            assert_non_null(e->slots[c].taken);
        }
    }
    return l;
}

void test_loose_free(test_loose *l)
{
    for (uint32_t r = 0; r < l->world; r++) {
        for (uint32_t c = 0; c < l->channels; c++) {
            free(l->ends[r].slots[c].taken);
        }
        free(l->ends[r].slots);
    }
    free(l->ends);
    free(l);
}

tg_link *test_loose_link(test_loose *l, uint32_t rank)
{
    return &l->ends[rank].link;
}

void test_loose_meddle(test_loose *l, test_meddler meddler)
{
    l->meddler = meddler;
}

void test_loose_kill(test_loose *l, uint32_t rank)
{
    l->ends[rank].is_dead = true;
}

void test_loose_kill_in_flight(test_loose *l, uint32_t rank, uint32_t groups)
{
    l->ends[rank].dies_with = groups;
}

bool test_loose_is_dead(const test_loose *l, uint32_t rank)
{
    return l->ends[rank].is_dead;
}

uint64_t test_loose_messages(const test_loose *l, uint32_t rank)
{
    return l->ends[rank].messages;
}
