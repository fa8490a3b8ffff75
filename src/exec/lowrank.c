/* PowerSGD's factors on the host. exchange/lowrank.c describes the algorithm, factorization.c does the arithmetic. */
#include "exec/lowrank.h"

#include "exec/factorization.h"
#include "exec/host.h"

#include <string.h>

/* Some rows, or some columns, of a matrix: what one thread does at a time. */
typedef struct portion {
    tg_factorization *matrix;
    uint64_t from, to;
    bool is_extreme; /* of rows that were multiplied */
} portion;

typedef struct portions {
    portion *of;
    size_t n;
    size_t *first; /* of each group, and one more */
} portions;

struct tg_lowrank {
    tg_allocator allocator;
    tg_factorization_context context;
    const tg_grid *grid; /* for its groups */
    tg_factorization *matrices;
    size_t matrix_n;
    size_t *order;       /* the matrices' numbers in the order of groups ... */
    size_t *order_first; /* ... and where those of each begin, and one more */
    portions by_rows, by_columns;
    tg_pool *pool;          /* of the run that was given */
    float *scratch;         /* for every thread of the pool */
    uint64_t scratch_n;     /* for one of them */
    size_t *matrix_of;      /* of each tensor: the number of its matrix, plus 1; 0: the tensor is sent dense */
    void **first, **second; /* the buffers that the two all-reduces average */
    float *saved;           /* residuals, then the factors q */
    uint64_t saved_n;
    float *factors; /* buffer of all p and q_next */
    char *copies;   /* buffer of the tensors that are sent dense */
};

/* ---- creation -------------------------------------------------------------------------------------------------------- */

/* Whether tensor t is sent as two factors; sets *out. */
static bool matrix_of_tensor(tg_factorization *out, const tg_layout *l, size_t t)
{
    const tg_recipe *recipe = l->units[l->tensor_unit[t]].recipe;
    const tg_tensor *tensor = &l->tensors[t];
    uint64_t rank = (uint64_t)recipe->value[TG_STAGE_quantize][0], n = l->tensor_elements[t];
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
                              .limit = limit,
                              .decay = has_feedback ? (float)recipe->value[TG_STAGE_feedback][0] : 0};
    return true;
}

static tg_status acquire_matrices(tg_lowrank *l, tg_detail *why)
{
    const tg_allocator *a = &l->allocator;
    uint64_t factors = 0, copies = 0;
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        tg_factorization *m = &l->matrices[l->matrix_n];
        if (!matrix_of_tensor(m, l->context.layout, t)) {
            copies += l->context.layout->tensor_elements[t] * tg_dtype_len(l->context.layout->tensors[t].dtype);
            continue;
        }
        l->matrix_of[t] = ++l->matrix_n;
        factors += (m->rows + m->columns) * m->rank;
        l->saved_n += (m->decay > 0 ? m->rows * m->columns : 0) + m->columns * m->rank;
        uint64_t scratch_n = tg_factorization_scratch(m);
        l->scratch_n = scratch_n > l->scratch_n ? scratch_n : l->scratch_n;
    }
    TG_TRY(tg_acquire(&l->saved, a, l->saved_n, sizeof *l->saved, why));
    TG_TRY(tg_acquire(&l->factors, a, factors, sizeof *l->factors, why));
    TG_TRY(tg_acquire(&l->scratch, a, l->scratch_n * tg_pool_workers(l->pool), sizeof *l->scratch, why));
    return tg_acquire_room(&l->copies, a, copies, why);
}

static uint32_t group_of(const tg_lowrank *l, size_t tensor)
{
    return l->grid->group_of[l->context.layout->tensor_unit[tensor]];
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
            if (group_of(l, l->matrices[i].tensor) == g) {
                l->order[n++] = i;
            }
        }
    }
    l->order_first[l->grid->groups] = n;
    return TG_OK;
}

/* Cuts all matrices into portions, group by group. The first call, with no space for them, counts. */
static void cut_matrices(portions *out, const tg_lowrank *l, bool by_rows)
{
    enum { ABOUT = 1 << 17, ROWS = 64 }; /* elements of a portion; rows that it is a multiple of */
    bool counts = out->of == NULL;
    uint32_t group = 0;
    out->n = 0;
    for (size_t i = 0; i < l->matrix_n; i++) {
        for (; i == l->order_first[group]; group++) {
            out->first[group] = out->n;
        }
        tg_factorization *m = &l->matrices[l->order[i]];
        uint64_t n = by_rows ? m->rows : m->columns;
        uint64_t step = by_rows ? (ABOUT / m->columns / ROWS + 1) * ROWS : tg_factorization_width(m);
        for (uint64_t from = 0; from < n; from += step, out->n++) {
            if (!counts) {
                out->of[out->n] = (portion){.matrix = m, .from = from, .to = n - from < step ? n : from + step};
            }
        }
    }
    for (; group <= l->grid->groups; group++) {
        out->first[group] = out->n;
    }
}

