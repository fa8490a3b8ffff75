/* Reduce-scatter: the first half of shard. Each rank gets the sum of one slice of every tensor; nobody answers.
 *
 *                 rank 0          rank 1          rank 2
 *     send        A0 A1 A2        B0 B1 B2        C0 C1 C2       each has encoded its gradient in slices
 *     receive     A0 B0 C0        A1 B1 C1        A2 B2 C2       alltoallv; the owner sums in rank order, in fp32
 *
 * Every rank receives a message from every other, and lengths are known beforehand. So a rank that fails tells all others by that one
 * operation, and there is no vote. */
#include "exchange/exchange.h"

#include "recipe/policy.h"
#include "tersegrad/scatter.h"

#include <inttypes.h>
#include <math.h>

static uint32_t slices(uint32_t world)
{
    return world;
}

/* Whether all lengths of a unit's messages are known beforehand, and a slice of a tensor is one of its unit. */
static tg_status suits_unit(const tg_layout *layout, size_t u, tg_detail *why)
{
    const tg_recipe *recipe = layout->units[u].recipe;
    const tg_select_part *select = tg_recipe_select(recipe);
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    bool is_drawn = select->by == TG_BY_SEED && recipe->value[TG_STAGE_select][TG_SELECT_COORDS] == TG_COORDS_SHARED;
    if (quantize->exchange != NULL) {
        return tg_fail(TG_E_RECIPE, why, "'%s' has an exchange of its own, and cannot be scattered",
                       quantize->part.name);
    }
    if (tg_recipe_spans_model(recipe)) {
        return tg_fail(TG_E_RECIPE, why, "reduce-scatter has slices of tensors, but '%s' with scope=model spans them",
                       select->part.name);
    }
    if (select->by != TG_BY_NOTHING && !is_drawn) {
        return tg_fail(TG_E_RECIPE, why,
                       "reduce-scatter needs lengths that all ranks know beforehand, but '%s' has indices",
                       select->part.name);
    }
    if (tg_recipe_format(recipe).coded) {
        return tg_fail(
            TG_E_RECIPE, why,
            "reduce-scatter needs lengths that all ranks know beforehand, but those of '%s' depend on values",
            recipe->part[TG_STAGE_symbol]->name);
    }
    return TG_OK;
}

static tg_status suits(const tg_layout *layout, tg_detail *why)
{
    for (size_t u = 0; u < layout->unit_n; u++) {
        TG_TRY(suits_unit(layout, u, why));
    }
    return TG_OK;
}

static tg_status open(tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    void **shifted = NULL;
    TG_TRY(suits(x->codec->layout, why));
    TG_TRY(tg_carrier_open_own(x, opt, why));
    TG_TRY(tg_acquire(&shifted, &x->allocator, x->codec->layout->tensor_n, sizeof *shifted, why));
    x->own = shifted;
    return TG_OK;
}

static void close(tg_exchange *x)
{
    tg_release(&x->allocator, x->own);
    tg_carrier_close_own(x);
}

static uint32_t rounds(const tg_exchange *x)
{
    (void)x;
    return 1;
}

static void shape(tg_exchange *x, uint32_t round)
{
    (void)round;
    tg_carrier_shape_slices(x, x->carrier);
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    (void)round;
    return tg_owners_send_slices(x, x->carrier, x->step.grads, why);
}

static tg_status receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    tg_arrived all = {.codec = x->codec, .slice = x->rank, .to = x->world};
    tg_sink sink = {.averages = x->own, .divisor = x->step.divisor};
    (void)round;
    if (tg_carrier_sum_later(x, x->carrier, &all, &sink)) {
        return TG_OK;
    }
    return tg_carrier_sum(x, x->carrier, x->codec->run, &all, &sink, why);
}

const tg_protocol tg_protocol_scatter = {
    .name = "scatter",
    .suits = suits,
    .holds = TG_HAS_INDICES | TG_HAS_VALUES,
    .slices = slices,
    .is_one_group = true,
    .open = open,
    .close = close,
    .rounds = rounds,
    .shape = shape,
    .send = send,
    .receive = receive,
    .commit = tg_owners_commit_own,
};

/* ---- the public functions ------------------------------------------------------------------------------------------------- */

