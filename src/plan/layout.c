/* Builds the layout: copies the tensors, numbers the different recipes, forms the units. */
#include "plan/layout.h"

#include <string.h>

const char *tg_dtype_name(tg_dtype dtype)
{
    static const char *const names[] = {"fp32", "fp16", "bf16"};
    return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : NULL;
}

size_t tg_dtype_len(tg_dtype dtype)
{
    static const size_t lens[] = {4, 2, 2};
    return (unsigned)dtype < sizeof lens / sizeof *lens ? lens[dtype] : 0;
}

const char *tg_kind_name(tg_kind kind)
{
    static const char *const names[] = {"other", "conv", "dense", "recurrent", "embedding", "norm", "bias"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

tg_status tg_tensor_elements(uint64_t *out, const tg_tensor *tensor, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(tensor, why);
    if (tensor->name == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "a tensor has no name");
    }
    if (tensor->dim_n > 64 || (tensor->dim_n > 0 && tensor->dims == NULL)) {
        return tg_fail(TG_E_ARGUMENT, why, "tensor '%.100s' has %u dimensions; at most 64 are allowed", tensor->name,
                       tensor->dim_n);
    }
    uint64_t n = 1;
    for (uint32_t d = 0; d < tensor->dim_n; d++) {
        n = tensor->dims[d] == 0 ? 0 : n;
    }
    for (uint32_t d = 0; d < tensor->dim_n && n != 0; d++) {
        if (!tg_multiply(&n, n, tensor->dims[d]) || n > TG_ELEMENT_MAX) {
            return tg_fail(TG_E_ARGUMENT, why, "tensor '%.100s' has more than 2^60 elements", tensor->name);
        }
    }
    *out = n;
    return TG_OK;
}

static tg_status check_tensor(const tg_tensor *tensor, tg_detail *why)
{
    size_t name_len = strlen(tensor->name);
    if (name_len < 1 || name_len > 255) {
        return tg_fail(TG_E_ARGUMENT, why, "the tensor name '%.60s...' has %zu bytes; 1 to 255 are allowed",
                       tensor->name, name_len);
    }
    if (tg_kind_name(tensor->kind) == NULL || tg_dtype_name(tensor->dtype) == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "tensor '%.100s' has an unknown kind or dtype", tensor->name);
    }
    return TG_OK;
}

/* Checks that no two tensors have the same name. A hash table with linear probing keeps this linear in the number of
 * tensors. */
static tg_status check_names(const tg_layout *l, tg_detail *why)
{
    uint32_t *table = NULL;
    uint64_t cap = 16;
    while (cap < 2 * (uint64_t)l->tensor_n) {
        cap *= 2;
    }
    TG_TRY(tg_acquire(&table, &l->storage.allocator, cap, sizeof *table, why));
    tg_status status = TG_OK;
    for (size_t t = 0; t < l->tensor_n && status == TG_OK; t++) {
        uint64_t slot = 14695981039346656037u; /* FNV-1a; any hash would do */
        for (const char *c = l->tensors[t].name; *c != '\0'; c++) {
            slot = (slot ^ (uint8_t)*c) * 1099511628211u;
        }
        for (slot &= cap - 1; table[slot] != 0; slot = (slot + 1) & (cap - 1)) {
            if (strcmp(l->tensors[table[slot] - 1].name, l->tensors[t].name) == 0) {
                status = tg_fail(TG_E_ARGUMENT, why, "two tensors are called '%.100s'", l->tensors[t].name);
                break;
            }
        }
        table[slot] = (uint32_t)(t + 1);
    }
    tg_release(&l->storage.allocator, table);
    return status;
}

static tg_status copy_tensors(tg_layout *l, const tg_tensor *tensors, tg_detail *why)
{
    uint64_t names_len = 0, dim_n = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        uint64_t n = 0;
        TG_TRY(tg_tensor_elements(&n, &tensors[t], why));
        TG_TRY(check_tensor(&tensors[t], why));
        l->tensor_elements[t] = n;
        l->element_n += n;
        if (l->element_n > TG_ELEMENT_MAX) {
            return tg_fail(TG_E_ARGUMENT, why, "the tensors have more than 2^60 elements together");
        }
        names_len += strlen(tensors[t].name) + 1;
        dim_n += tensors[t].dim_n;
    }
    TG_TRY(tg_acquire(&l->storage.names, &l->storage.allocator, names_len, 1, why));
    TG_TRY(tg_acquire(&l->storage.dims, &l->storage.allocator, dim_n, sizeof *l->storage.dims, why));
    char *name = l->storage.names;
    uint64_t *dims = l->storage.dims;
    for (size_t t = 0; t < l->tensor_n; t++) {
        l->tensors[t] = tensors[t];
        size_t len = strlen(tensors[t].name) + 1;
        l->tensors[t].name = memcpy(name, tensors[t].name, len);
        name += len;
        l->tensors[t].dims = dims;
        for (uint32_t d = 0; d < tensors[t].dim_n; d++) {
            *dims++ = tensors[t].dims[d];
        }
    }
    return check_names(l, why);
}

