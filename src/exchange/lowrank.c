/* PowerSGD (arXiv 1905.13727): a matrix M, gradient plus residual, travels as two thin factors.
 *
 *     P = M Q          all-reduced to its mean, then made orthonormal: the same on all ranks
 *     Q = M' P         all-reduced to its mean, and where the next step starts from
 *     average P Q',    and the residual M - P Q'
 *
 *     rounds 0, 1      P and what travels as it is: slices to owners, means to all       as in allreduce.c
 *     rounds 2, 3      Q, likewise
 *
 * Up to two ranks send P whole to each other, which is as many bytes, and average it themselves:
 *
 *     round 0          P and what travels as it is                                       as in gather.c
 *     round 1          Q
 *
 * Factors travel in fp32 or bf16, as the recipe says, and are summed in fp32. Owners and other ranks alike go on with the means that
 * were sent. So what rounding loses of Q is in the residuals; P only has to have the same bits on all ranks.
 *
 * A tensor's first dimension is the rows of its matrix, all others together the columns. A tensor that is no matrix, or would
 * not be smaller as two factors, travels as it is, beside P. */
#include "exec/lowrank.h"
#include "exchange/exchange.h"
#include "recipe/policy.h"

#include <string.h>

typedef struct lowrank {
    tg_lowrank *factors;
    tg_codec *codecs[2];
    tg_carrier *carriers[2]; /* of P and what travels as it is; of Q */
} lowrank;

/* ---- making one ------------------------------------------------------------------------------------------------------ */

/* Whether ranks, or leaders of hosts, average what they send each other, without owners. */
static bool is_direct(const tg_exchange *x)
{
    return (x->hosts == NULL ? x->world : x->world / x->host_size) <= 2;
}

/* Tensors as they are, but factors in bf16 where the recipe says so. */
static tg_status make_layout(tg_layout **out, const tg_exchange *x, const tg_lowrank_listed *listed, size_t n,
                             const tg_options *dense, tg_detail *why)
{
    tg_recipe *recipes = NULL;
    TG_TRY(tg_acquire(&recipes, &x->allocator, n, sizeof *recipes, why));
    tg_status status = tg_policy_apply(recipes, "dense", listed->tensors, n, dense, why);
    for (size_t t = 0; t < n && status == TG_OK; t++) {
        if (listed->in_bf16[t]) {
            recipes[t] = tg_recipe_dense(TG_BF16);
        }
    }
    if (status == TG_OK) {
        status = tg_layout_new(out, listed->tensors, n, recipes, dense->has_seed != 0, dense->seed, &x->allocator, why);
    }
    tg_release(&x->allocator, recipes);
    return status;
}

/* The carrier of the first all-reduce, or of the second: in slices of owners. */
static tg_status open_carrier(tg_exchange *x, int i, const tg_lowrank_listed *listed, size_t n, const tg_options *opt,
                              tg_detail *why)
{
    const tg_codec_purpose purpose = {.slices = is_direct(x) ? 1 : x->world,
                                      .groups = {listed->group_of, x->codec->grid->groups},
                                      .holds = TG_HAS_VALUES};
    lowrank *own = x->own;
    tg_options dense = *opt;
    tg_layout *layout = NULL;
    dense.rules = NULL;
    dense.rule_n = 0;
    TG_TRY(make_layout(&layout, x, listed, n, &dense, why));
    TG_TRY(tg_codec_make(&own->codecs[i], layout, &purpose, &dense, why));
    const tg_protocol *by = is_direct(x) ? &tg_protocol_gather : &tg_protocol_allreduce;
    return tg_carrier_open(&own->carriers[i], x, own->codecs[i], by, why);
}

static tg_status acquire_list(tg_lowrank_listed *listed, const tg_exchange *x, tg_detail *why)
{
    const tg_allocator *a = &x->allocator;
    size_t n = x->codec->layout->tensor_n;
    TG_TRY(tg_acquire(&listed->tensors, a, n, sizeof *listed->tensors, why));
    TG_TRY(tg_acquire(&listed->dims, a, 2 * n, sizeof *listed->dims, why));
    TG_TRY(tg_acquire(&listed->group_of, a, n, sizeof *listed->group_of, why));
    return tg_acquire(&listed->in_bf16, a, n, sizeof *listed->in_bf16, why);
}

