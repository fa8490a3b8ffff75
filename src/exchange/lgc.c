/* LGC, learned gradient compression (arXiv 2103.08870). An autoencoder is trained during the run and learns what the ranks'
 * gradients have in common. A run has three phases:
 *
 *     1  dense    gradients are sent uncompressed and averaged
 *     2  learn    a leader, another rank in each step, broadcasts the indices of its largest magnitudes. All ranks send their
 *                 values at these indices to all others, and average them. Every rank trains the same autoencoder on them.
 *     3  code     the leader broadcasts its indices; the values there are sent as codes
 *
 * Phase 3, with L the leader:
 *
 *     ring                                                server
 *     L   ->  all     indices and their order             L   ->  all     indices, their order, the leader's code
 *     all ->  owners  whole tensors, last layer, code     all ->  rank 0  whole tensors, last layer, innovation
 *     owners -> all   their averages; each rank decodes   rank 0 -> all   their averages; rank 0 decodes each rank's values
 *                     the average code                                    from the leader's code and the rank's innovation
 *
 * The residual holds all values that are not at the leader's indices. The first layer and tensors exempt from the recipe are sent
 * whole. The last layer is sparse, but not encoded. */
#include "exchange/lgc.h"

#include <string.h>

static tg_status open(tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    tg_lgc_exchange *own = NULL;
    uint64_t len = 0;
    TG_TRY(tg_acquire(&own, a, 1, sizeof *own, why));
    x->own = own; /* tg_exchange_free closes it, also on failure */
    const tg_lgc_place place = {x->codec->executor, x->codec->device, x->codec->run, x->rank, x->world};
    TG_TRY(tg_lgc_new(&own->lgc, x->codec->layout, opt->nonfinite, &place, a, why));
    x->lanes[0].mail.in_cap = (size_t)tg_lgc_message_max(own->lgc);
    if (!tg_multiply(&len, x->lanes[0].mail.in_cap, x->world)) {
        return tg_fail(TG_E_MEMORY, why, "the messages of %u ranks do not fit into memory", x->world);
    }
    TG_TRY(tg_acquire(&own->bodies, a, x->world, sizeof *own->bodies, why));
    return x->codec->executor->acquire(&own->out, x->codec->device, a, len, why);
}

static void close(tg_exchange *x)
{
    tg_lgc_exchange *own = x->own;
    if (own != NULL) {
        x->codec->executor->release(x->codec->device, &x->allocator, own->out);
        tg_release(&x->allocator, (void *)own->bodies);
        tg_lgc_free(own->lgc);
        tg_release(&x->allocator, own);
    }
}

static void finish(tg_exchange *x)
{
    tg_lgc_finish(tg_lgc_of(x), x->step.grads, x->step.number);
}

static void residual(const tg_exchange *x, float *out, size_t t)
{
    tg_lgc_residual(out, tg_lgc_of(x), t);
}

static tg_status traffic(tg_traffic *out, const tg_exchange *x, size_t t, tg_detail *why)
{
    (void)why;
    tg_lgc_traffic(out, tg_lgc_of(x), t);
    return TG_OK;
}

static uint64_t saved_n(const tg_exchange *x)
{
    return tg_lgc_saved_n(tg_lgc_of(x));
}

static void save(float *out, const tg_exchange *x, uint64_t at, uint64_t n)
{
    tg_lgc_save(out, tg_lgc_of(x), at, n);
}

static void load(const tg_exchange *x, uint64_t at, const float *values, uint64_t n)
{
    tg_lgc_load_saved(tg_lgc_of(x), at, values, n);
}

static void restored(const tg_exchange *x)
{
    tg_lgc_restored(tg_lgc_of(x));
}

static void learning(tg_learning *out, const tg_exchange *x)
{
    const tg_lgc_progress *p = &tg_lgc_of(x)->progress;
    *out = (tg_learning){.phase = p->phase, .left = p->left, .extended = p->extended, .error = (double)p->error};
}

static tg_status suits(const tg_layout *layout, tg_detail *why)
{
    const char *own = tg_layout_exchange(layout);
    if (own != NULL && strncmp(own, "lgc", 3) == 0) {
        return TG_OK;
    }
    return tg_fail(TG_E_RECIPE, why, "the exchanges lgc-ring and lgc-server only carry recipes with 'autoencoder'");
}

#define STATE                                                                                                       \
    .residual = residual, .traffic = traffic, .saved_n = saved_n, .save = save, .load = load, .restored = restored, \
    .learning = learning

static const tg_protocol_state ring_state = {STATE};
static const tg_protocol_state server_state = {STATE, .of_world = "learned decoders"};

#define LGC(called, with)                                                                                              \
    {                                                                                                                  \
        .name = (called), .suits = suits, .is_one_group = true, .open = open, .close = close, .rounds = tg_lgc_rounds, \
        .shape = tg_lgc_shape, .send = tg_lgc_send, .receive = tg_lgc_receive, .finish = finish, .state = (with)       \
    }

const tg_protocol tg_protocol_lgc_ring = LGC("lgc-ring", &ring_state);
const tg_protocol tg_protocol_lgc_server = LGC("lgc-server", &server_state);
