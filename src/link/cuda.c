/* A link for exchanges over device memory. Links carry host memory, so this one wraps another: messages in device memory are copied
 * to pinned host memory before they are sent, and from it when they have arrived. Votes and lengths are in host memory and pass
 * as they are.
 *
 *     start   device -> pinned, wait      inner link: pinned -> pinned of other ranks      test   pinned -> device
 *
 * Copies are in the order of the device's stream. Each channel has pinned memory of its own, so that several operations can be under
 * way. It grows when an operation needs more than any before, so that steps after the first ones allocate nothing. */
#include "tersegrad/cuda.h"
#include "base/memory.h"
#include "exec/cuda/gpu.h"

enum { ALIGN = 64 };

/* Operations on a channel, one at a time. */
typedef struct channel {
    tg_op op; /* what the inner link is given */
    tg_span *sends, *recvs;
    const void **known;    /* of sends, then of recvs: where a message in device memory was last */
    const tg_span *wanted; /* recvs of the operation under way; NULL: none is */
    uint8_t *pinned;
    uint64_t pinned_len;
    bool is_read; /* copies from pinned memory may be under way */
} channel;

typedef struct cuda_link {
    tg_link link; /* must be first: a tg_link pointer is cast to cuda_link */
    tg_link *inner;
    const tg_gpu *gpu;
    tg_allocator allocator;
    uint32_t world, channel_n;
    channel *channels; /* those of the inner link, and one for `carry` */
} cuda_link;

/* ---- messages in pinned memory ------------------------------------------------------------------------------------------ */

static uint64_t padded(uint64_t len)
{
    return (len + ALIGN - 1) / ALIGN * ALIGN;
}

/* Whether a message is in device memory. Messages of a channel are at the same addresses in every step, so the runtime is seldom
 * asked. */
static bool is_device(const cuda_link *l, const void **known, const tg_span *message)
{
    if (message->len > 0 && *known != message->data && tg_gpu_can_use(l->gpu, message->data)) {
        *known = message->data;
    }
    return message->len > 0 && *known == message->data;
}

static bool is_same(const tg_span *a, const tg_span *b)
{
    return a != NULL && a->data == b->data && a->len == b->len;
}

/* The length of all messages in device memory. Bytes that go to several ranks count once. */
static uint64_t measure(const channel *c, const cuda_link *l, const tg_op *op)
{
    const tg_span *last = NULL;
    uint64_t len = 0;
    for (uint32_t p = 0; p < l->world; p++) {
        if (is_device(l, &c->known[p], &op->sends[p]) && !is_same(last, &op->sends[p])) {
            last = &op->sends[p];
            len += padded(last->len);
        }
        len += is_device(l, &c->known[l->world + p], &op->recvs[p]) ? padded(op->recvs[p].len) : 0;
    }
    return len;
}

static tg_status reserve(channel *c, const cuda_link *l, uint64_t len, tg_detail *why)
{
    if (len <= c->pinned_len) {
        return TG_OK;
    }
    tg_gpu_unpin(l->gpu, c->pinned);
    c->pinned = NULL;
    c->pinned_len = 0;
    uint64_t spare = padded(len / 4); /* lengths vary from step to step */
    TG_TRY(tg_gpu_pin(&c->pinned, l->gpu, len + spare, why));
    c->pinned_len = len + spare;
    return TG_OK;
}

/* Gives messages in device memory a place in pinned memory, and copies those that are sent there. True: some are sent. */
static bool place(channel *c, const cuda_link *l, const tg_op *op)
{
    const tg_span *last = NULL;
    uint8_t *at = c->pinned;
    tg_span staged = {NULL, 0};
    for (uint32_t p = 0; p < l->world; p++) {
        c->sends[p] = op->sends[p];
        c->recvs[p] = op->recvs[p];
        if (is_device(l, &c->known[p], &op->sends[p])) {
            if (!is_same(last, &op->sends[p])) {
                last = &op->sends[p];
                staged = (tg_span){at, last->len};
                at += padded(last->len);
                tg_gpu_copy(l->gpu, staged.data, last->data, last->len);
            }
            c->sends[p] = staged;
        }
        if (is_device(l, &c->known[l->world + p], &op->recvs[p])) {
            c->recvs[p].data = at;
            at += padded(op->recvs[p].len);
        }
    }
    return last != NULL;
}

/* Prepares c->op in place of `op`. */
static tg_status stage(channel *c, const cuda_link *l, const tg_op *op, tg_detail *why)
{
    if (op->world != l->world) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation of %u ranks was given to a link of %u", op->world, l->world);
    }
    tg_gpu_enter(l->gpu);
    uint64_t len = measure(c, l, op);
    if (c->is_read && len > 0) {
        TG_TRY(tg_gpu_wait(l->gpu, why));
        c->is_read = false;
    }
    TG_TRY(reserve(c, l, len, why));
    if (place(c, l, op)) {
        TG_TRY(tg_gpu_wait(l->gpu, why));
    }
    c->op = *op;
    c->op.sends = c->sends;
    c->op.recvs = c->recvs;
    c->wanted = op->recvs;
    return TG_OK;
}

