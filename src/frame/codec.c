/* Makes codecs, and answers questions about them. */
#include "frame/frame.h"

#include "recipe/policy.h"
#include "tersegrad/experimental.h"

#include <inttypes.h>
#include <string.h>

/* ---- the layout ------------------------------------------------------------------------------------------------------ */

static tg_status check_options(const tg_options *opt, tg_detail *why)
{
    if (opt->rule_n > 0 && opt->rules == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no rules are given, though rule_n says %zu", opt->rule_n);
    }
    if (opt->rank == UINT32_MAX) {
        return tg_fail(TG_E_ARGUMENT, why, "a rank is at most 2^32 - 2");
    }
    if (opt->nonfinite < TG_NONFINITE_ERROR || opt->nonfinite > TG_NONFINITE_PASS) {
        return tg_fail(TG_E_ARGUMENT, why, "unknown policy for NaN and Inf");
    }
    return TG_OK;
}

/* What can be decoded may be longer than what a part can choose from. */
static tg_status check_lengths(const tg_layout *l, tg_detail *why)
{
    for (size_t u = 0; u < l->unit_n; u++) {
        const tg_unit *unit = &l->units[u];
        const tg_select_part *select = tg_recipe_select(unit->recipe);
        if (select->n_max != 0 && unit->n > select->n_max) {
            return tg_fail(TG_E_ARGUMENT, why,
                           "'%s' spans %" PRIu64 " elements from tensor '%.60s' on; %" PRIu64 " are the most",
                           select->part.name, unit->n, l->tensors[unit->pieces[0].tensor].name, select->n_max);
        }
    }
    return TG_OK;
}

tg_status tg_codec_layout(tg_layout **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why)
{
    TG_TRY(check_options(opt, why));
    if (tensor_n > 0 && tensors == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no tensors are given");
    }
    tg_allocator a = tg_allocator_or_standard(opt->allocator);
    tg_recipe *recipes = NULL;
    tg_layout *layout = NULL;
    TG_TRY(tg_acquire(&recipes, &a, tensor_n, sizeof *recipes, why));
    tg_status status = tg_policy_apply(recipes, recipe, tensors, tensor_n, opt, why);
    if (status == TG_OK) {
        status = tg_layout_new(&layout, tensors, tensor_n, recipes, opt->has_seed != 0, opt->seed, &a, why);
    }
    tg_release(&a, recipes);
    if (status == TG_OK) {
        status = check_lengths(layout, why);
    }
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    *out = layout;
    return TG_OK;
}

/* ---- making one ------------------------------------------------------------------------------------------------------ */

static tg_status open_plan(tg_codec *c, const tg_purpose *purpose, uint32_t threads, uint32_t places, tg_detail *why)
{
    tg_run_options opt = {.device = c->device,
                          .threads = threads,
                          .only_decodes = c->only_decodes,
                          .places = places,
                          .shares = c->parent != NULL ? c->parent->run : NULL};
    TG_TRY(tg_plan_new(&c->plan, c->layout, c->grid, purpose, &c->allocator, why));
    return c->executor->open(&c->run, c->plan, &opt, &c->allocator, why);
}

static tg_status set_up(tg_codec *c, const tg_codec_purpose *purpose, const tg_options *opt, tg_detail *why)
{
    const tg_purpose of_plan = {.holds = purpose->holds,
                                .slices = 1,
                                .rank = opt->rank,
                                .nonfinite = opt->nonfinite,
                                .has_feedback = !purpose->only_decodes};
    TG_TRY(tg_grid_new(&c->grid, c->layout, purpose->slices, &purpose->groups, &c->allocator, why));
    uint32_t cells = c->grid->cells;
    size_t chunks = c->grid->first[cells];
    TG_TRY(tg_acquire(&c->views, &c->allocator, chunks, sizeof *c->views, why));
    TG_TRY(tg_acquire(&c->hashes, &c->allocator, chunks + 2 * (uint64_t)cells, sizeof *c->hashes, why));
    TG_TRY(tg_acquire(&c->bodies, &c->allocator, cells, sizeof *c->bodies, why));
    TG_TRY(tg_acquire(&c->front, &c->allocator,
                      TG_FRAME_HEADER + (uint64_t)c->layout->description.len + TG_FRAME_CHECKSUM, 1, why));
    TG_TRY(open_plan(c, &of_plan, opt->threads, purpose->places, why));
    c->bound = tg_frame_bound(c, c->plan, 0);
    return TG_OK;
}

