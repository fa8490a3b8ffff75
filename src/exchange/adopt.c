/* Another recipe in the middle of a run: a new exchange takes over the residuals of an old one.
 *
 * A rank's residual goes to where the new exchange keeps the same elements. An owner's residual counts once, not once a rank:
 * it goes to the new owner of the same elements if that is this rank, too, and otherwise to this rank's own residual, `world`
 * times, so that the mean over the ranks has it once. What then has no place is handed to the caller, for the next
 * gradient.
 *
 * Where ranks of a host sum first, this is done between the leaders. What is left there is host_size times as large in a leader's
 * own gradient, which counts once in the host's mean. */
#include "exchange/exchange.h"

#include <string.h>

/* Where a codec keeps numbers of tensor t: of element i the one at `at` + i. */
typedef struct place {
    const tg_codec *codec; /* NULL: it keeps none */
    uint64_t at;
    uint64_t from, to; /* elements of the tensor that it keeps */
} place;

/* Of a codec of the whole model, in one of the planes. */
static place plane_of(const tg_codec *c, size_t t, uint32_t plane)
{
    const tg_unit_plan *u = &c->plan->units[c->layout->tensor_unit[t]];
    if (plane >= u->planes) {
        return (place){0};
    }
    uint64_t at = u->residual_at + plane * (u->hi - u->lo) + tg_unit_piece_of(u->unit, t)->at;
    return (place){c, at, 0, c->layout->tensor_elements[t]};
}

/* What this rank encodes with as an owner; NULL: it is none. */
static const tg_codec *owner_codec(const tg_exchange *x)
{
    return x->carrier == NULL ? NULL : x->carrier->answer;
}

/* Of this rank as an owner. */
static place owner_place(const tg_exchange *x, size_t t)
{
    const tg_codec *c = owner_codec(x);
    const tg_unit_plan *u = c == NULL ? NULL : &c->plan->units[c->layout->tensor_unit[t]];
    if (u == NULL || u->planes == 0) {
        return (place){0};
    }
    const tg_piece *piece = tg_unit_piece_of(u->unit, t);
    uint64_t from = u->lo > piece->at ? u->lo : piece->at;
    uint64_t to = u->hi < piece->at + piece->n ? u->hi : piece->at + piece->n;
    if (from >= to) {
        return (place){0};
    }
    return (place){c, u->residual_at + (from - u->lo), from - piece->at, to - piece->at};
}

/* The residual of tensor t that this rank hands over: its own and, `world` times, what it kept as an owner and does not keep as
 * one again. If `apply`, the rest of the latter goes to the new owner. `space` has as many elements as the tensor. */
static tg_status gather_residual(float *residual, float *space, const tg_exchange *x, const tg_exchange *from, size_t t,
                                 bool apply, tg_detail *why)
{
    place kept = owner_place(from, t), keeps = owner_place(x, t);
    TG_TRY(tg_exchange_residual(from, residual, t, why));
    if (kept.codec == NULL) {
        return TG_OK;
    }
    kept.codec->executor->save(space, kept.codec->run, kept.at, kept.to - kept.from);
    for (uint64_t i = kept.from; i < kept.to; i++) {
        bool stays = keeps.codec != NULL && i >= keeps.from && i < keeps.to;
        residual[i] += stays ? 0 : (float)x->world * space[i - kept.from];
    }
    uint64_t first = kept.from > keeps.from ? kept.from : keeps.from, end = kept.to < keeps.to ? kept.to : keeps.to;
    if (apply && keeps.codec != NULL && first < end) {
        keeps.codec->executor->load(keeps.codec->run, keeps.at + (first - keeps.from), space + (first - kept.from),
                                    end - first);
    }
    return TG_OK;
}

/* What a feedback keeps beside the residual is of use to the same feedback alone. */
static void copy_planes(const tg_exchange *x, const tg_exchange *from, size_t t, float *space)
{
    const tg_unit_plan *to = &x->codec->plan->units[x->codec->layout->tensor_unit[t]];
    const tg_unit_plan *of = &from->codec->plan->units[from->codec->layout->tensor_unit[t]];
    for (uint32_t p = 1; to->stages.feedback == of->stages.feedback && p < to->planes; p++) {
        place out = plane_of(x->codec, t, p), in = plane_of(from->codec, t, p);
        if (in.codec != NULL) {
            in.codec->executor->save(space, in.codec->run, in.at, in.to);
            out.codec->executor->load(out.codec->run, out.at, space, out.to);
        }
    }
}

/* Fits of chunks are of use to the same recipe and the same chunks; else the next step makes new ones. */
static void copy_fits(const tg_codec *to, const tg_codec *from)
{
    enum { SOME = 256 };
    if (to == NULL || from == NULL || to->plan->fit_n != from->plan->fit_n ||
        to->plan->grid->slices != from->plan->grid->slices ||
        to->layout->description.fingerprint != from->layout->description.fingerprint) {
        return;
    }
    float some[SOME];
    for (uint64_t at = to->plan->residual_n - to->plan->fit_n, n = 0; at < to->plan->residual_n; at += n) {
        n = to->plan->residual_n - at < SOME ? to->plan->residual_n - at : SOME;
        from->executor->save(some, from->run, at, n);
        to->executor->load(to->run, at, some, n);
    }
}

/* Buffers of one tensor. */
typedef struct buffers {
    float *residual, *space;
} buffers;

