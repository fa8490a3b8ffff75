/* PowerSGD's passes on the host: threads over portions of matrices. factorization.c does the arithmetic. */
#include "exec/host.h"
#include "exec/lowrank.h"

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

/* What the passes keep. */
typedef struct passes {
    portions by_rows, by_columns;
    tg_pool *pool;      /* of the run that was given */
    float *scratch;     /* for every thread of the pool */
    uint64_t scratch_n; /* for one of them */
} passes;

/* ---- creation -------------------------------------------------------------------------------------------------------- */

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

static tg_status open(tg_lowrank *l, tg_detail *why)
{
    passes *own = NULL;
    TG_TRY(tg_acquire(&own, &l->allocator, 1, sizeof *own, why));
    l->own = own;
    own->pool = l->run->work->pool;
    if (l->residual_n > 0) {
        memset(l->saved, 0, l->residual_n * sizeof *l->saved);
    }
    for (size_t i = 0; i < l->matrix_n; i++) {
        uint64_t scratch_n = tg_factorization_scratch(&l->matrices[i]);
        own->scratch_n = scratch_n > own->scratch_n ? scratch_n : own->scratch_n;
    }
    TG_TRY(tg_acquire(&own->scratch, &l->allocator, own->scratch_n * tg_pool_workers(own->pool), sizeof *own->scratch,
                      why));
    TG_TRY(acquire_portions(&own->by_rows, l, true, why));
    return acquire_portions(&own->by_columns, l, false, why);
}

static void close(tg_lowrank *l)
{
    const passes *own = l->own;
    if (own == NULL) {
        return;
    }
    tg_release(&l->allocator, own->by_columns.of);
    tg_release(&l->allocator, own->by_columns.first);
    tg_release(&l->allocator, own->by_rows.of);
    tg_release(&l->allocator, own->by_rows.first);
    tg_release(&l->allocator, own->scratch);
    tg_release(&l->allocator, l->own);
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

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
    const passes *own = p->l->own;
    return own->scratch + worker * own->scratch_n;
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
    const portion *of = &p->of[job];
    tg_factorization_settle(&p->l->context, of->matrix, p->grads, scratch_of(p, worker), of->from, of->to);
}

/* Copies what travels as it is. */
static void copy_group(const tg_lowrank *l, uint32_t group, void *const *grads)
{
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        if (tg_lowrank_group(l, t) == group && tg_lowrank_copy_len(l, t) > 0) {
            memcpy(l->first[t], grads[t], tg_lowrank_copy_len(l, t));
        }
    }
}

/* A pass over the matrices of a group, in portions. */
static pass pass_of(tg_lowrank *l, uint32_t group, void *const *grads, const portions *cut)
{
    return (pass){.l = l, .grads = grads, .of = cut->of + cut->first[group], .order = l->order + l->order_first[group]};
}

static tg_status multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    const passes *own = l->own;
    size_t n = own->by_rows.first[group + 1] - own->by_rows.first[group];
    pass p = pass_of(l, group, grads, &own->by_rows);
    copy_group(l, group, grads);
    tg_pool_run(own->pool, l->order_first[group + 1] - l->order_first[group], begin_matrix, &p);
    tg_pool_run(own->pool, n, multiply_rows, &p);
    for (size_t i = 0; i < n; i++) {
        const portion *of = &p.of[i];
        of->matrix->is_extreme |= of->is_extreme;
        if (of->is_extreme && l->context.nonfinite == TG_NONFINITE_ERROR) {
            return tg_factorization_refuse(&l->context, of->matrix, grads, own->scratch, why);
        }
    }
    return TG_OK;
}

static tg_status verdict(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    (void)l; /* multiply has refused them */
    (void)group;
    (void)grads;
    (void)why;
    return TG_OK;
}

static void multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step)
{
    const passes *own = l->own;
    pass p = pass_of(l, group, grads, &own->by_columns);
    p.step = step;
    tg_pool_run(own->pool, l->order_first[group + 1] - l->order_first[group], orthonormalise_matrix, &p);
    tg_pool_run(own->pool, own->by_columns.first[group + 1] - own->by_columns.first[group], multiply_columns, &p);
}

/* The averages of a tensor that travels as it is. */
static void copy_average(const tg_lowrank *l, size_t t, void *const *out)
{
    if (tg_lowrank_copy_len(l, t) > 0) {
        memcpy(out[t], l->first[t], tg_lowrank_copy_len(l, t));
    }
}

static void average(tg_lowrank *l, uint32_t group, void *const *out)
{
    const passes *own = l->own;
    pass p = pass_of(l, group, out, &own->by_rows);
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        if (tg_lowrank_group(l, t) == group) {
            copy_average(l, t, out);
        }
    }
    tg_pool_run(own->pool, own->by_rows.first[group + 1] - own->by_rows.first[group], average_rows, &p);
}

static void settle(tg_lowrank *l, void *const *grads)
{
    const passes *own = l->own;
    pass p = {.l = l, .grads = grads, .of = own->by_rows.of};
    for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
        copy_average(l, t, grads);
    }
    tg_pool_run(own->pool, l->matrix_n, end_matrix, &p);
    tg_pool_run(own->pool, own->by_rows.n, settle_rows, &p);
}

const tg_lowrank_passes tg_host_lowrank = {
    .open = open,
    .close = close,
    .multiply = multiply,
    .verdict = verdict,
    .multiply_back = multiply_back,
    .average = average,
    .settle = settle,
};