static tg_status finish(tg_codec **out, tg_codec *c, tg_status status)
{
    if (status != TG_OK) {
        tg_codec_free(c);
        return status;
    }
    *out = c;
    return TG_OK;
}

tg_status tg_codec_make(tg_codec **out, tg_layout *layout, const tg_codec_purpose *purpose, const tg_options *opt,
                        tg_detail *why)
{
    tg_allocator a = tg_allocator_or_standard(opt->allocator);
    tg_codec *c = NULL;
    tg_status status = tg_acquire(&c, &a, 1, sizeof *c, why);
    if (status != TG_OK) {
        tg_layout_free(layout);
        return status;
    }
    c->allocator = a;
    c->device = opt->device;
    c->executor = opt->device != NULL ? opt->device->executor : &tg_executor_host;
    c->layout = layout;
    c->front_len = TG_FRAME_HEADER + (opt->describe != 0 ? layout->description.len : 0);
    c->only_decodes = purpose->only_decodes;
    return finish(out, c, set_up(c, purpose, opt, why));
}

tg_status tg_codec_make_answer(tg_codec **out, tg_codec *parent, const tg_answer_purpose *purpose, tg_detail *why)
{
    tg_codec *c = NULL;
    TG_TRY(tg_acquire(&c, &parent->allocator, 1, sizeof *c, why));
    c->allocator = parent->allocator;
    c->executor = parent->executor;
    c->device = parent->device;
    c->front_len = TG_FRAME_HEADER;
    c->parent = parent;
    c->layout = parent->layout;
    c->grid = parent->grid;
    c->views = parent->views;
    c->hashes = parent->hashes;
    c->bodies = parent->bodies;
    c->front = parent->front;
    c->only_decodes = purpose->only_decodes;
    const tg_purpose of_plan = {.holds = parent->plan->holds,
                                .slice = purpose->slice,
                                .slices = purpose->slices,
                                .rank = parent->plan->rank,
                                .nonfinite = parent->plan->nonfinite,
                                .is_answer = true,
                                .has_feedback = purpose->has_feedback,
                                .heeds_again = purpose->heeds_again};
    return finish(out, c, open_plan(c, &of_plan, 0, 0, why));
}

tg_status tg_codec_new(tg_codec **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                       const tg_options *opt, tg_detail *why)
{
    tg_options options;
    tg_layout *layout = NULL;
    TG_NEED(out, why);
    TG_TRY(tg_options_read(&options, opt, why));
    TG_TRY(tg_codec_layout(&layout, recipe, tensors, tensor_n, &options, why));
    const char *own = tg_layout_exchange(layout);
    if (own != NULL) {
        tg_layout_free(layout);
        return tg_fail(TG_E_RECIPE, why, "'%.100s' travels by an exchange of its own, %s, and has no frame to write to",
                       recipe, own);
    }
    const tg_codec_purpose purpose = {.slices = 1, .holds = TG_HAS_INDICES | TG_HAS_VALUES};
    return tg_codec_make(out, layout, &purpose, &options, why);
}

void tg_codec_free(tg_codec *c)
{
    if (c == NULL) {
        return;
    }
    tg_allocator a = c->allocator;
    c->executor->close(c->run);
    tg_plan_free(c->plan, &a);
    if (c->parent == NULL) {
        tg_release(&a, c->front);
        tg_release(&a, c->bodies);
        tg_release(&a, c->hashes);
        tg_release(&a, c->views);
        tg_grid_free(c->grid, &a);
        tg_layout_free(c->layout);
    }
    tg_release(&a, c);
}

