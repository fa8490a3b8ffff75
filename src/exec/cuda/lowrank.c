/* PowerSGD's passes on a GPU: tables of tiles are made once, and a pass is a few launches for all matrices of a group. Nobody waits but
 * for the verdict on gradients, and that together with the frames of P. */
#include "exec/lowrank.h"

#include "exec/cuda/factors.h"
#include "exec/cuda/run.h"

#include <string.h>

/* What the tiles of a table cover. */
typedef enum cut { WHOLE, ROWS, ADD_ROWS, COLUMNS, ADD_COLUMNS, SETTLE, CUTS } cut;

/* Those of a group begin at first[group]. */
typedef struct table {
    void *entries; /* device */
    size_t *first;
} table;

typedef struct passes {
    const tg_gpu *gpu;
    tg_gpu_matrix *matrices; /* device */
    table cuts[CUTS], copies;
    float *sums;                    /* device: scratch of all matrices */
    double *dots;                   /* likewise */
    uint64_t *beyond, *beyond_here; /* on the device, and where it is downloaded to */
} passes;

/* ---- tables ------------------------------------------------------------------------------------------------------------ */

typedef struct extent {
    uint64_t rows, columns;
} extent;

/* What is cut: M, or elements of a factor, column after column. */
static extent extent_of(const tg_factorization *m, cut kind)
{
    switch (kind) {
    case ADD_ROWS: return (extent){m->rows * m->rank, 1};
    case ADD_COLUMNS: return (extent){1, m->columns * m->rank};
    default: return (extent){m->rows, m->columns};
    }
}

/* From tile to tile; a step of 0 is all. False: there are none. */
static bool steps_of(extent *out, const tg_factorization *m, cut kind)
{
    enum { TILE_ROWS = TG_GPU_FACTOR_ROWS * TG_GPU_FACTOR_LEAVES };
    static const extent all[CUTS] = {[ROWS] = {TG_GPU_FACTOR_ROWS, TG_GPU_FACTOR_LEAF},
                                     [ADD_ROWS] = {TG_GPU_FACTOR_THREADS, 0},
                                     [COLUMNS] = {TILE_ROWS, TG_GPU_FACTOR_COLUMNS},
                                     [ADD_COLUMNS] = {0, TG_GPU_FACTOR_THREADS},
                                     [SETTLE] = {TG_GPU_FACTOR_SETTLE, TG_GPU_FACTOR_COLUMNS}};
    extent whole = extent_of(m, kind);
    out->rows = all[kind].rows != 0 ? all[kind].rows : whole.rows;
    out->columns = all[kind].columns != 0 ? all[kind].columns : whole.columns;
    return !(kind == ADD_ROWS && m->columns <= TG_GPU_FACTOR_LEAF) && !(kind == ADD_COLUMNS && m->rows <= TILE_ROWS);
}

/* Cuts a matrix, in the order of memory; `out` may be NULL, to count its tiles. */
static size_t cut_matrix(tg_gpu_factor_tile *out, const tg_factorization *m, uint32_t number, cut kind)
{
    size_t n = 0;
    extent by, whole = extent_of(m, kind);
    bool any = steps_of(&by, m, kind);
    for (uint64_t row = 0; any && row < whole.rows; row += by.rows) {
        for (uint64_t column = 0; column < whole.columns; column += by.columns, n++) {
            if (out != NULL) {
                out[n] = (tg_gpu_factor_tile){.row = row, .column = column, .matrix = number};
            }
        }
    }
    return n;
}

/* The tiles of all matrices, group by group. */
static size_t cut_all(tg_gpu_factor_tile *out, size_t *first, const tg_lowrank *l, cut kind)
{
    size_t n = 0;
    for (uint32_t g = 0; g < l->grid->groups; g++) {
        first[g] = n;
        for (size_t i = l->order_first[g]; i < l->order_first[g + 1]; i++) {
            n += cut_matrix(out != NULL ? out + n : NULL, &l->matrices[l->order[i]], (uint32_t)l->order[i], kind);
        }
    }
    first[l->grid->groups] = n;
    return n;
}

