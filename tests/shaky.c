#include "shaky.h"

#include "link/clock.h"

enum { SPARE = TEST_SHAKY_CHANNELS - 1 };

static tg_status start(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why)
{
    test_shaky *s = (test_shaky *)(void *)self;
    uint64_t number = s->started++;
    bool now = number == s->at;
    s->channels[channel].op = op;
    s->channels[channel].is_damaged = now && s->kind == TEST_DAMAGE;
    s->channels[channel].until_ms = now && s->kind == TEST_LATE ? tg_now_ms() + TEST_LATE_MS : 0;
    s->channels[channel].is_lost = (now && s->kind == TEST_LOSS) || (number >= s->at && s->kind == TEST_DEATH);
    if (now && s->kind == TEST_STOP) {
        s->stop();
    }
    return s->channels[channel].is_lost ? TG_OK : s->inner->start(s->inner, channel, op, why);
}

/* Whether the inner link has failed: an operation without messages is done soon unless it has. */
static tg_status probe(const test_shaky *s, tg_detail *why)
{
    static const tg_span nothing[TEST_SHAKY_WORLD] = {{NULL, 0}};
    const tg_op op = {.kind = TG_ALLTOALLV, .rank = s->rank, .world = s->world, .sends = nothing, .recvs = nothing};
    tg_status status = s->inner->start(s->inner, SPARE, &op, why);
    while (status == TG_OK) {
        status = s->inner->test(s->inner, SPARE, why);
        if (status != TG_MORE) {
            return status;
        }
        status = TG_OK;
    }
    return status;
}

static void flip(test_shaky *s, uint32_t channel)
{
    const tg_op *op = s->channels[channel].op;
    for (uint32_t p = 0; p < s->world; p++) {
        const tg_span *in = &op->recvs[(p + s->bit) % s->world];
        if (in->len > 0) {
            ((uint8_t *)in->data)[s->bit / 8 % in->len] ^= (uint8_t)(1u << s->bit % 8);
            s->hits_vote = channel == 0;
            return;
        }
    }
}

static tg_status test(tg_link *self, uint32_t channel, tg_detail *why)
{
    test_shaky *s = (test_shaky *)(void *)self;
    if (s->channels[channel].is_lost) {
        tg_status status = probe(s, why);
        return status == TG_OK ? TG_MORE : status;
    }
    if (tg_now_ms() < s->channels[channel].until_ms) {
        return TG_MORE;
    }
    tg_status status = s->inner->test(s->inner, channel, why);
    if (status == TG_OK && s->channels[channel].is_damaged) {
        flip(s, channel);
    }
    return status;
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    test_shaky *s = (test_shaky *)(void *)self;
    return s->inner->carry(s->inner, op, why);
}

static void abort_link(tg_link *self, const char *reason)
{
    test_shaky *s = (test_shaky *)(void *)self;
    s->inner->abort(s->inner, reason);
}

static void listen_to(tg_link *self, void (*notify)(void *), void *context)
{
    test_shaky *s = (test_shaky *)(void *)self;
    s->inner->listen(s->inner, notify, context);
}

void test_shaky_init(test_shaky *s, tg_link *inner, uint32_t rank, uint32_t world, void (*stop)(void))
{
    *s = (test_shaky){.link = {.carry = carry,
                               .abort = abort_link,
                               .start = start,
                               .test = test,
                               .listen = inner->listen != NULL ? listen_to : NULL,
                               .channel_n = SPARE},
                      .inner = inner,
                      .rank = rank,
                      .world = world,
                      .stop = stop};
}
