/* Makes exchanges: chooses the protocol and takes all memory that steps will use, so that no step can fail for lack of
 * it. */
#include "exchange/exchange.h"

#include "base/bytes.h"
#include "kernels/hash.h"
#include "recipe/policy.h"

#include <string.h>

/* Where the messages of a group arrive. */
static tg_status acquire_lane(tg_lane *lane, const tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    tg_mail *mail = &lane->mail;
    uint64_t len = 0;
    if (!tg_multiply(&len, tg_apart(mail->in_cap), x->world)) {
        return tg_fail(TG_E_MEMORY, why, "the messages of %u ranks do not fit into memory", x->world);
    }
    TG_TRY(tg_acquire(&mail->sends, a, x->world, sizeof *mail->sends, why));
    TG_TRY(tg_acquire(&mail->recvs, a, x->world, sizeof *mail->recvs, why));
    TG_TRY(tg_acquire(&mail->payload, a, x->world, sizeof *mail->payload, why));
    TG_TRY(tg_acquire(&mail->in, a, x->world, sizeof *mail->in, why));
    TG_TRY(x->codec->executor->acquire(&mail->in_space, x->codec->device, a, len, why));
    for (uint32_t p = 0; p < x->world; p++) {
        mail->in[p].data = mail->in_space + p * tg_apart(mail->in_cap);
    }
    return TG_OK;
}

static void release_lane(const tg_lane *lane, const tg_exchange *x)
{
    const tg_allocator *a = &x->allocator;
    if (x->codec != NULL) {
        x->codec->executor->release(x->codec->device, a, lane->mail.in_space);
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
    return tg_lengths_open(x, why);
}

static tg_status acquire_votes(tg_exchange *x, tg_detail *why)
{
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
    tg_put32(facts + 60, x->host_size);
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

/* Whether ranks of a host sum first, so that this exchange only knows the tensors and others do its work. */
static bool is_hosted(const tg_exchange *x, const tg_seat *seat)
{
    return x->host_size > 1 && seat->protocol == NULL;
}

static tg_status choose_protocol(tg_exchange *x, const tg_seat *seat, const tg_layout *layout, const char *recipe,
                                 const char *name, tg_detail *why)
{
    uint32_t world = is_hosted(x, seat) ? x->world / x->host_size : x->world;
    if (seat->protocol != NULL) {
        x->protocol = seat->protocol;
        return TG_OK;
    }
    TG_TRY(tg_protocol_choose(&x->protocol, name, layout, recipe, world, why));
    if (is_hosted(x, seat) && x->protocol->deliver == NULL) {
        return tg_fail(TG_E_RECIPE, why, "%s learns from the gradients of ranks, not of hosts: use a host size of 1",
                       x->protocol->name);
    }
    return TG_OK;
}

/* Frames whose coordinates are kept from their check to their sum. They take a 32nd of the model each. */
static uint32_t places_of(const tg_exchange *x)
{
    enum { MOST = 8 };
    return x->protocol->sums_all && x->world <= MOST ? x->world : 1;
}

static tg_status make_codec(tg_exchange *x, const tg_seat *seat, const char *recipe, const tg_tensor *tensors,
                            size_t tensor_n, const tg_options *opt, tg_detail *why)
{
    /* The protocol depends on the layout, and the slices of the codec on the protocol. */
    tg_layout *layout = NULL;
    uint32_t *group_of = NULL;
    tg_groups groups;
    tg_options own = *opt;
    TG_TRY(tg_codec_layout(&layout, recipe, tensors, tensor_n, opt, why));
    tg_status status = choose_protocol(x, seat, layout, recipe, opt->exchange, why);
    if (status == TG_OK) {
        status = tg_groups_choose(&groups, &group_of, layout, x->protocol, opt, &x->allocator, why);
    }
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    bool hosted = is_hosted(x, seat);
    const tg_codec_purpose purpose = {.slices = hosted ? 1 : tg_protocol_slices(x->protocol, x->world),
                                      .groups = groups,
                                      .holds = x->protocol->holds,
                                      .places = places_of(x),
                                      .only_decodes = hosted || x->protocol->state != NULL};
    own.threads = hosted ? 1 : own.threads;
    status = tg_codec_make(&x->codec, layout, &purpose, &own, why);
    tg_release(&x->allocator, group_of);
    return status;
}

static tg_status set_up(tg_exchange *x, const tg_seat *seat, const char *recipe, const tg_tensor *tensors,
                        size_t tensor_n, const tg_options *opt, tg_detail *why)
{
    tg_options own = *opt;
    own.rank = x->rank;
    own.describe = 0;
    TG_TRY(make_codec(x, seat, recipe, tensors, tensor_n, &own, why));
    TG_TRY(open_lanes(x, why));
    count_dense(x);
    x->verify_every = opt->verify_every;
    x->agreement = agree_on(x);
    TG_TRY(acquire_votes(x, why));
    if (is_hosted(x, seat)) {
        return tg_hosts_open(x, recipe, tensors, tensor_n, opt, why);
    }
    TG_TRY(x->protocol->open(x, &own, why));
    return acquire_lanes(x, why);
}

tg_status tg_exchange_seat(tg_exchange **out, const tg_seat *seat, const char *recipe, const tg_tensor *tensors,
                           size_t tensor_n, const tg_options *opt, tg_detail *why)
{
    tg_allocator a = tg_allocator_or_standard(opt->allocator);
    tg_exchange *x = NULL;
    TG_TRY(tg_acquire(&x, &a, 1, sizeof *x, why));
    x->allocator = a;
    x->rank = seat->rank;
    x->world = seat->world;
    x->first_rank = seat->first_rank;
    x->rank_step = seat->rank_step;
    x->host_size = seat->host_size;
    x->own = seat->own;
    tg_status status = set_up(x, seat, recipe, tensors, tensor_n, opt, why);
    if (status != TG_OK) {
        tg_exchange_free(x);
        return status;
    }
    *out = x;
    return TG_OK;
}

tg_status tg_exchange_check_rank(uint32_t rank, uint32_t world, tg_detail *why)
{
    if (world == 0 || rank >= world || world > TG_WORLD_MAX) {
        return tg_fail(TG_E_ARGUMENT, why, "there is no rank %u in a world of %u (1 to %u ranks)", rank, world,
                       TG_WORLD_MAX);
    }
    return TG_OK;
}

tg_status tg_exchange_new(tg_exchange **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why)
{
    TG_NEED(out, why);
    TG_TRY(tg_exchange_check_rank(rank, world, why));
    tg_options own;
    TG_TRY(tg_options_read(&own, opt, why));
    uint32_t host_size = own.host_size == 0 ? 1 : own.host_size;
    if (world % host_size != 0) {
        return tg_fail(TG_E_ARGUMENT, why, "%u ranks cannot be divided into hosts of %u ranks each", world, host_size);
    }
    const tg_seat seat = {.rank = rank, .world = world, .rank_step = 1, .host_size = host_size};
    return tg_exchange_seat(out, &seat, recipe, tensors, tensor_n, &own, why);
}

void tg_exchange_free(tg_exchange *x)
{
    if (x == NULL) {
        return;
    }
    tg_allocator a = x->allocator;
    tg_hosts_close(x);
    tg_lengths_close(x);
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