/* Tensors that are sent as they are, group by group. */
static size_t cut_copies(tg_gpu_factor_copy *out, size_t *first, const tg_lowrank *l)
{
    size_t n = 0;
    for (uint32_t g = 0; g < l->grid->groups; g++) {
        first[g] = n;
        for (size_t t = 0; t < l->context.layout->tensor_n; t++) {
            uint64_t len = tg_lowrank_group(l, t) == g ? tg_lowrank_copy_len(l, t) : 0;
            for (uint64_t at = 0; at < len; at += TG_GPU_FACTOR_COPY, n++) {
                if (out != NULL) {
                    out[n] = (tg_gpu_factor_copy){
                        .to = (uint8_t *)l->first[t] + at,
                        .at = at,
                        .tensor = (uint32_t)t,
                        .len = (uint32_t)(len - at < TG_GPU_FACTOR_COPY ? len - at : TG_GPU_FACTOR_COPY)};
                }
            }
        }
    }
    first[l->grid->groups] = n;
    return n;
}

/* Copies what was made on the host to the device. */
static tg_status upload(void *out, const tg_gpu *gpu, const void *from, uint64_t len, tg_detail *why)
{
    void *block = NULL;
    TG_TRY(tg_gpu_acquire(&block, gpu, len, why));
    memcpy(out, &block, sizeof block);
    tg_gpu_copy(gpu, block, from, len);
    return tg_gpu_wait(gpu, why);
}

static tg_status open_cut(table *out, const tg_lowrank *l, cut kind, tg_detail *why)
{
    const passes *own = l->own;
    tg_gpu_factor_tile *tiles = NULL;
    TG_TRY(tg_acquire(&out->first, &l->allocator, (uint64_t)l->grid->groups + 1, sizeof *out->first, why));
    size_t n = cut_all(NULL, out->first, l, kind);
    TG_TRY(tg_acquire(&tiles, &l->allocator, n, sizeof *tiles, why));
    (void)cut_all(tiles, out->first, l, kind);
    tg_status status = upload(&out->entries, own->gpu, tiles, n * sizeof *tiles, why);
    tg_release(&l->allocator, tiles);
    return status;
}

static tg_status open_copies(table *out, const tg_lowrank *l, tg_detail *why)
{
    const passes *own = l->own;
    tg_gpu_factor_copy *copies = NULL;
    TG_TRY(tg_acquire(&out->first, &l->allocator, (uint64_t)l->grid->groups + 1, sizeof *out->first, why));
    size_t n = cut_copies(NULL, out->first, l);
    TG_TRY(tg_acquire(&copies, &l->allocator, n, sizeof *copies, why));
    (void)cut_copies(copies, out->first, l);
    tg_status status = upload(&out->entries, own->gpu, copies, n * sizeof *copies, why);
    tg_release(&l->allocator, copies);
    return status;
}

/* ---- matrices ---------------------------------------------------------------------------------------------------------- */

static uint64_t parts_of(uint64_t n, uint64_t part)
{
    return (n + part - 1) / part;
}

/* Numbers of scratch of a matrix: sums of leaves, in one of both directions, and of dot products. */
static uint64_t sums_of(const tg_factorization *m)
{
    uint64_t leaves = parts_of(m->columns, TG_GPU_FACTOR_LEAF);
    uint64_t tiles = parts_of(m->rows, TG_GPU_FACTOR_ROWS * TG_GPU_FACTOR_LEAVES);
    uint64_t along_rows = leaves > 1 ? leaves * m->rows : 0, along_columns = tiles > 1 ? tiles * m->columns : 0;
    return m->rank * (along_rows > along_columns ? along_rows : along_columns);
}

static uint64_t dots_of(const tg_factorization *m)
{
    return m->rank * parts_of(m->rows, TG_GPU_FACTOR_LEAF);
}