static tg_status acquire_portions(portions *out, const tg_lowrank *l, bool by_rows, tg_detail *why)
{
    TG_TRY(tg_acquire(&out->first, &l->allocator, (uint64_t)l->grid->groups + 1, sizeof *out->first, why));
    cut_matrices(out, l, by_rows);
    TG_TRY(tg_acquire(&out->of, &l->allocator, out->n, sizeof *out->of, why));
    cut_matrices(out, l, by_rows);
    return TG_OK;
}

/* Sets all pointers into the buffers, and the first factors. */
static void lay_out(tg_lowrank *l)
{
    float *factor = l->factors, *saved = l->saved;
    char *copy = l->copies;
    for (size_t i = 0; i < l->matrix_n; i++) { /* residuals first */
        tg_factorization *m = &l->matrices[i];
        m->residual = m->decay > 0 ? saved : NULL;
        saved += m->decay > 0 ? m->rows * m->columns : 0;
    }
    for (size_t i = 0; i < l->matrix_n; i++) {
        tg_factorization *m = &l->matrices[i];
        m->q = saved;
        saved += m->columns * m->rank;
        m->p = factor;
        m->q_next = factor + m->rows * m->rank;
        factor = m->q_next + m->columns * m->rank;
        tg_factorization_fill_random(m->q, l->context.layout->seed, UINT64_MAX, m->tensor, 0, m->columns * m->rank);
        l->second[i] = m->q_next;
    }
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        if (l->matrix_of[t] != 0) {
            l->first[t] = l->matrices[l->matrix_of[t] - 1].p;
        } else {
            l->first[t] = copy;
            copy += l->context.layout->tensor_elements[t] * tg_dtype_len(l->context.layout->tensors[t].dtype);
        }
    }
}

tg_status tg_lowrank_new(tg_lowrank **out, const tg_layout *layout, const tg_grid *grid, tg_nonfinite nonfinite,
                         const tg_run *run, const tg_allocator *a, tg_detail *why)
{
    tg_lowrank *l = NULL;
    size_t n = layout->tensor_n;
    TG_TRY(tg_acquire(&l, a, 1, sizeof *l, why));
    *out = l; /* the caller frees it, also on failure */
    l->allocator = *a;
    l->context.layout = layout;
    l->context.nonfinite = nonfinite;
    l->grid = grid;
    l->pool = run->work->pool;
    TG_TRY(tg_acquire(&l->matrices, a, n + 1, sizeof *l->matrices, why));
    TG_TRY(tg_acquire(&l->matrix_of, a, n, sizeof *l->matrix_of, why));
    TG_TRY(tg_acquire(&l->first, a, n, sizeof *l->first, why));
    TG_TRY(tg_acquire(&l->second, a, n, sizeof *l->second, why));
    TG_TRY(acquire_matrices(l, why));
    TG_TRY(acquire_order(l, why));
    TG_TRY(acquire_portions(&l->by_rows, l, true, why));
    TG_TRY(acquire_portions(&l->by_columns, l, false, why));
    lay_out(l);
    return TG_OK;
}

void tg_lowrank_free(tg_lowrank *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->allocator;
    tg_release(&a, l->by_columns.of);
    tg_release(&a, l->by_columns.first);
    tg_release(&a, l->by_rows.of);
    tg_release(&a, l->by_rows.first);
    tg_release(&a, l->order_first);
    tg_release(&a, l->order);
    tg_release(&a, l->copies);
    tg_release(&a, l->scratch);
    tg_release(&a, l->factors);
    tg_release(&a, l->saved);
    tg_release(&a, l->second);
    tg_release(&a, l->first);
    tg_release(&a, l->matrix_of);
    tg_release(&a, l->matrices);
    tg_release(&a, l);
}

size_t tg_lowrank_list(tg_tensor *tensors, uint64_t *dims, uint32_t *groups, const tg_lowrank *l, bool first)
{
    size_t n = 0;
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        bool is_matrix = l->matrix_of[t] != 0;
        tensors[n] = l->context.layout->tensors[t];
        groups[n] = group_of(l, t);
        if (is_matrix) {
            const tg_factorization *m = &l->matrices[l->matrix_of[t] - 1];
            dims[2 * n] = m->rank;
            dims[2 * n + 1] = first ? m->rows : m->columns;
            tensors[n].dims = &dims[2 * n];
            tensors[n].dim_n = 2;
            tensors[n].dtype = TG_FP32;
        }
        n += first || is_matrix ? 1 : 0;
    }
    return n;
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

static size_t copy_len(const tg_lowrank *l, size_t t)
{
    return (size_t)l->context.layout->tensor_elements[t] * tg_dtype_len(l->context.layout->tensors[t].dtype);
}

