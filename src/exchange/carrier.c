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
    uint32_t cells = codec->grid->cells;
    uint64_t len = 0;
    TG_TRY(tg_acquire(&c->frames, a, cells, sizeof *c->frames, why));
    TG_TRY(tg_acquire(&c->framed, a, cells, sizeof *c->framed, why));
    TG_TRY(tg_acquire(&c->known, a, codec->grid->slices, sizeof *c->known, why));
    for (uint32_t i = 0; i < cells; i++) {
        len += tg_apart(tg_frame_bound(codec, codec->plan, i));
    }
    TG_TRY(codec->executor->acquire(&c->out, codec->device, a, len, why));
    uint8_t *at = c->out;
    for (uint32_t i = 0; i < cells; i++) {
        c->frames[i] = at;
        at += tg_apart(tg_frame_bound(codec, codec->plan, i));
    }
    return TG_OK;
}

/* What this rank sends to all for a group: its answer, or its indices as the leader. */
static size_t answer_bound(const tg_carrier *c, uint32_t group)
{
    size_t len = c->leader != NULL ? tg_frame_bound(c->codec, c->leader, group) : 0;
    if (c->answer != NULL) {
        uint32_t cell = group * c->codec->grid->slices + c->answer->plan->slice;
        len = larger(len, tg_frame_bound(c->answer, c->answer->plan, cell));
    }
    return len;
}

static tg_status acquire_answers(tg_carrier *c, const tg_allocator *a, tg_detail *why)
{
    uint32_t groups = c->codec->grid->groups;
    uint64_t len = 0;
    TG_TRY(tg_acquire(&c->answers, a, groups, sizeof *c->answers, why));
    for (uint32_t g = 0; g < groups; g++) {
        len += answer_bound(c, g);
    }
    TG_TRY(c->codec->executor->acquire(&c->answer_out, c->codec->device, a, len, why));
    uint8_t *at = c->answer_out;
    for (uint32_t g = 0; g < groups; g++) {
        c->answers[g] = at;
        at += answer_bound(c, g);
    }
    return TG_OK;
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

tg_status tg_carrier_buffers(void ***out, void **space, const tg_codec *codec, const tg_allocator *a, tg_detail *why)
{
    enum { LINE = 64 };
    const tg_layout *l = codec->layout;
    uint64_t len = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        len += (l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype) + LINE - 1) / LINE * LINE;
    }
    TG_TRY(codec->executor->acquire(space, codec->device, a, len, why));
    TG_TRY(tg_acquire(out, a, l->tensor_n, sizeof **out, why));
    char *at = *space;
    for (size_t t = 0; t < l->tensor_n; t++) {
        (*out)[t] = at;
        at += (l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype) + LINE - 1) / LINE * LINE;
    }
    return TG_OK;
}

/* Private averages, for frames that would be decoded twice otherwise: to check them, and to sum them when the step succeeds. */
static tg_status acquire_averages(tg_carrier *c, const tg_allocator *a, tg_detail *why)
{
    if (!decodes_slowly(tg_carrier_reader(c)->plan)) {
        return TG_OK;
    }
    return tg_carrier_buffers(&c->averages, &c->average_space, c->codec, a, why);
}

/* The views of a group: of the answers of all slices or, before them, of all ranks' frames of one slice. */
static size_t count_views(const tg_grid *grid, uint32_t group, uint32_t world)
{
    size_t first = (size_t)group * grid->slices;
    size_t views = grid->first[first + grid->slices] - grid->first[first];
    for (size_t cell = first; cell < first + grid->slices; cell++) {
        views = larger(views, world * (grid->first[cell + 1] - grid->first[cell]));
    }
    return views;
}

