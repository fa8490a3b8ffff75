/* Another recipe in the middle of a run: a new exchange takes over what an old one still owes the model.
 *
 * What a rank remembers goes to where the new exchange remembers the same elements. What an owner keeps of an answer is
 * owed once, not once a rank: it goes to the new owner of the same elements if that is this rank, too, and otherwise to
 * what this rank remembers for itself, `world` times, so that the mean over the ranks has it once. What then has no place
 * is handed to the caller, for the next gradient. */
#include "exchange/exchange.h"

#include <string.h>

/* A tensor's place in its unit; only of tensors that have elements. */
static const tg_piece *piece_of(const tg_layout *l, size_t t)
{
    const tg_piece *piece = l->units[l->tensor_unit[t]].pieces;
    while (piece->tensor != t) {
        piece++;
    }
    return piece;
}

/* Where a codec of the whole model remembers tensor t, in one of the planes; NULL if it does not. */
static float *plane_of(const tg_codec *c, size_t t, uint32_t plane)
{
    const tg_work *w = &c->works[c->layout->tensor_unit[t]];
    if (!w->remembers || plane >= w->feedback->planes) {
        return NULL;
    }
    return c->memory[0] + w->memory_at + plane * (w->hi - w->lo) + piece_of(c->layout, t)->at;
}

/* What this rank remembers as an owner of tensor t: its elements from `from` up to but not `to`, at `at`. */
typedef struct share {
    float *at;
    uint64_t from, to;
} share;

static share owner_share(const tg_exchange *x, size_t t)
{
    const tg_layout *l = x->codec->layout;
    if (x->answer == NULL || !x->answer->works[l->tensor_unit[t]].remembers) {
        return (share){0};
    }
    const tg_work *w = &x->answer->works[l->tensor_unit[t]];
    const tg_piece *piece = piece_of(l, t);
    uint64_t from = w->lo > piece->at ? w->lo : piece->at;
    uint64_t to = w->hi < piece->at + piece->n ? w->hi : piece->at + piece->n;
    if (from >= to) {
        return (share){0};
    }
    return (share){x->answer->memory[0] + w->memory_at + (from - w->lo), from - piece->at, to - piece->at};
}

/* What this rank owes of tensor t for itself, with what it kept as an owner and is not to keep as one again. If
 * `apply`, the rest of that goes to the new owner. */
static tg_status gather_owed(float *owed, const tg_exchange *x, const tg_exchange *from, size_t t, bool apply,
                             tg_detail *why)
{
    TG_TRY(tg_exchange_residual(from, owed, t, why));
    share kept = owner_share(from, t), keeps = owner_share(x, t);
    for (uint64_t i = kept.from; i < kept.to; i++) {
        float value = kept.at[i - kept.from];
        if (i < keeps.from || i >= keeps.to) {
            owed[i] += (float)x->world * value;
        } else if (apply) {
            keeps.at[i - keeps.from] = value;
        }
    }
    return TG_OK;
}

/* What a feedback remembers beside the residual is of use to the same feedback alone. */
static void copy_planes(const tg_exchange *x, const tg_exchange *from, size_t t)
{
    const tg_work *to = &x->codec->works[x->codec->layout->tensor_unit[t]];
    const tg_work *of = &from->codec->works[from->codec->layout->tensor_unit[t]];
    for (uint32_t p = 1; to->feedback == of->feedback && p < to->feedback->planes; p++) {
        float *out = plane_of(x->codec, t, p);
        const float *in = plane_of(from->codec, t, p);
        if (out != NULL && in != NULL) {
            memcpy(out, in, (size_t)x->codec->layout->tensor_elements[t] * sizeof *out);
        }
    }
}

static tg_status take_tensor(float *const *left, tg_exchange *x, const tg_exchange *from, size_t t, float *owed,
                             tg_detail *why)
{
    size_t n = (size_t)x->codec->layout->tensor_elements[t];
    TG_TRY(gather_owed(owed, x, from, t, true, why));
    float *place = plane_of(x->codec, t, 0);
    if (place != NULL) {
        memcpy(place, owed, n * sizeof *place);
        memset(owed, 0, n * sizeof *owed);
    }
    if (left != NULL) {
        memcpy(left[t], owed, n * sizeof *owed);
    }
    copy_planes(x, from, t);
    return TG_OK;
}

static tg_status check_nothing_left(const tg_exchange *x, const tg_exchange *from, size_t t, float *owed,
                                    tg_detail *why)
{
    const tg_layout *l = x->codec->layout;
    if (plane_of(x->codec, t, 0) != NULL) {
        return TG_OK;
    }
    TG_TRY(gather_owed(owed, x, from, t, false, why));
    for (uint64_t i = 0; i < l->tensor_elements[t]; i++) {
        if (owed[i] != 0) {
            return tg_fail(TG_E_MISMATCH, why,
                           "'%.80s' by %s remembers nothing of tensor '%.60s', of which something is still owed",
                           tg_exchange_recipe(x, t), x->protocol->name, l->tensors[t].name);
        }
    }
    return TG_OK;
}

static tg_status take_all(float *const *left, tg_exchange *x, const tg_exchange *from, float *owed, tg_detail *why)
{
    const tg_layout *l = x->codec->layout;
    for (size_t t = 0; left == NULL && t < l->tensor_n; t++) {
        if (l->tensor_elements[t] > 0) {
            TG_TRY(check_nothing_left(x, from, t, owed, why));
        }
    }
    for (size_t t = 0; t < l->tensor_n; t++) {
        if (l->tensor_elements[t] > 0) {
            TG_TRY(take_tensor(left, x, from, t, owed, why));
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
    if (x == from || x->phase != TG_IDLE || from->phase != TG_IDLE || x->any_done) {
        return tg_fail(TG_E_ARGUMENT, why, "between steps, and by a new exchange, another one is adopted");
    }
    if (x->rank != from->rank || x->world != from->world) {
        return tg_fail(TG_E_MISMATCH, why, "this is rank %u of %u, and what is adopted is of rank %u of %u", x->rank,
                       x->world, from->rank, from->world);
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
            return tg_fail(TG_E_ARGUMENT, why, "there is no room for what is left of tensor '%.150s'",
                           l->tensors[t].name);
        }
    }
    return TG_OK;
}

tg_status tg_exchange_adopt(float *const *left, tg_exchange *x, const tg_exchange *from, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(from, why);
    TG_TRY(check_fits(left, x, from, why));
    const tg_layout *l = x->codec->layout;
    uint64_t longest = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        longest = l->tensor_elements[t] > longest ? l->tensor_elements[t] : longest;
    }
    float *owed = NULL;
    TG_TRY(tg_acquire(&owed, &x->allocator, longest, sizeof *owed, why));
    tg_status status = take_all(left, x, from, owed, why);
    tg_release(&x->allocator, owed);
    if (status == TG_OK) {
        x->any_done = from->any_done;
        x->done_step = from->done_step;
    }
    return status;
}