static tg_status open_matrices(tg_lowrank *l, tg_gpu_matrix *matrices, tg_detail *why)
{
    passes *own = l->own;
    uint64_t sum_n = 0, dot_n = 0;
    for (size_t i = 0; i < l->matrix_n; i++) {
        sum_n += sums_of(&l->matrices[i]);
        dot_n += dots_of(&l->matrices[i]);
    }
    TG_TRY(tg_gpu_acquire(&own->sums, own->gpu, sum_n * sizeof *own->sums, why));
    TG_TRY(tg_gpu_acquire(&own->dots, own->gpu, dot_n * sizeof *own->dots, why));
    float *sums = own->sums;
    double *dots = own->dots;
    for (size_t i = 0; i < l->matrix_n; i++) {
        const tg_factorization *m = &l->matrices[l->order[i]];
        matrices[l->order[i]] = (tg_gpu_matrix){.rows = m->rows,
                                                .columns = m->columns,
                                                .residual = m->residual,
                                                .q = m->q,
                                                .p = m->p,
                                                .q_next = m->q_next,
                                                .sums = sums,
                                                .dots = dots,
                                                .decay = m->decay,
                                                .limit = m->limit,
                                                .rank = m->rank,
                                                .tensor = (uint32_t)m->tensor,
                                                .dtype = (uint32_t)l->context.layout->tensors[m->tensor].dtype,
                                                .number = (uint32_t)i};
        sums += sums_of(m);
        dots += dots_of(m);
    }
    return upload(&own->matrices, own->gpu, matrices, l->matrix_n * sizeof *matrices, why);
}

static tg_status open(tg_lowrank *l, tg_detail *why)
{
    passes *own = NULL;
    tg_gpu_matrix *matrices = NULL;
    TG_TRY(tg_acquire(&own, &l->allocator, 1, sizeof *own, why));
    l->own = own;
    own->gpu = l->run->gpu;
    tg_gpu_enter(own->gpu);
    tg_gpu_fill(own->gpu, l->saved, 0, l->residual_n * sizeof *l->saved);
    TG_TRY(tg_gpu_acquire(&own->beyond, own->gpu, sizeof *own->beyond, why));
    TG_TRY(tg_gpu_pin(&own->beyond_here, own->gpu, sizeof *own->beyond_here, why));
    for (cut kind = 0; kind < CUTS; kind++) {
        TG_TRY(open_cut(&own->cuts[kind], l, kind, why));
    }
    TG_TRY(open_copies(&own->copies, l, why));
    TG_TRY(tg_acquire(&matrices, &l->allocator, l->matrix_n, sizeof *matrices, why));
    tg_status status = open_matrices(l, matrices, why);
    tg_release(&l->allocator, matrices);
    return status;
}

static void close_table(const table *t, const tg_lowrank *l)
{
    const passes *own = l->own;
    tg_gpu_release(own->gpu, t->entries);
    tg_release(&l->allocator, t->first);
}