void tg_slice(uint64_t *first, uint64_t *slice_n, uint64_t n, uint32_t slice, uint32_t slices_n)
{
    uint64_t start = slice < slices_n ? tg_slice_start(n, slice, slices_n) : 0;
    uint64_t end = slice < slices_n ? tg_slice_start(n, slice + 1, slices_n) : 0;
    if (first != NULL) {
        *first = start;
    }
    if (slice_n != NULL) {
        *slice_n = end - start;
    }
}

tg_status tg_scatter_new(tg_exchange **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                         uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why)
{
    TG_NEED(out, why);
    TG_TRY(tg_exchange_check_rank(rank, world, why));
    tg_options own;
    TG_TRY(tg_options_read(&own, opt, why));
    if (own.host_size > 1) {
        return tg_fail(TG_E_ARGUMENT, why, "reduce-scatter has no hosts: use a host size of 1");
    }
    const tg_seat seat = {
        .rank = rank, .world = world, .rank_step = 1, .host_size = 1, .protocol = &tg_protocol_scatter};
    return tg_exchange_seat(out, &seat, recipe, tensors, tensor_n, &own, why);
}

static tg_status check_scatters(const tg_exchange *x, tg_detail *why)
{
    TG_NEED(x, why);
    return x->protocol == &tg_protocol_scatter
               ? TG_OK
               : tg_fail(TG_E_ARGUMENT, why, "the exchange '%s' does not scatter; make one with tg_scatter_new",
                         x->protocol->name);
}

tg_status tg_scatter_begin(tg_op *op, tg_exchange *x, uint64_t step, const void *const *inputs, tg_detail *why)
{
    TG_NEED(op, why);
    TG_TRY(check_scatters(x, why));
    if (x->step.phase != TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "step %" PRIu64 " has not ended; finish or cancel it first", x->step.number);
    }
    TG_TRY(tg_check_grads(x->codec, inputs, NULL, why));
    if (x->codec->executor->late != NULL) {
        TG_TRY(x->codec->executor->late(x->codec->run, why));
    }
    tg_step_begin(x, TG_FLYING, step, (void *const *)(uintptr_t)inputs); /* only read */
    tg_status status = tg_lane_next(x, 0, op, why);
    return status == TG_MORE ? TG_OK : status;
}

/* Where element 0 of each tensor would be, if its slice is at out[t]. */
static tg_status shift(tg_exchange *x, void *const *out, tg_detail *why)
{
    const tg_layout *l = x->codec->layout;
    void **shifted = x->own;
    for (size_t t = 0; t < l->tensor_n; t++) {
        uint64_t first = 0, n = 0;
        tg_slice(&first, &n, l->tensor_elements[t], x->rank, x->world);
        if (n > 0 && (out == NULL || out[t] == NULL)) {
            return tg_fail(TG_E_ARGUMENT, why, "there is no place for the slice of tensor '%.100s'",
                           l->tensors[t].name);
        }
        uintptr_t place = n > 0 ? (uintptr_t)out[t] - (uintptr_t)(first * tg_dtype_len(l->tensors[t].dtype)) : 0;
        shifted[t] = (void *)place;
    }
    return TG_OK;
}

tg_status tg_scatter_end(tg_exchange *x, void *const *out, float divisor, tg_detail *why)
{
    TG_TRY(check_scatters(x, why));
    if (x->step.phase == TG_IDLE) {
        return tg_fail(TG_E_ARGUMENT, why, "no step has begun");
    }
    if (!isfinite(divisor) || divisor == 0) {
        return tg_fail(TG_E_ARGUMENT, why, "a sum cannot be divided by %g", (double)divisor);
    }
    TG_TRY(shift(x, out, why));
    x->step.divisor = divisor;
    tg_op none;
    tg_status status = tg_lane_next(x, 0, &none, why);
    status = status == TG_OK ? x->step.status : status;
    if (status == TG_OK) {
        x->protocol->commit(x);
        x->done = (tg_done){.step = x->step.number, .any = true};
    } else if (x->step.status != TG_OK) {
        (void)tg_fail(status, why, "%s", x->step.why.text);
    }
    tg_step_end(x, status);
    return status;
}
