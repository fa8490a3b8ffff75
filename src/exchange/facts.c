/* What an exchange tells of itself. Where ranks of a host sum first, leaders tell of the exchange between hosts. */
#include "exchange/exchange.h"

const char *tg_exchange_name(const tg_exchange *x)
{
    return x == NULL ? NULL : x->protocol->name;
}

const char *tg_exchange_recipe(const tg_exchange *x, size_t tensor)
{
    return x == NULL ? NULL : tg_codec_recipe(x->codec, tensor);
}

void tg_exchange_meter(const tg_exchange *x, tg_meter *last, tg_meter *total)
{
    const tg_meter nothing = {0};
    if (last != NULL) {
        *last = x == NULL ? nothing : x->counts.last;
    }
    if (total != NULL) {
        *total = x == NULL ? nothing : x->counts.total;
    }
}

void tg_exchange_group_meter(const tg_exchange *x, size_t group, tg_meter *last, tg_meter *total)
{
    const tg_meter nothing = {0};
    bool exists = x != NULL && group < x->lane_n;
    if (last != NULL) {
        *last = exists ? x->lanes[group].counts.last : nothing;
    }
    if (total != NULL) {
        *total = exists ? x->lanes[group].counts.total : nothing;
    }
}

tg_status tg_exchange_traffic(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(x, why);
    const tg_exchange *of = tg_keeper(x);
    if (of == NULL) {
        TG_TRY(tg_codec_traffic(out, x->codec, tensor, why)); /* refuses a tensor that does not exist */
        *out = (tg_traffic){0};
        return TG_OK;
    }
    x = of;
    if (x->protocol->state != NULL && tensor < x->codec->layout->tensor_n) {
        return x->protocol->state->traffic(out, x, tensor, why);
    }
    return tg_codec_traffic(out, x->codec, tensor, why);
}

uint64_t tg_exchange_paper_len(const tg_exchange *x, size_t tensor)
{
    const tg_exchange *of = x == NULL ? NULL : tg_keeper(x);
    return of == NULL || of->protocol->state != NULL ? 0 : tg_codec_paper_len(of->codec, tensor);
}

tg_status tg_exchange_residual(const tg_exchange *x, float *out, size_t tensor, tg_detail *why)
{
    TG_NEED(x, why);
    if (tg_keeper(x) == NULL) {
        return tg_codec_residual(x->codec, out, tensor, why); /* zeros */
    }
    x = tg_keeper(x);
    if (x->protocol->state != NULL && tensor < x->codec->layout->tensor_n) {
        if (x->codec->layout->tensor_elements[tensor] > 0) {
            TG_NEED(out, why);
        }
        x->protocol->state->residual(x, out, tensor);
        return TG_OK;
    }
    return tg_codec_residual(x->codec, out, tensor, why);
}

void tg_exchange_learning(tg_learning *out, const tg_exchange *x)
{
    if (out == NULL) {
        return;
    }
    *out = (tg_learning){0};
    if (x != NULL && x->protocol->state != NULL && x->protocol->state->learning != NULL) {
        x->protocol->state->learning(out, x);
    }
}