static void close(tg_lowrank *l)
{
    const passes *own = l->own;
    if (own == NULL) {
        return;
    }
    tg_gpu_enter(own->gpu);
    tg_gpu_settle(l->run);
    tg_gpu_release(own->gpu, own->matrices);
    close_table(&own->copies, l);
    for (cut kind = 0; kind < CUTS; kind++) {
        close_table(&own->cuts[kind], l);
    }
    tg_gpu_unpin(own->gpu, own->beyond_here);
    tg_gpu_release(own->gpu, own->beyond);
    tg_gpu_release(own->gpu, own->dots);
    tg_gpu_release(own->gpu, own->sums);
    tg_release(&l->allocator, l->own);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------ */

/* The tiles of a table of groups [from, to). */
static tg_gpu_factors over(const tg_lowrank *l, cut kind, uint32_t from, uint32_t to, void *const *grads)
{
    const passes *own = l->own;
    const table *t = &own->cuts[kind];
    return (tg_gpu_factors){.matrices = own->matrices,
                            .tiles = (const tg_gpu_factor_tile *)t->entries + t->first[from],
                            .n = (uint32_t)(t->first[to] - t->first[from]),
                            .grads = grads,
                            .nonfinite = (uint8_t)l->context.nonfinite,
                            .seed = l->context.layout->seed,
                            .stream = own->gpu->stream};
}

static void copy_tensors(const tg_lowrank *l, uint32_t from, uint32_t to, void *const *grads, bool back)
{
    const passes *own = l->own;
    const table *t = &own->copies;
    const tg_gpu_factors f = {.copies = (const tg_gpu_factor_copy *)t->entries + t->first[from],
                              .n = (uint32_t)(t->first[to] - t->first[from]),
                              .grads = grads,
                              .stream = own->gpu->stream};
    tg_gpu_factors_copy(&f, back);
}

/* Pointers by tensor on the device. */
static void *const *upload_pointers(const tg_lowrank *l, uint32_t group, void *const *pointers)
{
    return (void *const *)tg_gpu_upload_pointers(l->run, group, (const void *const *)pointers);
}

static tg_status multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    const passes *own = l->own;
    bool refuses = l->context.nonfinite == TG_NONFINITE_ERROR;
    tg_gpu_enter(own->gpu);
    TG_TRY(tg_gpu_reach_group(l->run, group, (const void *const *)grads, why));
    void *const *there = upload_pointers(l, group, grads);
    if (refuses) {
        tg_gpu_fill(own->gpu, own->beyond, 0xff, sizeof *own->beyond);
    }
    copy_tensors(l, group, group + 1, there, false);
    tg_gpu_factors whole = over(l, WHOLE, group, group + 1, there), rows = over(l, ROWS, group, group + 1, there),
                   leaves = over(l, ADD_ROWS, group, group + 1, there);
    rows.beyond = refuses ? own->beyond : NULL;
    tg_gpu_factors_begin(&whole);
    tg_gpu_factors_multiply(&rows);
    tg_gpu_factors_add_leaves(&leaves);
    if (refuses) {
        tg_gpu_copy(own->gpu, own->beyond_here, own->beyond, sizeof *own->beyond);
    }
    return TG_OK;
}

static tg_status verdict(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    const passes *own = l->own;
    (void)group;
    (void)grads;
    if (l->context.nonfinite != TG_NONFINITE_ERROR) {
        return TG_OK;
    }
    TG_TRY(tg_gpu_wait(own->gpu, why));
    uint64_t key = *own->beyond_here;
    if (key == UINT64_MAX) {
        return TG_OK;
    }
    const tg_factorization *m = &l->matrices[l->order[tg_gpu_factor_key_matrix(key)]];
    return tg_factorization_refusal(&l->context, m, (key & 1) != 0, why);
}

static void multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step)
{
    const passes *own = l->own;
    tg_gpu_enter(own->gpu);
    void *const *there = upload_pointers(l, group, grads);
    tg_gpu_factors whole = over(l, WHOLE, group, group + 1, there), columns = over(l, COLUMNS, group, group + 1, there),
                   tiles = over(l, ADD_COLUMNS, group, group + 1, there);
    whole.step = step;
    tg_gpu_factors_orthonormalise(&whole);
    tg_gpu_factors_back(&columns);
    tg_gpu_factors_add_back(&tiles);
}

static void average(tg_lowrank *l, uint32_t group, void *const *out)
{
    const passes *own = l->own;
    tg_gpu_enter(own->gpu);
    void *const *there = upload_pointers(l, group, out);
    tg_gpu_factors tiles = over(l, SETTLE, group, group + 1, there);
    copy_tensors(l, group, group + 1, there, true);
    tg_gpu_factors_average(&tiles);
}

static void settle(tg_lowrank *l, void *const *grads)
{
    const passes *own = l->own;
    uint32_t groups = l->grid->groups;
    void *const *there = NULL;
    tg_gpu_enter(own->gpu);
    for (uint32_t g = 0; g < groups; g++) {
        there = upload_pointers(l, g, grads);
    }
    tg_gpu_factors whole = over(l, WHOLE, 0, groups, there), tiles = over(l, SETTLE, 0, groups, there);
    copy_tensors(l, 0, groups, there, true);
    tg_gpu_factors_end(&whole);
    tg_gpu_factors_settle(&tiles);
}

const tg_lowrank_passes tg_gpu_lowrank = {
    .open = open,
    .close = close,
    .multiply = multiply,
    .verdict = verdict,
    .multiply_back = multiply_back,
    .average = average,
    .settle = settle,
};
