/* Frames of a codec between ranks: buffers for what is sent and received, writing and checking. Buffers have the longest
 * frame's size; pages that are never used are never touched. */
#include "exchange/exchange.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Where frames are written. */
static tg_status acquire_out(tg_carrier *c, const tg_allocator *a, tg_detail *why)
{
    const tg_codec *codec = c->codec;
    uint32_t slices = codec->grid->slices;
    TG_TRY(tg_acquire(&c->frames, a, slices, sizeof *c->frames, why));
    TG_TRY(tg_acquire(&c->framed, a, slices, sizeof *c->framed, why));
    uint64_t len = 0;
    for (uint32_t s = 0; s < slices; s++) {
        len += tg_frame_bound(codec, codec->plan, s);
    }
    TG_TRY(codec->executor->acquire(&c->out, a, len, why));
    uint8_t *at = c->out;
    for (uint32_t s = 0; s < slices; s++) {
        c->frames[s] = at;
        at += tg_frame_bound(codec, codec->plan, s);
    }
    size_t answer_len = c->leader != NULL ? tg_frame_bound(codec, c->leader, 0) : 0;
    if (c->answer != NULL) {
        answer_len = larger(answer_len, tg_frame_bound(c->answer, c->answer->plan, c->answer->plan->slice));
    }
    return codec->executor->acquire(&c->answer_out, a, answer_len, why);
}

/* Whether decoding all elements costs more than copying them: most of them are entropy-coded. */
static bool decodes_slowly(const tg_plan *plan)
{
    uint64_t coded_n = 0;
    for (size_t u = 0; u < plan->layout->unit_n; u++) {
        const tg_unit_plan *unit = &plan->units[u];
        coded_n += unit->coordinates == TG_AT_EVERY && unit->format.coded ? unit->unit->n : 0;
    }
    return coded_n > plan->layout->element_n / 2;
}

/* Private averages, for frames that would be decoded twice otherwise: to check them, and to sum them when the step succeeds. */
static tg_status acquire_averages(tg_carrier *c, const tg_allocator *a, tg_detail *why)
{
    enum { LINE = 64 };
    const tg_layout *l = c->codec->layout;
    uint64_t len = 0;
    if (!decodes_slowly(c->codec->plan)) {
        return TG_OK;
    }
    for (size_t t = 0; t < l->tensor_n; t++) {
        len += (l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype) + LINE - 1) / LINE * LINE;
    }
    TG_TRY(c->codec->executor->acquire(&c->average_space, a, len, why));
    TG_TRY(tg_acquire(&c->averages, a, l->tensor_n, sizeof *c->averages, why));
    char *at = c->average_space;
    for (size_t t = 0; t < l->tensor_n; t++) {
        c->averages[t] = at;
        at += (l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype) + LINE - 1) / LINE * LINE;
    }
    return TG_OK;
}

/* What is found in frames that arrive, and the mean of an owner's slice. */
static tg_status acquire_in(tg_carrier *c, tg_exchange *x, tg_detail *why)
{
    const tg_codec *codec = c->codec;
    const tg_grid *grid = codec->grid;
    size_t chunks = grid->first[grid->slices], in_cap = 0;
    for (uint32_t s = 0; s < grid->slices; s++) {
        in_cap = larger(in_cap, tg_frame_limit(codec, codec->plan, s));
        chunks = larger(chunks, x->world * (grid->first[s + 1] - grid->first[s]));
    }
    if (c->leader != NULL) {
        in_cap = larger(in_cap, tg_frame_limit(codec, c->leader, 0));
    }
    x->mail.in_cap = larger(x->mail.in_cap, in_cap);
    size_t bodies = larger(x->world, grid->slices);
    TG_TRY(tg_acquire(&c->bodies, &x->allocator, bodies, sizeof *c->bodies, why));
    TG_TRY(tg_acquire(&c->views, &x->allocator, chunks, sizeof *c->views, why));
    TG_TRY(tg_acquire(&c->hashes, &x->allocator, chunks + bodies, sizeof *c->hashes, why));
    TG_TRY(acquire_averages(c, &x->allocator, why));
    uint64_t mean_n = c->answer == NULL ? 0 : c->answer->plan->flat_n;
    return codec->executor->acquire(&c->mean, &x->allocator, mean_n * sizeof *c->mean, why);
}

static bool follows_leader(const tg_layout *l)
{
    for (size_t u = 0; u < l->unit_n; u++) {
        if (tg_recipe_follows_leader(l->units[u].recipe)) {
            return true;
        }
    }
    return false;
}

static tg_status plan_leader(tg_carrier *c, const tg_allocator *a, tg_detail *why)
{
    const tg_purpose purpose = {.holds = TG_HAS_INDICES,
                                .slices = 1,
                                .rank = c->codec->plan->rank,
                                .nonfinite = c->codec->plan->nonfinite,
                                .has_feedback = true};
    TG_TRY(tg_grid_new(&c->leader_grid, c->codec->layout, 1, a, why));
    return tg_plan_new(&c->leader, c->codec->layout, c->leader_grid, &purpose, a, why);
}

static tg_status open_parts(tg_carrier *c, tg_exchange *x, const tg_protocol *by, tg_detail *why)
{
    if (follows_leader(c->codec->layout)) {
        TG_TRY(plan_leader(c, &x->allocator, why));
    }
    if (by->answers != NULL && by->answers(x->rank)) {
        uint32_t slice = c->codec->grid->slices == 1 ? 0 : x->rank;
        TG_TRY(tg_codec_make_answer(&c->answer, c->codec, slice, by->answer_has_feedback, why));
    }
    TG_TRY(acquire_out(c, &x->allocator, why));
    return acquire_in(c, x, why);
}

tg_status tg_carrier_open(tg_carrier **out, tg_exchange *x, tg_codec *codec, const tg_protocol *by, tg_detail *why)
{
    tg_carrier *c = NULL;
    TG_TRY(tg_acquire(&c, &x->allocator, 1, sizeof *c, why));
    c->codec = codec;
    *out = c; /* closed with the exchange, whatever happens here */
    return open_parts(c, x, by, why);
}

void tg_carrier_close(tg_carrier *c, const tg_allocator *a)
{
    if (c == NULL) {
        return;
    }
    const tg_executor *executor = c->codec->executor;
    executor->release(a, c->mean);
    tg_release(a, c->averages);
    executor->release(a, c->average_space);
    tg_release(a, c->hashes);
    tg_release(a, c->views);
    tg_release(a, c->bodies);
    executor->release(a, c->answer_out);
    executor->release(a, c->out);
    tg_release(a, c->framed);
    tg_release(a, c->frames);
    tg_codec_free(c->answer);
    tg_plan_free(c->leader, a);
    tg_grid_free(c->leader_grid, a);
    tg_release(a, c);
}

tg_status tg_carrier_open_own(tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    (void)opt;
    return tg_carrier_open(&x->carrier, x, x->codec, x->protocol, why);
}

void tg_carrier_close_own(tg_exchange *x)
{
    tg_carrier_close(x->carrier, &x->allocator);
}