static tg_status open_carriers(tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    const lowrank *own = x->own;
    const tg_allocator *a = &x->allocator;
    tg_lowrank_listed listed = {NULL, NULL, NULL, NULL};
    tg_status status = acquire_list(&listed, x, why);
    for (int i = 0; i < 2 && status == TG_OK; i++) {
        size_t n = tg_lowrank_list(&listed, own->factors, i == 0);
        status = open_carrier(x, i, &listed, n, opt, why);
    }
    tg_release(a, listed.in_bf16);
    tg_release(a, listed.group_of);
    tg_release(a, listed.dims);
    tg_release(a, listed.tensors);
    return status;
}

static tg_status open(tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    lowrank *own = NULL;
    TG_TRY(tg_acquire(&own, &x->allocator, 1, sizeof *own, why));
    x->own = own; /* closed with the exchange, whatever happens here */
    const tg_lowrank_place place = {x->codec->executor, x->codec->device, x->codec->run};
    TG_TRY(tg_lowrank_new(&own->factors, x->codec->layout, x->codec->grid, opt->nonfinite, &place, &x->allocator, why));
    return open_carriers(x, opt, why);
}

static void close(tg_exchange *x)
{
    lowrank *own = x->own;
    if (own == NULL) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        tg_carrier_close(own->carriers[i], &x->allocator);
        tg_codec_free(own->codecs[i]);
    }
    tg_lowrank_free(own->factors);
    tg_release(&x->allocator, own);
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

enum { SEND_P, ANSWER_P, SEND_Q, ANSWER_Q, OWNED_ROUNDS, SWAP_P = OWNED_ROUNDS, SWAP_Q, END };

static uint32_t rounds(const tg_exchange *x)
{
    return is_direct(x) ? END - SWAP_P : OWNED_ROUNDS;
}

/* What a round is for. */
static uint32_t stage(const tg_exchange *x, uint32_t round)
{
    return is_direct(x) ? SWAP_P + round : round;
}

static void shape(tg_exchange *x, uint32_t round)
{
    const lowrank *own = x->own;
    switch (stage(x, round)) {
    case SEND_P: tg_carrier_shape_slices(x, own->carriers[0]); break;
    case ANSWER_P: tg_carrier_shape_answers(x, own->carriers[0]); break;
    case SEND_Q: tg_carrier_shape_slices(x, own->carriers[1]); break;
    case ANSWER_Q: tg_carrier_shape_answers(x, own->carriers[1]); break;
    case SWAP_P: tg_carrier_shape_gather(x, own->carriers[0]); break;
    default: tg_carrier_shape_gather(x, own->carriers[1]); break;
    }
}

/* Writes factors, and sends them to owners or whole. */
static tg_status send_factors(tg_exchange *x, tg_carrier *c, void *const *factors, tg_detail *why)
{
    if (!is_direct(x)) {
        return tg_owners_send_slices(x, c, factors, why);
    }
    TG_TRY(tg_carrier_write(x, c, factors, why));
    tg_exchange_send_all(x, c->frames[x->lane->group], &c->framed[x->lane->group]);
    return TG_OK;
}

/* Averages the factors of all ranks to where this rank's own were. */
static tg_status average_factors(tg_exchange *x, tg_carrier *c, void *const *factors, tg_detail *why)
{
    const tg_arrived all = {.codec = c->codec, .to = x->world};
    const tg_sink sink = {.averages = factors, .divisor = (float)x->world};
    return tg_carrier_sum(x, c, c->codec->run, &all, &sink, why);
}

/* A gradient that is refused is named before what follows from it in P. */
static tg_status send_first(tg_exchange *x, tg_detail *why)
{
    const lowrank *own = x->own;
    tg_detail of_frames = {""};
    TG_TRY(tg_lowrank_multiply(own->factors, x->lane->group, x->step.grads, why));
    tg_status status = send_factors(x, own->carriers[0], tg_lowrank_first(own->factors), &of_frames);
    TG_TRY(tg_lowrank_verdict(own->factors, x->lane->group, x->step.grads, why));
    return status == TG_OK ? TG_OK : tg_fail(status, why, "%s", of_frames.text);
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const lowrank *own = x->own;
    switch (stage(x, round)) {
    case SEND_P:
    case SWAP_P: return send_first(x, why);
    case ANSWER_P: return tg_owners_answer(x, own->carriers[0], why);
    case ANSWER_Q: return tg_owners_answer(x, own->carriers[1], why);
    default: return send_factors(x, own->carriers[1], tg_lowrank_second(own->factors), why);
    }
}

