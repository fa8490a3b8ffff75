/* Makes exchanges: chooses the protocol and takes all memory that steps will use, so that no step can fail for lack of
 * it. */
#include "exchange/exchange.h"

#include "base/bytes.h"
#include "kernels/hash.h"
#include "recipe/policy.h"

#include <string.h>

/* Where the messages of a group arrive, and its lengths. */
static tg_status acquire_lane(tg_lane *lane, const tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    tg_mail *mail = &lane->mail;
    tg_lengths *lengths = &lane->lengths;
    uint64_t len = 0;
    if (!tg_multiply(&len, mail->in_cap, x->world)) {
        return tg_fail(TG_E_MEMORY, why, "the messages of %u ranks do not fit into memory", x->world);
    }
    TG_TRY(tg_acquire(&mail->sends, a, x->world, sizeof *mail->sends, why));
    TG_TRY(tg_acquire(&mail->recvs, a, x->world, sizeof *mail->recvs, why));
    TG_TRY(tg_acquire(&mail->payload, a, x->world, sizeof *mail->payload, why));
    TG_TRY(tg_acquire(&mail->in, a, x->world, sizeof *mail->in, why));
    TG_TRY(x->codec->executor->acquire(&mail->in_space, a, len, why));
    for (uint32_t p = 0; p < x->world; p++) {
        mail->in[p].data = mail->in_space + p * mail->in_cap;
    }
    TG_TRY(tg_acquire(&lengths->sends, a, x->world, sizeof *lengths->sends, why));
    TG_TRY(tg_acquire(&lengths->recvs, a, x->world, sizeof *lengths->recvs, why));
    TG_TRY(tg_acquire(&lengths->table, a, x->world, TG_LENGTH_LEN, why));
    TG_TRY(tg_acquire(&lengths->out, a, x->world, TG_LENGTH_LEN, why));
    return tg_acquire(&lengths->in, a, x->world, TG_LENGTH_LEN, why);
}

static void release_lane(const tg_lane *lane, const tg_exchange *x)
{
    const tg_allocator *a = &x->allocator;
    tg_release(a, lane->lengths.in);
    tg_release(a, lane->lengths.out);
    tg_release(a, lane->lengths.table);
    tg_release(a, lane->lengths.recvs);
    tg_release(a, lane->lengths.sends);
    if (x->codec != NULL) {
        x->codec->executor->release(a, lane->mail.in_space);
    }
    tg_release(a, lane->mail.in);
    tg_release(a, lane->mail.payload);
    tg_release(a, lane->mail.recvs);
    tg_release(a, lane->mail.sends);
}

static tg_status open_lanes(tg_exchange *x, tg_detail *why)
{
    TG_TRY(tg_acquire(&x->lanes, &x->allocator, x->codec->grid->groups, sizeof *x->lanes, why));
    x->lane_n = x->codec->grid->groups;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        x->lanes[g].group = g;
    }
    x->lane = x->lanes;
    return TG_OK;
}

static tg_status acquire_lanes(tg_exchange *x, tg_detail *why)
{
    for (uint32_t g = 0; g < x->lane_n; g++) {
        TG_TRY(acquire_lane(&x->lanes[g], x, why));
    }
    TG_TRY(tg_acquire(&x->votes.sends, &x->allocator, x->world, sizeof *x->votes.sends, why));
    return tg_acquire(&x->votes.recvs, &x->allocator, x->world, sizeof *x->votes.recvs, why);
}

/* All that ranks must have in common, as one number. */
static uint64_t agree_on(const tg_exchange *x)
{
    const tg_layout *layout = x->codec->layout;
    uint8_t facts[64] = {0};
    tg_put64(facts, layout->description.fingerprint);
    tg_put64(facts + 8, x->verify_every);
    tg_put32(facts + 16, x->world);
    tg_put64(facts + 20, tg_hash(x->codec->grid->group_of, layout->unit_n * sizeof *x->codec->grid->group_of));
    (void)memcpy(facts + 28, x->protocol->name, strlen(x->protocol->name));
    return tg_hash(facts, sizeof facts);
}

/* Every slice but its own once to its owner, and its own to all others. */
static uint64_t dense_of(uint64_t logical, uint32_t world)
{
    uint64_t others = world - 1;
    return logical / world * 2 * others + logical % world * 2 * others / world;
}

static void count_dense(tg_exchange *x)
{
    const tg_layout *l = x->codec->layout;
    for (size_t t = 0; t < l->tensor_n; t++) {
        uint64_t len = l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype);
        x->counts.logical += len;
        x->lanes[tg_exchange_group(x, t)].counts.logical += len;
    }
    x->counts.dense = dense_of(x->counts.logical, x->world);
    for (uint32_t g = 0; g < x->lane_n; g++) {
        x->lanes[g].counts.dense = dense_of(x->lanes[g].counts.logical, x->world);
    }
}

static tg_status set_up(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                        const tg_options *opt, tg_detail *why)
{
    tg_options own = *opt;
    own.rank = x->rank;
    own.describe = 0;
    /* The protocol depends on the layout, and the slices of the codec on the protocol. */
    tg_layout *layout = NULL;
    TG_TRY(tg_codec_layout(&layout, recipe, tensors, tensor_n, &own, why));
    tg_status status = tg_protocol_choose(&x->protocol, opt->exchange, layout, x->world, why);
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    uint32_t *group_of = NULL;
    tg_groups groups;
    status = tg_groups_choose(&groups, &group_of, layout, x->protocol, opt, &x->allocator, why);
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    const tg_codec_purpose purpose = {.slices = tg_protocol_slices(x->protocol, x->world),
                                      .groups = groups,
                                      .holds = x->protocol->holds,
                                      .only_decodes = x->protocol->state != NULL};
    status = tg_codec_make(&x->codec, layout, &purpose, &own, why);
    tg_release(&x->allocator, group_of);
    TG_TRY(status);
    TG_TRY(open_lanes(x, why));
    count_dense(x);
    x->verify_every = opt->verify_every;
    x->agreement = agree_on(x);
    TG_TRY(x->protocol->open(x, &own, why));
    return acquire_lanes(x, why);
}

tg_status tg_exchange_new(tg_exchange **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why)
{
    TG_NEED(out, why);
    if (world == 0 || rank >= world || world > TG_WORLD_MAX) {
        return tg_fail(TG_E_ARGUMENT, why, "there is no rank %u in a world of %u (1 to %u ranks)", rank, world,
                       TG_WORLD_MAX);
    }
    tg_options own;
    TG_TRY(tg_options_read(&own, opt, why));
    tg_allocator a = tg_allocator_or_standard(own.allocator);
    tg_exchange *x = NULL;
    TG_TRY(tg_acquire(&x, &a, 1, sizeof *x, why));
    x->allocator = a;
    x->rank = rank;
    x->world = world;
    tg_status status = set_up(x, recipe, tensors, tensor_n, &own, why);
    if (status != TG_OK) {
        tg_exchange_free(x);
        return status;
    }
    *out = x;
    return TG_OK;
}

void tg_exchange_free(tg_exchange *x)
{
    if (x == NULL) {
        return;
    }
    tg_allocator a = x->allocator;
    tg_release(&a, x->votes.recvs);
    tg_release(&a, x->votes.sends);
    for (uint32_t g = 0; g < x->lane_n; g++) {
        release_lane(&x->lanes[g], x);
    }
    tg_release(&a, x->lanes);
    if (x->codec != NULL) {
        x->protocol->close(x);
    }
    tg_codec_free(x->codec);
    tg_release(&a, x);
}
