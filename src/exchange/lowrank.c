/* PowerSGD (arXiv 1905.13727): a matrix M, gradient plus residual, travels as two thin factors.
 *
 *     P = M Q          all-reduced to its mean, then made orthonormal: the same on all ranks
 *     Q = M' P         all-reduced to its mean, and where the next step starts from
 *     average P Q',    and the residual M - P Q'
 *
 *     rounds 0, 1      P and what travels as it is: slices to owners, means to all       as in allreduce.c
 *     rounds 2, 3      Q, likewise
 *
 * A tensor's first dimension is the rows of its matrix, all others together the columns. A tensor that is no matrix, or would
 * not be smaller as two factors, travels as it is, beside P. */
#include "exec/lowrank.h"
#include "exchange/exchange.h"

#include <string.h>

typedef struct lowrank {
    tg_lowrank *factors;
    tg_codec *codecs[2];
    tg_carrier *carriers[2]; /* of P and what travels as it is; of Q */
} lowrank;

/* ---- making one ------------------------------------------------------------------------------------------------------ */

/* The carrier of the first all-reduce, or of the second: dense, in slices. */
static tg_status open_carrier(tg_exchange *x, int i, const tg_tensor *tensors, size_t tensor_n,
                              const uint32_t *group_of, const tg_options *opt, tg_detail *why)
{
    const tg_codec_purpose purpose = {
        .slices = x->world, .groups = {group_of, x->codec->grid->groups}, .holds = TG_HAS_VALUES};
    lowrank *own = x->own;
    tg_options dense = *opt;
    tg_layout *layout = NULL;
    dense.rules = NULL;
    dense.rule_n = 0;
    TG_TRY(tg_codec_layout(&layout, "dense", tensors, tensor_n, &dense, why));
    TG_TRY(tg_codec_make(&own->codecs[i], layout, &purpose, &dense, why));
    return tg_carrier_open(&own->carriers[i], x, own->codecs[i], &tg_protocol_allreduce, why);
}

static tg_status open_carriers(tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    const lowrank *own = x->own;
    const tg_allocator *a = &x->allocator;
    size_t n = x->codec->layout->tensor_n;
    tg_tensor *tensors = NULL;
    uint64_t *dims = NULL;
    uint32_t *group_of = NULL; /* of listed tensors */
    tg_status status = tg_acquire(&tensors, a, n, sizeof *tensors, why);
    if (status == TG_OK) {
        status = tg_acquire(&dims, a, 2 * n, sizeof *dims, why);
    }
    if (status == TG_OK) {
        status = tg_acquire(&group_of, a, n, sizeof *group_of, why);
    }
    for (int i = 0; i < 2 && status == TG_OK; i++) {
        size_t list_n = tg_lowrank_list(tensors, dims, group_of, own->factors, i == 0);
        status = open_carrier(x, i, tensors, list_n, group_of, opt, why);
    }
    tg_release(a, group_of);
    tg_release(a, dims);
    tg_release(a, tensors);
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

enum { SEND_P, ANSWER_P, SEND_Q, ANSWER_Q, ROUNDS };

static uint32_t rounds(const tg_exchange *x)
{
    (void)x;
    return ROUNDS;
}

static void shape(tg_exchange *x, uint32_t round)
{
    const lowrank *own = x->own;
    switch (round) {
    case SEND_P: tg_carrier_shape_slices(x, own->carriers[0]); break;
    case ANSWER_P: tg_carrier_shape_answers(x, own->carriers[0]); break;
    case SEND_Q: tg_carrier_shape_slices(x, own->carriers[1]); break;
    default: tg_carrier_shape_answers(x, own->carriers[1]); break;
    }
}

/* A gradient that is refused is named before what follows from it in P. */
static tg_status send_first(tg_exchange *x, tg_detail *why)
{
    const lowrank *own = x->own;
    tg_detail of_frames = {""};
    TG_TRY(tg_lowrank_multiply(own->factors, x->lane->group, x->step.grads, why));
    tg_status status = tg_owners_send_slices(x, own->carriers[0], tg_lowrank_first(own->factors), &of_frames);
    TG_TRY(tg_lowrank_verdict(own->factors, x->lane->group, x->step.grads, why));
    return status == TG_OK ? TG_OK : tg_fail(status, why, "%s", of_frames.text);
}

static tg_status send(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const lowrank *own = x->own;
    switch (round) {
    case SEND_P: return send_first(x, why);
    case ANSWER_P: return tg_owners_answer(x, own->carriers[0], why);
    case SEND_Q: return tg_owners_send_slices(x, own->carriers[1], tg_lowrank_second(own->factors), why);
    default: return tg_owners_answer(x, own->carriers[1], why);
    }
}

static tg_status receive(tg_exchange *x, uint32_t round, tg_detail *why)
{
    const lowrank *own = x->own;
    switch (round) {
    case SEND_P: return tg_owners_average(x, own->carriers[0], why);
    case ANSWER_P:
        TG_TRY(tg_owners_receive_answers(x, own->carriers[0], why));
        tg_owners_deliver(own->carriers[0], x->lane->group, tg_lowrank_first(own->factors));
        tg_lowrank_multiply_back(own->factors, x->lane->group, x->step.grads, x->step.number);
        return TG_OK;
    case SEND_Q: return tg_owners_average(x, own->carriers[1], why);
    default: return tg_owners_receive_answers(x, own->carriers[1], why);
    }
}

static void deliver(tg_exchange *x, uint32_t group, void *const *grads)
{
    const lowrank *own = x->own;
    tg_owners_deliver(own->carriers[1], group, tg_lowrank_second(own->factors));
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
    const lowrank *own = x->own;
    for (uint32_t g = 0; g < x->lane_n; g++) {
        tg_owners_deliver(own->carriers[1], g, tg_lowrank_second(own->factors));
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