/* What has arrived to device memory. */
static void deliver(channel *c, const cuda_link *l)
{
    tg_gpu_enter(l->gpu);
    for (uint32_t p = 0; p < l->world; p++) {
        if (c->recvs[p].data != c->wanted[p].data) {
            tg_gpu_copy(l->gpu, c->wanted[p].data, c->recvs[p].data, c->recvs[p].len);
            c->is_read = true;
        }
    }
    c->wanted = NULL;
}

/* ---- the functions of tg_link -------------------------------------------------------------------------------------------- */

static cuda_link *link_of(tg_link *self)
{
    return (cuda_link *)(void *)self;
}

/* What the inner link has returned of an operation. */
static tg_status settle(cuda_link *l, channel *c, tg_status status)
{
    l->link.sent_len = l->inner->sent_len;
    if (status == TG_OK && c->wanted != NULL) {
        deliver(c, l);
    } else if (status < 0) {
        c->wanted = NULL;
    }
    return status;
}

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    cuda_link *l = link_of(self);
    channel *c = &l->channels[l->channel_n];
    TG_TRY(stage(c, l, op, why));
    return settle(l, c, l->inner->carry(l->inner, &c->op, why));
}

static tg_status check_channel(const cuda_link *l, uint32_t number, tg_detail *why)
{
    return number < l->channel_n
               ? TG_OK
               : tg_fail(TG_E_ARGUMENT, why, "channel %u does not exist: there are %u", number, l->channel_n);
}

static tg_status start(tg_link *self, uint32_t number, const tg_op *op, tg_detail *why)
{
    cuda_link *l = link_of(self);
    TG_TRY(check_channel(l, number, why));
    channel *c = &l->channels[number];
    if (c->wanted != NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "an operation is already under way on channel %u", number);
    }
    TG_TRY(stage(c, l, op, why));
    tg_status status = l->inner->start(l->inner, number, &c->op, why);
    if (status != TG_OK) {
        c->wanted = NULL;
    }
    return status;
}

static tg_status test(tg_link *self, uint32_t number, tg_detail *why)
{
    cuda_link *l = link_of(self);
    TG_TRY(check_channel(l, number, why));
    return settle(l, &l->channels[number], l->inner->test(l->inner, number, why));
}

static void listen(tg_link *self, void (*notify)(void *context), void *context)
{
    tg_link *inner = link_of(self)->inner;
    inner->listen(inner, notify, context);
}

static void abort_link(tg_link *self, const char *reason)
{
    tg_link *inner = link_of(self)->inner;
    inner->abort(inner, reason);
}

/* ---- making one ---------------------------------------------------------------------------------------------------------- */

static tg_status open_channels(cuda_link *l, tg_detail *why)
{
    TG_TRY(tg_acquire(&l->channels, &l->allocator, (uint64_t)l->channel_n + 1, sizeof *l->channels, why));
    for (uint32_t i = 0; i <= l->channel_n; i++) {
        channel *c = &l->channels[i];
        TG_TRY(tg_acquire(&c->sends, &l->allocator, l->world, sizeof *c->sends, why));
        TG_TRY(tg_acquire(&c->recvs, &l->allocator, l->world, sizeof *c->recvs, why));
        TG_TRY(tg_acquire(&c->known, &l->allocator, 2 * (uint64_t)l->world, sizeof *c->known, why));
    }
    return TG_OK;
}

tg_status tg_cuda_link_new(tg_link **out, tg_device *device, tg_link *inner, uint32_t world, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(device, why);
    TG_NEED(inner, why);
    TG_NEED(inner->carry, why);
    TG_NEED(inner->abort, why);
    tg_allocator a = tg_allocator_or_standard(NULL);
    cuda_link *l = NULL;
    TG_TRY(tg_acquire(&l, &a, 1, sizeof *l, why));
    bool can_start = inner->start != NULL && inner->test != NULL;
    *l = (cuda_link){.link = {.carry = carry,
                              .abort = abort_link,
                              .sent_len = inner->sent_len,
                              .start = can_start ? start : NULL,
                              .test = can_start ? test : NULL,
                              .listen = can_start && inner->listen != NULL ? listen : NULL,
                              .channel_n = can_start ? inner->channel_n : 0,
                              .host_size = inner->host_size},
                     .inner = inner,
                     .gpu = (const tg_gpu *)(const void *)device, /* which begins with a tg_device */
                     .allocator = a,
                     .world = world,
                     .channel_n = can_start ? inner->channel_n : 0};
    tg_status status = open_channels(l, why);
    if (status != TG_OK) {
        tg_cuda_link_free(&l->link);
        return status;
    }
    *out = &l->link;
    return TG_OK;
}

void tg_cuda_link_free(tg_link *link)
{
    if (link == NULL) {
        return;
    }
    cuda_link *l = link_of(link);
    tg_allocator a = l->allocator;
    tg_status status = tg_gpu_wait(l->gpu, NULL); /* copies from pinned memory; a GPU that has failed makes none */
    (void)status;
    for (uint32_t i = 0; l->channels != NULL && i <= l->channel_n; i++) {
        channel *c = &l->channels[i];
        tg_gpu_unpin(l->gpu, c->pinned);
        tg_release(&a, (void *)c->known);
        tg_release(&a, c->recvs);
        tg_release(&a, c->sends);
    }
    tg_release(&a, l->channels);
    tg_release(&a, l);
}