/* What is found in frames that arrive, and the mean of an owner's slice. */
static tg_status acquire_in(tg_carrier *c, tg_exchange *x, tg_detail *why)
{
    const tg_codec *codec = c->codec;
    const tg_grid *grid = codec->grid;
    size_t views = 0;
    TG_TRY(tg_acquire(&c->view_first, &x->allocator, grid->groups, sizeof *c->view_first, why));
    for (uint32_t g = 0; g < grid->groups; g++) {
        size_t *in_cap = &x->lanes[g].mail.in_cap;
        for (uint32_t cell = g * grid->slices; cell < (g + 1) * grid->slices; cell++) {
            *in_cap = larger(*in_cap, tg_frame_limit(codec, codec->plan, cell));
            *in_cap = larger(*in_cap, tg_frame_limit(codec, tg_carrier_reader(c)->plan, cell));
        }
        if (c->leader != NULL) {
            *in_cap = larger(*in_cap, tg_frame_limit(codec, c->leader, g));
        }
        c->view_first[g] = views;
        views += count_views(grid, g, x->world);
    }
    c->group_bodies = larger(x->world, grid->slices);
    size_t bodies = c->group_bodies * grid->groups;
    TG_TRY(tg_acquire(&c->bodies, &x->allocator, bodies, sizeof *c->bodies, why));
    TG_TRY(tg_acquire(&c->views, &x->allocator, views, sizeof *c->views, why));
    TG_TRY(tg_acquire(&c->hashes, &x->allocator, views + 2 * bodies, sizeof *c->hashes, why));
    TG_TRY(acquire_averages(c, &x->allocator, why));
    uint64_t mean_n = c->answer == NULL ? 0 : c->answer->plan->flat_n;
    return codec->executor->acquire(&c->mean, codec->device, &x->allocator, mean_n * sizeof *c->mean, why);
}

bool tg_carrier_follows(const tg_layout *l)
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
    const tg_groups groups = {c->codec->grid->group_of, c->codec->grid->groups};
    TG_TRY(tg_grid_new(&c->leader_grid, c->codec->layout, 1, &groups, a, why));
    TG_TRY(tg_plan_new(&c->leader, c->codec->layout, c->leader_grid, &purpose, a, why));
    return c->codec->executor->lead == NULL ? TG_OK : c->codec->executor->lead(c->codec->run, c->leader, why);
}

/* Whether owners answer with all values of some tensors. All ranks know. */
static bool answers_with_all(const tg_layout *l, const tg_protocol *by)
{
    bool any = false;
    for (size_t u = 0; u < l->unit_n && by->answers != NULL && by->answer_has_feedback; u++) {
        tg_recipe answer;
        any = tg_recipe_answer(&answer, l->units[u].recipe) || any;
    }
    return any;
}

uint32_t tg_carrier_answer_planes(const tg_protocol *by, const tg_recipe *recipe)
{
    tg_recipe answer;
    if (!by->answer_has_feedback) {
        return 0;
    }
    (void)tg_recipe_answer(&answer, recipe);
    return tg_recipe_feedback(&answer)->planes > 0 ? 1 : 0; /* of the part that replaces it in an answer */
}

/* What owners answer with, and what reads it. */
static tg_status open_answers(tg_carrier *c, const tg_exchange *x, const tg_protocol *by, tg_detail *why)
{
    uint32_t slices = c->codec->grid->slices, slice = slices == 1 ? 0 : x->rank;
    bool owns = by->answers != NULL && by->answers(x->rank), with_all = answers_with_all(c->codec->layout, by);
    if (with_all) {
        const tg_answer_purpose reads = {.slices = 1, .heeds_again = true, .only_decodes = true};
        TG_TRY(tg_codec_make_answer(&c->reader, c->codec, &reads, why));
    }
    if (owns && with_all) {
        const tg_answer_purpose averages = {.slice = slice, .slices = slices, .only_decodes = true};
        TG_TRY(tg_codec_make_answer(&c->averager, c->codec, &averages, why));
    }
    if (owns) {
        const tg_answer_purpose writes = {
            .slice = slice, .slices = slices, .has_feedback = by->answer_has_feedback, .heeds_again = with_all};
        TG_TRY(tg_codec_make_answer(&c->answer, c->codec, &writes, why));
    }
    return TG_OK;
}

static tg_status open_parts(tg_carrier *c, tg_exchange *x, const tg_protocol *by, tg_detail *why)
{
    if (tg_carrier_follows(c->codec->layout)) {
        TG_TRY(plan_leader(c, &x->allocator, why));
    }
    TG_TRY(open_answers(c, x, by, why));
    TG_TRY(acquire_out(c, &x->allocator, why));
    TG_TRY(acquire_answers(c, &x->allocator, why));
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
    const tg_device *device = c->codec->device;
    executor->release(device, a, c->mean);
    tg_release(a, c->averages);
    executor->release(device, a, c->average_space);
    tg_release(a, c->hashes);
    tg_release(a, c->views);
    tg_release(a, c->bodies);
    tg_release(a, c->view_first);
    executor->release(device, a, c->answer_out);
    tg_release(a, c->answers);
    executor->release(device, a, c->out);
    tg_release(a, c->known);
    tg_release(a, c->framed);
    tg_release(a, c->frames);
    tg_codec_free(c->answer);
    tg_codec_free(c->averager);
    tg_codec_free(c->reader);
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
