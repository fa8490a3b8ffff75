/* A layout as bytes and back (docs/format.md section 2). Two codecs can decode each other's frames exactly if their
 * descriptions are equal. So the hash of the description is the fingerprint in every frame. */
#include "base/bytes.h"
#include "kernels/hash.h"
#include "plan/layout.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------------------------- */

static uint64_t described_len(const tg_layout *l)
{
    uint64_t len = 1 + 8 + 2 + 4;
    for (size_t r = 0; r < l->recipe_n; r++) {
        len += 2 + strlen(l->recipes[r].text) + TG_STAGE_N;
    }
    for (size_t t = 0; t < l->tensor_n; t++) {
        len += 2 + strlen(l->tensors[t].name) + 1 + 1 + 2 + 1 + 8 * (uint64_t)l->tensors[t].dim_n;
    }
    return len;
}

static uint8_t *put_text(uint8_t *at, const char *text)
{
    size_t len = strlen(text);
    tg_put16(at, (uint16_t)len);
    memcpy(at + 2, text, len);
    return at + 2 + len;
}

static uint8_t *put_recipe(uint8_t *at, const tg_recipe_row *row)
{
    at = put_text(at, row->text);
    for (tg_stage stage = 0; stage < TG_STAGE_N; stage++) {
        *at++ = tg_part_id(row->recipe.part[stage]);
    }
    return at;
}

static uint8_t *put_tensor(uint8_t *at, const tg_tensor *tensor, uint16_t recipe)
{
    at = put_text(at, tensor->name);
    *at++ = (uint8_t)tensor->kind;
    *at++ = (uint8_t)tensor->dtype;
    tg_put16(at, recipe);
    at += 2;
    *at++ = (uint8_t)tensor->dim_n;
    for (uint32_t d = 0; d < tensor->dim_n; d++) {
        tg_put64(at, tensor->dims[d]);
        at += 8;
    }
    return at;
}

tg_status tg_layout_describe(tg_layout *l, tg_detail *why)
{
    uint64_t len = described_len(l);
    if (len > UINT32_MAX) {
        return tg_fail(TG_E_ARGUMENT, why, "the names and shapes of the tensors take more than 4 GiB");
    }
    TG_TRY(tg_acquire(&l->description.bytes, &l->storage.allocator, len, 1, why));
    l->description.len = (size_t)len;
    uint8_t *at = l->description.bytes;
    *at++ = l->has_seed ? 1 : 0;
    tg_put64(at, l->seed);
    tg_put16(at + 8, (uint16_t)l->recipe_n);
    at += 10;
    for (size_t r = 0; r < l->recipe_n; r++) {
        at = put_recipe(at, &l->recipes[r]);
    }
    tg_put32(at, (uint32_t)l->tensor_n);
    at += 4;
    for (size_t t = 0; t < l->tensor_n; t++) {
        at = put_tensor(at, &l->tensors[t], l->tensor_recipe[t]);
    }
    l->description.fingerprint = tg_hash(l->description.bytes, l->description.len);
    return TG_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *at;
    size_t left;
    bool is_short; /* more bytes were requested than there are; zeros were returned */
} reader;

static const uint8_t *take(reader *r, size_t len)
{
    static const uint8_t zeros[8] = {0};
    if (len > r->left) {
        r->is_short = true;
        return len <= sizeof zeros ? zeros : NULL;
    }
    const uint8_t *at = r->at;
    r->at += len;
    r->left -= len;
    return at;
}

/* Reads a length and a text of that length. `out` has cap bytes, the terminating zero included. False if the text does not fit
 * or contains a zero byte. */
static bool take_text(char *out, size_t cap, reader *r)
{
    size_t len = tg_get16(take(r, 2));
    if (len >= cap || len > r->left) {
        return false;
    }
    const uint8_t *text = take(r, len);
    memcpy(out, text, len);
    out[len] = '\0';
    return memchr(text, 0, len) == NULL;
}

/* The part with this id; NULL if this version does not know it. */
static const tg_part_row *part_by_id(tg_stage stage, uint8_t id)
{
    for (size_t i = 0; i < tg_part_n; i++) {
        if (tg_parts[i].stage == stage && tg_parts[i].id == id) {
            return &tg_parts[i];
        }
    }
    return NULL;
}

static tg_status take_recipe(tg_recipe *out, reader *r, bool has_seed, tg_detail *why)
{
    char text[TG_RECIPE_CAP];
    if (!take_text(text, sizeof text, r)) {
        return tg_fail(TG_E_FRAME, why, "the description contains an invalid recipe");
    }
    const uint8_t *ids = take(r, TG_STAGE_N);
    for (tg_stage stage = 0; stage < TG_STAGE_N && !r->is_short; stage++) {
        if (part_by_id(stage, ids[stage]) == NULL) {
            return tg_fail(TG_E_VERSION, why,
                           "recipe '%.100s' uses %s part number %u, which this version does not know", text,
                           tg_stage_name(stage), ids[stage]);
        }
    }
    tg_detail reason = {""};
    if (tg_recipe_parse(out, text, &reason) != TG_OK || tg_recipe_resolve(out, has_seed, TG_OTHER, &reason) != TG_OK) {
        return tg_fail(TG_E_FRAME, why, "%s", reason.text);
    }
    return TG_OK;
}