/* ---- facts ----------------------------------------------------------------------------------------------------------- */

tg_status tg_check_grads(const tg_codec *c, const void *const *grads, const void *frame, tg_detail *why)
{
    for (size_t t = 0; t < c->layout->tensor_n; t++) {
        if (grads == NULL || (grads[t] == NULL && c->layout->tensor_elements[t] > 0)) {
            return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'", c->layout->tensors[t].name);
        }
    }
    return c->executor->reach(c->run, grads, frame, why);
}

const char *tg_codec_recipe(const tg_codec *c, size_t tensor)
{
    if (c == NULL) {
        return NULL;
    }
    const tg_layout *l = c->layout;
    return tensor < l->tensor_n ? l->recipes[l->tensor_recipe[tensor]].text : NULL;
}

size_t tg_codec_tensors(const tg_codec *c)
{
    return c == NULL ? 0 : c->layout->tensor_n;
}

static tg_status check_tensor(const tg_codec *c, size_t tensor, tg_detail *why)
{
    if (tensor >= c->layout->tensor_n) {
        return tg_fail(TG_E_ARGUMENT, why, "there is no tensor number %zu of %zu", tensor, c->layout->tensor_n);
    }
    return TG_OK;
}

tg_status tg_codec_tensor(tg_tensor *out, const tg_codec *c, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(c, why);
    TG_TRY(check_tensor(c, tensor, why));
    *out = c->layout->tensors[tensor];
    return TG_OK;
}

tg_status tg_codec_residual(const tg_codec *c, float *out, size_t tensor, tg_detail *why)
{
    TG_NEED(c, why);
    TG_TRY(check_tensor(c, tensor, why));
    const tg_unit_plan *u = &c->plan->units[c->layout->tensor_unit[tensor]];
    size_t n = (size_t)c->layout->tensor_elements[tensor];
    if (n == 0) {
        return TG_OK;
    }
    TG_NEED(out, why);
    if (u->planes == 0) {
        memset(out, 0, n * sizeof *out);
    } else {
        c->executor->save(out, c->run, u->residual_at + tg_unit_piece_of(u->unit, tensor)->at, n);
    }
    return TG_OK;
}

tg_status tg_codec_traffic(tg_traffic *out, const tg_codec *c, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(c, why);
    TG_TRY(check_tensor(c, tensor, why));
    const tg_unit_plan *u = &c->plan->units[c->layout->tensor_unit[tensor]];
    tg_unit_stats stats = c->executor->stats(c->run, c->layout->tensor_unit[tensor]);
    uint32_t bin = u->format.bin;
    uint64_t bins = bin == 0 ? 0 : (u->hi - u->lo + bin - 1) / bin;
    double share = u->unit->n == 0 ? 0 : (double)c->layout->tensor_elements[tensor] / (double)u->unit->n;
    *out = (tg_traffic){.len = (uint64_t)((double)stats.len * share + 0.5),
                        .entries = (uint64_t)((double)stats.entries * share + 0.5),
                        .bins = (uint64_t)((double)bins * share + 0.5)};
    if (stats.fit_n > 0) {
        out->shape = stats.shape / (double)stats.fit_n;
        out->scale = stats.scale / (double)stats.fit_n;
    }
    return TG_OK;
}

uint64_t tg_codec_paper_len(const tg_codec *c, size_t tensor)
{
    tg_traffic traffic;
    if (c == NULL || tg_codec_traffic(&traffic, c, tensor, NULL) != TG_OK) {
        return 0;
    }
    const tg_format *f = &c->plan->units[c->layout->tensor_unit[tensor]].format;
    bool is_adacomp = f->bin > 0 && f->scale != TG_SCALE_NONE;
    return is_adacomp ? traffic.entries * (f->bin <= 64 ? 1 : 2) + sizeof(float) : 0;
}

const char *tg_version(void)
{
#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
    return VERSION_TEXT(TG_VERSION_MAJOR, TG_VERSION_MINOR, TG_VERSION_PATCH);
}