static tg_status receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const lowrank *own = x->own;
    void *const *first = tg_lowrank_first(own->factors);
    switch (stage(x, round)) {
    case SEND_P: return tg_owners_average(x, own->carriers[0], why);
    case ANSWER_P:
        TG_TRY(tg_owners_receive_answers(x, own->carriers[0], why));
        tg_owners_deliver(own->carriers[0], x->lane->group, first);
        break;
    case SEND_Q: return tg_owners_average(x, own->carriers[1], why);
    case ANSWER_Q: return tg_owners_receive_answers(x, own->carriers[1], why);
    case SWAP_P: TG_TRY(average_factors(x, own->carriers[0], first, why)); break;
    default: return average_factors(x, own->carriers[1], tg_lowrank_second(own->factors), why);
    }
    tg_lowrank_multiply_back(own->factors, x->lane->group, x->step.grads, x->step.number);
    return TG_OK;
}

/* The mean of Q, where owners have answered with it. */
static void deliver_second(const tg_exchange *x, uint32_t group)
{
    const lowrank *own = x->own;
    if (!is_direct(x)) {
        tg_owners_deliver(own->carriers[1], group, tg_lowrank_second(own->factors));
    }
}

static void deliver(tg_exchange *x, uint32_t group, void *const *grads)
{
    const lowrank *own = x->own;
    deliver_second(x, group);
    tg_lowrank_average(own->factors, group, grads);
}

/* Also writes the averages once more, over the step's own gradients, which residuals are computed from. */
static void commit(tg_exchange *x)
{
    const lowrank *own = x->own;
    tg_owners_commit(own->carriers[0]);
    tg_owners_commit(own->carriers[1]);
    tg_lowrank_settle(own->factors, x->step.grads);
}

/* In one pass over the gradients. */
static void finish(tg_exchange *x)
{
    for (uint32_t g = 0; g < x->lane_n; g++) {
        deliver_second(x, g);
    }
    commit(x);
}

/* ---- facts ----------------------------------------------------------------------------------------------------------- */

static tg_status traffic(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why)
{
    const lowrank *own = x->own;
    size_t matrix = tg_lowrank_matrix(own->factors, tensor);
    TG_TRY(tg_codec_traffic(out, own->codecs[0], tensor, why));
    if (matrix != 0) {
        tg_traffic second;
        TG_TRY(tg_codec_traffic(&second, own->codecs[1], matrix - 1, why));
        out->len += second.len;
        out->entries += second.entries;
    }
    return TG_OK;
}

static void residual(const tg_exchange *x, float *out, size_t tensor)
{
    tg_lowrank_residual(out, ((const lowrank *)x->own)->factors, tensor);
}

static uint64_t saved_n(const tg_exchange *x)
{
    return tg_lowrank_saved_n(((const lowrank *)x->own)->factors);
}

static void save(float *out, const tg_exchange *x, uint64_t at, uint64_t n)
{
    tg_lowrank_save(out, ((const lowrank *)x->own)->factors, at, n);
}

static void load(const tg_exchange *x, uint64_t at, const float *values, uint64_t n)
{
    tg_lowrank_load(((const lowrank *)x->own)->factors, at, values, n);
}

static tg_status suits(const tg_layout *layout, tg_detail *why)
{
    const char *own = tg_layout_exchange(layout);
    if (own != NULL && strcmp(own, "lowrank") == 0) {
        return TG_OK;
    }
    return tg_fail(TG_E_RECIPE, why, "the exchange lowrank carries recipes with 'lowrank' alone");
}

static const tg_protocol_state state = {
    .residual = residual, .traffic = traffic, .saved_n = saved_n, .save = save, .load = load};

const tg_protocol tg_protocol_lowrank = {
    .name = "lowrank",
    .suits = suits,
    .open = open,
    .close = close,
    .rounds = rounds,
    .shape = shape,
    .send = send,
    .receive = receive,
    .deliver = deliver,
    .commit = commit,
    .finish = finish,
    .state = &state,
};
