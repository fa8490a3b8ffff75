/* Makes exchanges: chooses the protocol and takes all the memory that steps will use, so that no step can fail for want
 * of it. Room for messages is taken at the most that a message can have; what is never used is never touched. */
#include "exchange/exchange.h"
#include "exchange/lgc.h"
#include "exchange/lowrank.h"

#include "base/bytes.h"
#include "base/hash.h"

#include <string.h>

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Where frames are written. */
static tg_status acquire_out(tg_exchange *x, tg_detail *why)
{
    const tg_grid *grid = x->codec->grid;
    unsigned holds = x->protocol->holds;
    TG_TRY(tg_acquire(&x->out_frames, &x->allocator, grid->slices, sizeof *x->out_frames, why));
    TG_TRY(tg_acquire(&x->framed, &x->allocator, grid->slices, sizeof *x->framed, why));
    uint64_t len = 0;
    for (uint32_t s = 0; s < grid->slices; s++) {
        len += tg_frame_bound(x->codec, grid, s, holds);
    }
    TG_TRY(tg_acquire_room(&x->out, &x->allocator, len, why));
    uint8_t *at = x->out;
    for (uint32_t s = 0; s < grid->slices; s++) {
        x->out_frames[s] = at;
        at += tg_frame_bound(x->codec, grid, s, holds);
    }
    size_t answer_len = x->whole != NULL ? tg_frame_bound(x->codec, x->whole, 0, TG_HAS_INDICES) : 0;
    if (x->answer != NULL) {
        answer_len = larger(answer_len, tg_frame_bound(x->answer, grid, x->answer->slice, holds));
    }
    return tg_acquire_room(&x->answer_out, &x->allocator, answer_len, why);
}

/* Where frames arrive, and what is found in them. */
static tg_status acquire_in(tg_exchange *x, tg_detail *why)
{
    const tg_grid *grid = x->codec->grid;
    size_t chunks = grid->first[grid->slices];
    for (uint32_t s = 0; s < grid->slices; s++) {
        x->in_cap = larger(x->in_cap, tg_frame_limit(x->codec, grid, s, x->protocol->holds));
        chunks = larger(chunks, x->world * tg_grid_chunks(grid, s));
    }
    if (x->whole != NULL) {
        x->in_cap = larger(x->in_cap, tg_frame_limit(x->codec, x->whole, 0, TG_HAS_INDICES));
    }
    uint64_t room = 0;
    if (!tg_multiply(&room, x->in_cap, x->world)) {
        return tg_fail(TG_E_MEMORY, why, "the messages of %u ranks do not fit into memory", x->world);
    }
    TG_TRY(tg_acquire(&x->in, &x->allocator, x->world, sizeof *x->in, why));
    TG_TRY(tg_acquire_room(&x->in_room, &x->allocator, room, why));
    for (uint32_t p = 0; p < x->world; p++) {
        x->in[p].data = x->in_room + p * x->in_cap;
    }
    TG_TRY(tg_acquire(&x->views, &x->allocator, chunks, sizeof *x->views, why));
    return tg_acquire(&x->mean, &x->allocator, x->answer == NULL ? 0 : x->answer->flat_n, sizeof *x->mean, why);
}

static tg_status acquire_spans(tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    TG_TRY(tg_acquire(&x->sends, a, x->world, sizeof *x->sends, why));
    TG_TRY(tg_acquire(&x->recvs, a, x->world, sizeof *x->recvs, why));
    TG_TRY(tg_acquire(&x->send_payload, a, x->world, sizeof *x->send_payload, why));
    TG_TRY(tg_acquire(&x->small_sends, a, x->world, sizeof *x->small_sends, why));
    TG_TRY(tg_acquire(&x->small_recvs, a, x->world, sizeof *x->small_recvs, why));
    TG_TRY(tg_acquire(&x->ballots_out, a, x->world, TG_BALLOT_LEN, why));
    return tg_acquire(&x->ballots_in, a, x->world, TG_BALLOT_LEN, why);
}

static bool any_led(const tg_layout *l)
{
    for (size_t u = 0; u < l->unit_n; u++) {
        if (tg_recipe_is_led(l->units[u].recipe)) {
            return true;
        }
    }
    return false;
}

/* All that ranks must have in common, as one number. */
static uint64_t agree_on(const tg_exchange *x)
{
    uint8_t facts[64] = {0};
    tg_put64(facts, x->codec->layout->fingerprint);
    tg_put64(facts + 8, x->verify_every);
    tg_put32(facts + 16, x->world);
    (void)memcpy(facts + 20, x->protocol->name, strlen(x->protocol->name));
    return tg_hash(facts, sizeof facts);
}

static tg_status set_up(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                        const tg_options *opt, tg_detail *why)
{
    tg_options own = *opt;
    own.rank = x->rank;
    own.describe = 0;
    x->verify_every = opt->verify_every;
    /* The protocol depends on the layout, and the slices of the codec on the protocol. */
    tg_layout *layout = NULL;
    TG_TRY(tg_codec_layout(&layout, recipe, tensors, tensor_n, &own, why));
    tg_status status = tg_protocol_choose(&x->protocol, opt->exchange, layout, x->world, why);
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    bool by_others = tg_layout_exchange(layout) != NULL; /* the codec then only knows the tensors */
    TG_TRY(tg_codec_make(&x->codec, layout, tg_protocol_slices(x->protocol, x->world), by_others, &own, why));
    for (size_t t = 0; t < tensor_n; t++) {
        x->logical += layout->tensor_elements[t] * tg_dtype_len(layout->tensors[t].dtype);
    }
    if (x->protocol == &tg_protocol_lowrank) {
        return tg_lowrank_new(&x->lowrank, x, &own, why);
    }
    if (by_others) {
        x->agreement = agree_on(x);
        TG_TRY(acquire_spans(x, why));
        return tg_lgc_new(&x->lgc, x, &own, why);
    }
    if (any_led(layout)) {
        TG_TRY(tg_grid_new(&x->whole, layout, 1, &x->allocator, why));
    }
    if (tg_protocol_answers(x->protocol, x->rank)) {
        uint32_t slice = x->codec->grid->slices == 1 ? 0 : x->rank;
        TG_TRY(tg_codec_make_answer(&x->answer, x->codec, slice, x->protocol->answer_remembers, why));
    }
    x->agreement = agree_on(x);
    TG_TRY(acquire_spans(x, why));
    TG_TRY(acquire_out(x, why));
    return acquire_in(x, why);
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
    tg_lowrank_free(x->lowrank);
    tg_lgc_free(x->lgc);
    tg_release(&a, x->mean);
    tg_release(&a, x->views);
    tg_release(&a, x->in_room);
    tg_release(&a, x->in);
    tg_release(&a, x->answer_out);
    tg_release(&a, x->out);
    tg_release(&a, x->framed);
    tg_release(&a, x->out_frames);
    tg_release(&a, x->ballots_in);
    tg_release(&a, x->ballots_out);
    tg_release(&a, x->small_recvs);
    tg_release(&a, x->small_sends);
    tg_release(&a, x->send_payload);
    tg_release(&a, x->recvs);
    tg_release(&a, x->sends);
    tg_codec_free(x->answer);
    tg_grid_free(x->whole, &a);
    tg_codec_free(x->codec);
    tg_release(&a, x);
}