/* What is read before the layout is created from it. */
typedef struct draft {
    tg_recipe *recipes; /* the different ones */
    size_t recipe_n;
    tg_tensor *tensors;
    tg_recipe *tensor_recipes; /* one for each tensor */
    char *names;               /* 256 bytes each */
    uint64_t *dims;
    size_t tensor_n;
} draft;

static void draft_release(draft *d, const tg_allocator *a)
{
    tg_release(a, d->dims);
    tg_release(a, d->names);
    tg_release(a, d->tensor_recipes);
    tg_release(a, d->tensors);
    tg_release(a, d->recipes);
}

static tg_status take_tensor(draft *d, size_t t, uint64_t **dims, reader *r, tg_detail *why)
{
    tg_tensor *tensor = &d->tensors[t];
    char *name = d->names + t * 256;
    if (!take_text(name, 256, r)) {
        return tg_fail(TG_E_FRAME, why, "the description contains an invalid tensor name");
    }
    tensor->name = name;
    tensor->kind = (tg_kind)*take(r, 1);
    tensor->dtype = (tg_dtype)*take(r, 1);
    uint16_t recipe = tg_get16(take(r, 2));
    if (recipe >= d->recipe_n) {
        return tg_fail(TG_E_FRAME, why, "tensor '%.100s' has recipe number %u of %zu", name, recipe, d->recipe_n);
    }
    d->tensor_recipes[t] = d->recipes[recipe];
    tensor->dim_n = *take(r, 1);
    tensor->dims = *dims;
    if (r->is_short || tensor->dim_n > r->left / 8) {
        return tg_fail(TG_E_FRAME, why, "the description ends in the middle of tensor '%.100s'", name);
    }
    for (uint32_t i = 0; i < tensor->dim_n; i++) {
        *(*dims)++ = tg_get64(take(r, 8));
    }
    return TG_OK;
}

static tg_status take_all(draft *d, reader *r, bool has_seed, const tg_allocator *a, tg_detail *why)
{
    d->recipe_n = tg_get16(take(r, 2));
    if (d->recipe_n > r->left / (2 + TG_STAGE_N)) {
        return tg_fail(TG_E_FRAME, why, "the description is shorter than its recipes");
    }
    TG_TRY(tg_acquire(&d->recipes, a, d->recipe_n, sizeof *d->recipes, why));
    for (size_t i = 0; i < d->recipe_n; i++) {
        TG_TRY(take_recipe(&d->recipes[i], r, has_seed, why));
    }
    d->tensor_n = tg_get32(take(r, 4));
    if (r->is_short || d->tensor_n > r->left / 7) {
        return tg_fail(TG_E_FRAME, why, "the description is shorter than its tensors");
    }
    TG_TRY(tg_acquire(&d->tensors, a, d->tensor_n, sizeof *d->tensors, why));
    TG_TRY(tg_acquire(&d->tensor_recipes, a, d->tensor_n, sizeof *d->tensor_recipes, why));
    TG_TRY(tg_acquire(&d->names, a, d->tensor_n, 256, why));
    TG_TRY(tg_acquire(&d->dims, a, r->left / 8 + 1, sizeof *d->dims, why)); /* the rest cannot have more */
    uint64_t *dims = d->dims;
    for (size_t t = 0; t < d->tensor_n; t++) {
        TG_TRY(take_tensor(d, t, &dims, r, why));
    }
    return r->left == 0 ? TG_OK : tg_fail(TG_E_FRAME, why, "the description has bytes after its end");
}

tg_status tg_layout_from_description(tg_layout **out, const uint8_t *bytes, size_t len, const tg_allocator *a,
                                     tg_detail *why)
{
    reader r = {.at = bytes, .left = len};
    bool has_seed = *take(&r, 1) != 0;
    uint64_t seed = tg_get64(take(&r, 8));
    draft d = {0};
    tg_layout *l = NULL;
    tg_detail reason = {""};
    tg_status status = take_all(&d, &r, has_seed, a, &reason);
    if (status == TG_OK) {
        status = tg_layout_new(&l, d.tensors, d.tensor_n, d.tensor_recipes, has_seed, seed, a, &reason);
        status = status == TG_E_ARGUMENT ? TG_E_FRAME : status;
    }
    draft_release(&d, a);
    /* A layout has exactly one description. Writing it again finds everything that was not checked above. */
    if (status == TG_OK && (l->description.len != len || memcmp(l->description.bytes, bytes, len) != 0)) {
        status = tg_fail(TG_E_FRAME, &reason, "the description is not in canonical form");
    }
    if (status == TG_OK && tg_layout_exchange(l) != NULL) {
        status = tg_fail(TG_E_FRAME, &reason, "the description has a recipe that no frame can use");
    }
    if (status != TG_OK) {
        tg_layout_free(l);
        return tg_fail(status, why, "%s", reason.text);
    }
    *out = l;
    return TG_OK;
}
