/* PowerSGD's factors: what does not depend on the executor. See lowrank.h. */
#include "exec/lowrank.h"

#include "quantize/lowrank.h"

#include <string.h>

/* ---- creation -------------------------------------------------------------------------------------------------------- */

/* Whether tensor t is sent as two factors; sets *out. */
static bool matrix_of_tensor(tg_factorization *out, const tg_layout *l, size_t t)
{
    const tg_recipe *recipe = l->units[l->tensor_unit[t]].recipe;
    const tg_tensor *tensor = &l->tensors[t];
    const double *values = recipe->value[TG_STAGE_quantize];
    uint64_t rank = (uint64_t)values[TG_LOWRANK_RANK], n = l->tensor_elements[t];
    if (tg_recipe_quantize(recipe)->exchange == NULL || tensor->dim_n < 2 || n == 0) {
        return false;
    }
    uint64_t rows = tensor->dims[0], columns = n / rows;
    if (rank * (rows + columns) >= n) {
        return false;
    }
    /* The limit is 2^126 / sqrt(rows): no element of Q or of the average exceeds the norm of a column of M. */
    float limit = 0x1p126f;
    for (uint64_t reach = 1; reach * reach < rows; reach *= 2) {
        limit *= 0.5f;
    }
    bool has_feedback = tg_recipe_feedback(recipe)->planes > 0;
    *out = (tg_factorization){.tensor = t,
                              .rows = rows,
                              .columns = columns,
                              .rank = (uint32_t)rank,
                              .travels_in_bf16 = values[TG_LOWRANK_FACTORS] == TG_FACTORS_BF16,
                              .limit = limit,
                              .decay = has_feedback ? (float)recipe->value[TG_STAGE_feedback][0] : 0};
    return true;
}

/* Buffers begin at cache lines. */
enum { LINE = 64 };

static uint64_t padded(uint64_t len)
{
    return (len + LINE - 1) / LINE * LINE;
}

/* Floats from one factor to the next. */
static uint64_t factor_n(uint64_t elements, uint32_t rank)
{
    return padded(elements * rank * sizeof(float)) / sizeof(float);
}

static tg_status acquire_there(void *out, const tg_lowrank *l, uint64_t len, tg_detail *why)
{
    return l->executor->acquire(out, l->device, &l->allocator, len, why);
}

/* Finds the matrices, and takes memory where the executor works. */
static tg_status acquire_matrices(tg_lowrank *l, tg_detail *why)
{
    uint64_t factors = 0, copies = 0;
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        tg_factorization *m = &l->matrices[l->matrix_n];
        if (!matrix_of_tensor(m, l->context.layout, t)) {
            copies += padded(tg_lowrank_copy_len(l, t));
            continue;
        }
        l->matrix_of[t] = ++l->matrix_n;
        factors += factor_n(m->rows, m->rank) + factor_n(m->columns, m->rank);
        l->saved_n += (m->decay > 0 ? m->rows * m->columns : 0) + m->columns * m->rank;
    }
    TG_TRY(acquire_there(&l->saved, l, l->saved_n * sizeof *l->saved, why));
    TG_TRY(acquire_there(&l->factors, l, factors * sizeof *l->factors, why));
    return acquire_there(&l->copies, l, copies, why);
}

/* Sorts matrices by group. */
static tg_status acquire_order(tg_lowrank *l, tg_detail *why)
{
    size_t n = 0;
    TG_TRY(tg_acquire(&l->order, &l->allocator, l->matrix_n, sizeof *l->order, why));
    TG_TRY(tg_acquire(&l->order_first, &l->allocator, (uint64_t)l->grid->groups + 1, sizeof *l->order_first, why));
    for (uint32_t g = 0; g < l->grid->groups; g++) {
        l->order_first[g] = n;
        for (size_t i = 0; i < l->matrix_n; i++) {
            if (tg_lowrank_group(l, l->matrices[i].tensor) == g) {
                l->order[n++] = i;
            }
        }
    }
    l->order_first[l->grid->groups] = n;
    return TG_OK;
}

/* Sets all pointers into the buffers. */
static void lay_out(tg_lowrank *l)
{
    float *factor = l->factors, *saved = l->saved;
    char *copy = l->copies;
    for (size_t i = 0; i < l->matrix_n; i++) { /* residuals first */
        tg_factorization *m = &l->matrices[i];
        m->residual = m->decay > 0 ? saved : NULL;
        saved += m->decay > 0 ? m->rows * m->columns : 0;
    }
    l->residual_n = (uint64_t)(saved - l->saved);
    for (size_t i = 0; i < l->matrix_n; i++) {
        tg_factorization *m = &l->matrices[i];
        m->q = saved;
        saved += m->columns * m->rank;
        m->p = factor;
        m->q_next = factor + factor_n(m->rows, m->rank);
        factor = m->q_next + factor_n(m->columns, m->rank);
        l->second[i] = m->q_next;
    }
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        if (l->matrix_of[t] != 0) {
            l->first[t] = l->matrices[l->matrix_of[t] - 1].p;
        } else {
            l->first[t] = copy;
            copy += padded(tg_lowrank_copy_len(l, t));
        }
    }
}

enum { SOME = 1024 }; /* floats that pass at a time */

/* The factors q are random at first. */
static void draw_factors(tg_lowrank *l)
{
    float some[SOME];
    for (size_t i = 0; i < l->matrix_n; i++) {
        const tg_factorization *m = &l->matrices[i];
        uint64_t n = m->columns * m->rank;
        for (uint64_t at = 0, some_n = 0; at < n; at += some_n) {
            some_n = n - at < SOME ? n - at : SOME;
            tg_factorization_fill_random(some, l->context.layout->seed, UINT64_MAX, m->tensor, at, some_n);
            tg_lowrank_load(l, (uint64_t)(m->q - l->saved) + at, some, some_n);
        }
    }
}