static tg_status take_tensor(float *const *left, tg_exchange *x, const tg_exchange *from, size_t t, const buffers *b,
                             tg_detail *why)
{
    size_t n = (size_t)x->codec->layout->tensor_elements[t];
    place to = plane_of(x->codec, t, 0);
    TG_TRY(gather_residual(b->residual, b->space, x, from, t, true, why));
    if (to.codec != NULL) {
        to.codec->executor->load(to.codec->run, to.at, b->residual, n);
        memset(b->residual, 0, n * sizeof *b->residual);
    }
    if (left != NULL) {
        memcpy(left[t], b->residual, n * sizeof *b->residual);
    }
    copy_planes(x, from, t, b->space);
    return TG_OK;
}

static tg_status check_nothing_left(const tg_exchange *x, const tg_exchange *from, size_t t, const buffers *b,
                                    tg_detail *why)
{
    const tg_layout *l = x->codec->layout;
    if (plane_of(x->codec, t, 0).codec != NULL) {
        return TG_OK;
    }
    TG_TRY(gather_residual(b->residual, b->space, x, from, t, false, why));
    for (uint64_t i = 0; i < l->tensor_elements[t]; i++) {
        if (b->residual[i] != 0) {
            return tg_fail(TG_E_MISMATCH, why,
                           "'%.80s' by %s keeps no residual of tensor '%.60s', of which there is one",
                           tg_exchange_recipe(x, t), x->protocol->name, l->tensors[t].name);
        }
    }
    return TG_OK;
}

static tg_status take_all(float *const *left, tg_exchange *x, const tg_exchange *from, const buffers *b, tg_detail *why)
{
    const tg_layout *l = x->codec->layout;
    for (size_t t = 0; left == NULL && t < l->tensor_n; t++) {
        if (l->tensor_elements[t] > 0) {
            TG_TRY(check_nothing_left(x, from, t, b, why));
        }
    }
    for (size_t t = 0; t < l->tensor_n; t++) {
        if (l->tensor_elements[t] > 0) {
            TG_TRY(take_tensor(left, x, from, t, b, why));
        }
    }
    return TG_OK;
}

/* ---- what must hold ---------------------------------------------------------------------------------------------------- */

static bool same_tensor(const tg_tensor *a, const tg_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->dim_n == b->dim_n &&
           (a->dim_n == 0 || memcmp(a->dims, b->dims, a->dim_n * sizeof *a->dims) == 0);
}

static tg_status check_fits(float *const *left, const tg_exchange *x, const tg_exchange *from, tg_detail *why)
{
    const tg_layout *l = x->codec->layout, *old = from->codec->layout;
    if (x == from || x->step.phase != TG_IDLE || from->step.phase != TG_IDLE || x->done.any) {
        return tg_fail(TG_E_ARGUMENT, why, "between steps, and by a new exchange, another one is adopted");
    }
    if (x->rank != from->rank || x->world != from->world) {
        return tg_fail(TG_E_MISMATCH, why, "this is rank %u of %u, and what is adopted is of rank %u of %u", x->rank,
                       x->world, from->rank, from->world);
    }
    if (x->host_size != from->host_size) {
        return tg_fail(TG_E_MISMATCH, why, "there are hosts of %u ranks, and what is adopted is of hosts of %u",
                       x->host_size, from->host_size);
    }
    if (l->tensor_n != old->tensor_n) {
        return tg_fail(TG_E_MISMATCH, why, "there are %zu tensors, and what is adopted is of %zu", l->tensor_n,
                       old->tensor_n);
    }
    for (size_t t = 0; t < l->tensor_n; t++) {
        if (!same_tensor(&l->tensors[t], &old->tensors[t])) {
            return tg_fail(TG_E_MISMATCH, why, "tensor '%.80s' is not what it was, '%.80s' or of another shape or type",
                           l->tensors[t].name, old->tensors[t].name);
        }
        if (left != NULL && left[t] == NULL && l->tensor_elements[t] > 0) {
            return tg_fail(TG_E_ARGUMENT, why, "there is no buffer for what is left of tensor '%.150s'",
                           l->tensors[t].name);
        }
    }
    return TG_OK;
}

/* What is left on a rank, times `by`. */
static void scale_left(float *const *left, const tg_layout *l, float by)
{
    for (size_t t = 0; left != NULL && t < l->tensor_n; t++) {
        for (uint64_t i = 0; i < l->tensor_elements[t]; i++) {
            left[t][i] = by == 0 ? 0 : left[t][i] * by;
        }
    }
}

/* By the exchanges that keep residuals. */
static tg_status adopt(float *const *left, tg_exchange *x, const tg_exchange *from, tg_detail *why)
{
    const tg_layout *l = x->codec->layout;
    uint64_t longest = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        longest = l->tensor_elements[t] > longest ? l->tensor_elements[t] : longest;
    }
    float *space = NULL;
    TG_TRY(tg_acquire(&space, &x->allocator, 2 * longest, sizeof *space, why));
    const buffers b = {space, space + longest};
    tg_status status = longest == 0 ? TG_OK : take_all(left, x, from, &b, why);
    tg_release(&x->allocator, space);
    if (status == TG_OK) {
        copy_fits(x->codec, from->codec);
        copy_fits(owner_codec(x), owner_codec(from));
    }
    return status;
}

tg_status tg_exchange_adopt(float *const *left, tg_exchange *x, const tg_exchange *from, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(from, why);
    TG_TRY(check_fits(left, x, from, why));
    tg_exchange *keeper = x->hosts == NULL ? x : x->hosts->between;
    tg_status status = keeper == NULL ? TG_OK : adopt(left, keeper, tg_keeper(from), why);
    if (status == TG_OK && x->hosts != NULL) {
        scale_left(left, x->codec->layout, keeper == NULL ? 0 : (float)x->host_size);
    }
    if (status == TG_OK) {
        x->done.any = from->done.any;
        x->done.step = from->done.step;
    }
    return status;
}