static tg_status number_recipes(tg_layout *l, const tg_recipe *recipes, tg_detail *why)
{
    for (size_t t = 0; t < l->tensor_n; t++) {
        char text[TG_RECIPE_CAP];
        tg_recipe_write(text, &recipes[t]);
        size_t r = 0;
        while (r < l->recipe_n && strcmp(l->recipes[r].text, text) != 0) {
            r++;
        }
        if (r == TG_RECIPE_MAX) {
            return tg_fail(TG_E_ARGUMENT, why, "more than %d different recipes in one model", TG_RECIPE_MAX);
        }
        if (r == l->recipe_n) {
            l->recipes[r].recipe = recipes[t];
            memcpy(l->recipes[r].text, text, sizeof text);
            l->recipe_n++;
        }
        l->tensor_recipe[t] = (uint16_t)r;
    }
    return TG_OK;
}

static void form_units(tg_layout *l)
{
    bool opened[TG_RECIPE_MAX] = {false};
    tg_piece *piece = l->storage.pieces;
    uint64_t at = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        const tg_recipe *recipe = &l->recipes[l->tensor_recipe[t]].recipe;
        bool spans_model = tg_recipe_spans_model(recipe);
        if (spans_model && opened[l->tensor_recipe[t]]) {
            continue; /* it is part of the unit of an earlier tensor */
        }
        opened[l->tensor_recipe[t]] = true;
        tg_unit *unit = &l->units[l->unit_n];
        *unit = (tg_unit){.recipe = recipe, .pieces = piece, .at = at};
        for (size_t j = t; j < l->tensor_n && (j == t || spans_model); j++) {
            if (l->tensor_recipe[j] == l->tensor_recipe[t]) {
                *piece++ = (tg_piece){.tensor = j, .at = unit->n, .n = l->tensor_elements[j]};
                unit->n += l->tensor_elements[j];
                unit->piece_n++;
                l->tensor_unit[j] = (uint32_t)l->unit_n;
            }
        }
        at += unit->n;
        l->unit_n++;
    }
}

static tg_status fill(tg_layout *l, const tg_tensor *tensors, size_t tensor_n, const tg_recipe *recipes, tg_detail *why)
{
    if (tensor_n > 0 && tensors == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no tensors are given");
    }
    if (tensor_n > UINT32_MAX / 2) {
        return tg_fail(TG_E_ARGUMENT, why, "%zu tensors are too many", tensor_n);
    }
    const tg_allocator *a = &l->storage.allocator;
    l->tensor_n = tensor_n;
    TG_TRY(tg_acquire(&l->tensors, a, tensor_n, sizeof *l->tensors, why));
    TG_TRY(tg_acquire(&l->tensor_elements, a, tensor_n, sizeof *l->tensor_elements, why));
    TG_TRY(tg_acquire(&l->tensor_unit, a, tensor_n, sizeof *l->tensor_unit, why));
    TG_TRY(tg_acquire(&l->tensor_recipe, a, tensor_n, sizeof *l->tensor_recipe, why));
    TG_TRY(tg_acquire(&l->recipes, a, tensor_n < TG_RECIPE_MAX ? tensor_n : TG_RECIPE_MAX, sizeof *l->recipes, why));
    TG_TRY(tg_acquire(&l->units, a, tensor_n, sizeof *l->units, why));
    TG_TRY(tg_acquire(&l->storage.pieces, a, tensor_n, sizeof *l->storage.pieces, why));
    TG_TRY(copy_tensors(l, tensors, why));
    TG_TRY(number_recipes(l, recipes, why));
    form_units(l);
    return tg_layout_describe(l, why);
}

tg_status tg_layout_new(tg_layout **out, const tg_tensor *tensors, size_t tensor_n, const tg_recipe *recipes,
                        bool has_seed, uint64_t seed, const tg_allocator *a, tg_detail *why)
{
    tg_layout *l = NULL;
    TG_TRY(tg_acquire(&l, a, 1, sizeof *l, why));
    l->storage.allocator = *a;
    l->has_seed = has_seed;
    l->seed = has_seed ? seed : 0;
    tg_status status = fill(l, tensors, tensor_n, recipes, why);
    if (status != TG_OK) {
        tg_layout_free(l);
        return status;
    }
    *out = l;
    return TG_OK;
}

void tg_layout_free(tg_layout *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->storage.allocator;
    tg_release(&a, l->description.bytes);
    tg_release(&a, l->storage.dims);
    tg_release(&a, l->storage.names);
    tg_release(&a, l->storage.pieces);
    tg_release(&a, l->units);
    tg_release(&a, l->recipes);
    tg_release(&a, l->tensor_recipe);
    tg_release(&a, l->tensor_unit);
    tg_release(&a, l->tensor_elements);
    tg_release(&a, l->tensors);
    tg_release(&a, l);
}

const tg_piece *tg_unit_piece(const tg_unit *unit, uint64_t at)
{
    size_t low = 0, high = unit->piece_n - 1; /* the piece is one of [low, high] */
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (unit->pieces[middle].at <= at) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &unit->pieces[low];
}

const tg_piece *tg_unit_piece_of(const tg_unit *unit, size_t tensor)
{
    const tg_piece *piece = unit->pieces;
    while (piece->tensor != tensor) {
        piece++;
    }
    return piece;
}

const char *tg_layout_exchange(const tg_layout *l)
{
    for (size_t u = 0; u < l->unit_n; u++) {
        const tg_recipe *recipe = l->units[u].recipe;
        if (tg_recipe_quantize(recipe)->exchange != NULL) {
            return tg_recipe_quantize(recipe)->exchange(recipe->value[TG_STAGE_quantize]);
        }
    }
    return NULL;
}