tg_status tg_lowrank_new(tg_lowrank **out, const tg_layout *layout, const tg_grid *grid, tg_nonfinite nonfinite,
                         const tg_lowrank_place *place, const tg_allocator *a, tg_detail *why)
{
    tg_lowrank *l = NULL;
    size_t n = layout->tensor_n;
    if (place->executor->lowrank == NULL) {
        return tg_fail(TG_E_RECIPE, why, "'lowrank' has no passes on %s", place->executor->name);
    }
    TG_TRY(tg_acquire(&l, a, 1, sizeof *l, why));
    *out = l; /* the caller frees it, also on failure */
    l->allocator = *a;
    l->executor = place->executor;
    l->device = place->device;
    l->run = place->run;
    l->context.layout = layout;
    l->context.nonfinite = nonfinite;
    l->grid = grid;
    TG_TRY(tg_acquire(&l->matrices, a, n + 1, sizeof *l->matrices, why));
    TG_TRY(tg_acquire(&l->matrix_of, a, n, sizeof *l->matrix_of, why));
    TG_TRY(tg_acquire(&l->first, a, n, sizeof *l->first, why));
    TG_TRY(tg_acquire(&l->second, a, n, sizeof *l->second, why));
    TG_TRY(acquire_matrices(l, why));
    TG_TRY(acquire_order(l, why));
    lay_out(l);
    draw_factors(l);
    return l->executor->lowrank->open(l, why);
}

void tg_lowrank_free(tg_lowrank *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->allocator;
    l->executor->lowrank->close(l);
    tg_release(&a, l->order_first);
    tg_release(&a, l->order);
    l->executor->release(l->device, &a, l->copies);
    l->executor->release(l->device, &a, l->factors);
    l->executor->release(l->device, &a, l->saved);
    tg_release(&a, l->second);
    tg_release(&a, l->first);
    tg_release(&a, l->matrix_of);
    tg_release(&a, l->matrices);
    tg_release(&a, l);
}

size_t tg_lowrank_list(const tg_lowrank_listed *out, const tg_lowrank *l, bool first)
{
    size_t n = 0;
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        bool is_matrix = l->matrix_of[t] != 0;
        out->tensors[n] = l->context.layout->tensors[t];
        out->group_of[n] = tg_lowrank_group(l, t);
        out->in_bf16[n] = false;
        if (is_matrix) {
            const tg_factorization *m = &l->matrices[l->matrix_of[t] - 1];
            uint64_t *dims = &out->dims[2 * n];
            dims[0] = m->rank;
            dims[1] = first ? m->rows : m->columns;
            out->tensors[n].dims = dims;
            out->tensors[n].dim_n = 2;
            out->tensors[n].dtype = TG_FP32;
            out->in_bf16[n] = m->travels_in_bf16;
        }
        n += first || is_matrix ? 1 : 0;
    }
    return n;
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

/* Refuses tensors that are not given. */
static tg_status check_given(const tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    const tg_layout *layout = l->context.layout;
    for (size_t t = 0; t < layout->tensor_n; t++) {
        if (tg_lowrank_group(l, t) == group && layout->tensor_elements[t] > 0 && grads[t] == NULL) {
            return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'", layout->tensors[t].name);
        }
    }
    return TG_OK;
}

tg_status tg_lowrank_multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    TG_TRY(check_given(l, group, grads, why));
    return l->executor->lowrank->multiply(l, group, grads, why);
}

tg_status tg_lowrank_verdict(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    return l->executor->lowrank->verdict(l, group, grads, why);
}

void tg_lowrank_multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step)
{
    l->executor->lowrank->multiply_back(l, group, grads, step);
}

void tg_lowrank_average(tg_lowrank *l, uint32_t group, void *const *out)
{
    l->executor->lowrank->average(l, group, out);
}

void tg_lowrank_settle(tg_lowrank *l, void *const *grads)
{
    l->executor->lowrank->settle(l, grads);
}

/* ---- queries --------------------------------------------------------------------------------------------------------- */

void *const *tg_lowrank_first(const tg_lowrank *l)
{
    return l->first;
}

void *const *tg_lowrank_second(const tg_lowrank *l)
{
    return l->second;
}

size_t tg_lowrank_matrix(const tg_lowrank *l, size_t tensor)
{
    return l->matrix_of[tensor];
}

void tg_lowrank_residual(float *out, const tg_lowrank *l, size_t tensor)
{
    size_t n = (size_t)l->context.layout->tensor_elements[tensor];
    const float *of = l->matrix_of[tensor] == 0 ? NULL : l->matrices[l->matrix_of[tensor] - 1].residual;
    if (of == NULL) {
        memset(out, 0, n * sizeof *out);
    } else {
        tg_lowrank_save(out, l, (uint64_t)(of - l->saved), n);
    }
}

uint64_t tg_lowrank_saved_n(const tg_lowrank *l)
{
    return l->saved_n;
}

void tg_lowrank_save(float *out, const tg_lowrank *l, uint64_t at, uint64_t n)
{
    const uint8_t *there = NULL;
    size_t len = (size_t)n * sizeof *out;
    tg_status status = l->executor->fetch(&there, out, l->device, NULL, (const uint8_t *)(l->saved + at), len, NULL);
    if (status == TG_OK && n > 0 && (const void *)there != (const void *)out) {
        memcpy(out, there, len);
    } /* a device that has failed stays failed, and says so in the next step */
}

void tg_lowrank_load(tg_lowrank *l, uint64_t at, const float *values, uint64_t n)
{
    if (n > 0) {
        l->executor->store(l->device, (uint8_t *)(l->saved + at), values, (size_t)n * sizeof *values);
    }
}
