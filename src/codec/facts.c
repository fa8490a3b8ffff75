/* What a codec knows of itself and of its last frame. */
#include "base/bits.h"
#include "codec/codec.h"

#include <string.h>

tg_known tg_codec_known(const tg_codec *c, uint32_t unit, unsigned holds)
{
    const tg_recipe *recipe = c->layout->units[unit].recipe;
    const tg_select_part *select = tg_recipe_select(recipe);
    if (select->by == TG_BY_NOTHING) {
        return TG_KNOWN_EVERY;
    }
    if (select->by == TG_BY_SEED && recipe->value[TG_STAGE_select][TG_SELECT_COORDS] == TG_COORDS_SHARED) {
        return TG_KNOWN_DRAWN;
    }
    return tg_recipe_is_led(recipe) && (holds & TG_HAS_INDICES) == 0 ? TG_KNOWN_LED : TG_KNOWN_TOLD;
}

bool tg_codec_carries(const tg_codec *c, uint32_t unit, unsigned holds)
{
    return (holds & TG_HAS_VALUES) != 0 || tg_recipe_is_led(c->layout->units[unit].recipe);
}

void tg_codec_mark_known(uint64_t *mask, const tg_codec *c, uint32_t unit, tg_known known, uint64_t at, size_t n)
{
    const tg_recipe *recipe = c->layout->units[unit].recipe;
    memset(mask, 0, tg_words(n) * sizeof *mask);
    if (known == TG_KNOWN_LED) {
        tg_mask_extract(mask, c->works[unit].led, at, n);
    } else {
        tg_recipe_select(recipe)->mark(mask, c->works[unit].scratch, recipe->value[TG_STAGE_select], at, NULL, n);
    }
}

tg_status tg_check_grads(const tg_codec *c, const void *const *grads, tg_detail *why)
{
    for (size_t t = 0; t < c->layout->tensor_n; t++) {
        if (grads == NULL || (grads[t] == NULL && c->layout->tensor_elements[t] > 0)) {
            return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'", c->layout->tensors[t].name);
        }
    }
    return TG_OK;
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

tg_status tg_codec_tensor(tg_tensor *out, const tg_codec *c, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(c, why);
    if (tensor >= c->layout->tensor_n) {
        return tg_fail(TG_E_ARGUMENT, why, "there is no tensor number %zu of %zu", tensor, c->layout->tensor_n);
    }
    *out = c->layout->tensors[tensor];
    return TG_OK;
}

tg_status tg_codec_residual(const tg_codec *c, float *out, size_t tensor, tg_detail *why)
{
    TG_NEED(c, why);
    const tg_layout *l = c->layout;
    if (tensor >= l->tensor_n) {
        return tg_fail(TG_E_ARGUMENT, why, "there is no tensor number %zu of %zu", tensor, l->tensor_n);
    }
    const tg_unit *unit = &l->units[l->tensor_unit[tensor]];
    const tg_work *w = &c->works[l->tensor_unit[tensor]];
    size_t n = (size_t)l->tensor_elements[tensor];
    if (n == 0) {
        return TG_OK;
    }
    TG_NEED(out, why);
    if (!w->remembers) {
        memset(out, 0, n * sizeof *out);
        return TG_OK;
    }
    const tg_piece *piece = unit->pieces;
    while (piece->tensor != tensor) {
        piece++;
    }
    memcpy(out, c->memory[0] + w->memory_at + piece->at, n * sizeof *out);
    return TG_OK;
}

void tg_work_note_nothing(tg_work *w)
{
    w->sent_len = w->sent_n = w->fit_n = 0;
    w->shape = w->fitted = 0;
}

void tg_work_note_fit(tg_work *w, const tg_recipe *recipe, const tg_view *view)
{
    const tg_quantize_part *quantize = tg_recipe_quantize(recipe);
    if (quantize->fit != NULL && view->indices > view->symbols) {
        double shape = 0, scale = 0;
        quantize->fit(&shape, &scale, view->side);
        w->shape += shape;
        w->fitted += scale;
        w->fit_n++;
    }
}

tg_status tg_codec_traffic(tg_traffic *out, const tg_codec *c, size_t tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(c, why);
    const tg_layout *l = c->layout;
    if (tensor >= l->tensor_n) {
        return tg_fail(TG_E_ARGUMENT, why, "there is no tensor number %zu of %zu", tensor, l->tensor_n);
    }
    const tg_unit *unit = &l->units[l->tensor_unit[tensor]];
    const tg_work *w = &c->works[l->tensor_unit[tensor]];
    double share = unit->n == 0 ? 0 : (double)l->tensor_elements[tensor] / (double)unit->n;
    *out = (tg_traffic){.len = (uint64_t)((double)w->sent_len * share + 0.5),
                        .entries = (uint64_t)((double)w->sent_n * share + 0.5),
                        .bins = (uint64_t)((double)tg_work_bins(w) * share + 0.5)};
    if (w->fit_n > 0) {
        out->shape = w->shape / (double)w->fit_n;
        out->scale = w->fitted / (double)w->fit_n;
    }
    if (w->bin > 0 && tg_recipe_quantize(unit->recipe)->has_scale) { /* AdaComp's count, scale included */
        out->paper_len = out->entries * (w->bin <= 64 ? 1 : 2) + sizeof(float);
    }
    return TG_OK;
}

const char *tg_version(void)
{
#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
    return VERSION_TEXT(TG_VERSION_MAJOR, TG_VERSION_MINOR, TG_VERSION_PATCH);
}