/* What jobs need. */
typedef struct pass {
    tg_lowrank *l;
    void *const *grads;
    uint64_t step;
    portion *of;         /* that are worked on */
    const size_t *order; /* of the matrices that are worked on */
} pass;

static float *scratch_of(const pass *p, uint32_t worker)
{
    return p->l->scratch + worker * p->l->scratch_n;
}

static void begin_matrix(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    (void)worker;
    tg_factorization_begin(&p->l->matrices[p->order[job]]);
}

static void multiply_rows(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    portion *of = &p->of[job];
    of->is_extreme =
        tg_factorization_multiply(&p->l->context, of->matrix, p->grads, scratch_of(p, worker), of->from, of->to);
}

static void orthonormalise_matrix(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    (void)worker;
    tg_factorization_orthonormalise(&p->l->context, &p->l->matrices[p->order[job]], p->step);
}

static void multiply_columns(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    const portion *of = &p->of[job];
    tg_factorization_multiply_back(&p->l->context, of->matrix, p->grads, scratch_of(p, worker), of->from, of->to);
}

static void end_matrix(void *context, uint32_t worker, size_t job)
{
    (void)worker;
    tg_factorization_end(&((const pass *)context)->l->matrices[job]);
}

static void average_rows(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    const portion *of = &p->of[job];
    tg_factorization_average(&p->l->context, of->matrix, p->grads, scratch_of(p, worker), of->from, of->to);
}

static void settle_rows(void *context, uint32_t worker, size_t job)
{
    const pass *p = context;
    const portion *of = &p->l->by_rows.of[job];
    tg_factorization_settle(&p->l->context, of->matrix, p->grads, scratch_of(p, worker), of->from, of->to);
}

/* Copies what travels as it is, and refuses tensors that are not given. */
static tg_status copy_group(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        if (group_of(l, t) != group || copy_len(l, t) == 0) {
            continue;
        }
        if (grads[t] == NULL) {
            return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'",
                           l->context.layout->tensors[t].name);
        }
        if (l->matrix_of[t] == 0) {
            memcpy(l->first[t], grads[t], copy_len(l, t));
        }
    }
    return TG_OK;
}

tg_status tg_lowrank_multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    size_t first = l->by_rows.first[group], n = l->by_rows.first[group + 1] - first;
    pass p = {.l = l, .grads = grads, .of = l->by_rows.of + first, .order = l->order + l->order_first[group]};
    TG_TRY(copy_group(l, group, grads, why));
    tg_pool_run(l->pool, l->order_first[group + 1] - l->order_first[group], begin_matrix, &p);
    tg_pool_run(l->pool, n, multiply_rows, &p);
    for (size_t i = 0; i < n; i++) {
        const portion *of = &p.of[i];
        of->matrix->is_extreme |= of->is_extreme;
        if (of->is_extreme && l->context.nonfinite == TG_NONFINITE_ERROR) {
            return tg_factorization_refuse(&l->context, of->matrix, grads, l->scratch, why);
        }
    }
    return TG_OK;
}

void tg_lowrank_multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step)
{
    size_t first = l->by_columns.first[group], n = l->by_columns.first[group + 1] - first;
    pass p = {.l = l,
              .grads = grads,
              .step = step,
              .of = l->by_columns.of + first,
              .order = l->order + l->order_first[group]};
    tg_pool_run(l->pool, l->order_first[group + 1] - l->order_first[group], orthonormalise_matrix, &p);
    tg_pool_run(l->pool, n, multiply_columns, &p);
}

/* The averages of a tensor that travels as it is. */
static void copy_average(const tg_lowrank *l, size_t t, void *const *out)
{
    if (l->matrix_of[t] == 0 && copy_len(l, t) > 0) {
        memcpy(out[t], l->first[t], copy_len(l, t));
    }
}

void tg_lowrank_average(tg_lowrank *l, uint32_t group, void *const *out)
{
    size_t first = l->by_rows.first[group], n = l->by_rows.first[group + 1] - first;
    pass p = {.l = l, .grads = out, .of = l->by_rows.of + first};
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        if (group_of(l, t) == group) {
            copy_average(l, t, out);
        }
    }
    tg_pool_run(l->pool, n, average_rows, &p);
}

void tg_lowrank_settle(tg_lowrank *l, void *const *grads)
{
    pass p = {.l = l, .grads = grads};
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        copy_average(l, t, grads);
    }
    tg_pool_run(l->pool, l->matrix_n, end_matrix, &p);
    tg_pool_run(l->pool, l->by_rows.n, settle_rows, &p);
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
        memcpy(out, of, n * sizeof *out);
    }
}

float *tg_lowrank_saved(const tg_lowrank *l, uint64_t *n)
{
    *n = l->saved_n;
    return l->saved;
}
