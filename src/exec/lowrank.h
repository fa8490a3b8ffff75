/* PowerSGD's factors: the low-rank factors of gradients, their averages and the residuals. exchange/lowrank.c describes the
 * algorithm.
 *
 *     lowrank.c           which tensors are matrices, memory, saved state: the same for all executors
 *     host_lowrank.c      the passes of the host, with factorization.c; those of a GPU are in cuda/lowrank.c
 */
#ifndef TG_EXEC_LOWRANK_H
#define TG_EXEC_LOWRANK_H

#include "exec/exec.h"
#include "exec/factorization.h"

typedef struct tg_lowrank tg_lowrank;

/* The passes of an executor, and what it keeps for them. Arguments are as in the functions below. */
typedef struct tg_lowrank_passes {
    /* Takes memory of its own, l->own, which is NULL before, and clears the residuals. `close` accepts what `open` left unfinished. */
    tg_status (*open)(tg_lowrank *l, tg_detail *why);
    void (*close)(tg_lowrank *l);

    tg_status (*multiply)(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why);
    tg_status (*verdict)(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why);
    void (*multiply_back)(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step);
    void (*average)(tg_lowrank *l, uint32_t group, void *const *out);
    void (*settle)(tg_lowrank *l, void *const *grads);
} tg_lowrank_passes;

struct tg_lowrank {
    tg_allocator allocator;
    const tg_executor *executor;
    const tg_device *device;
    tg_run *run; /* whose threads, or stream, are used */
    tg_factorization_context context;
    const tg_grid *grid; /* for its groups */
    tg_factorization *matrices;
    size_t matrix_n;
    size_t *order;          /* the matrices' numbers in the order of groups ... */
    size_t *order_first;    /* ... and where those of each begin, and one more */
    size_t *matrix_of;      /* of each tensor: the number of its matrix, plus 1; 0: the tensor is sent dense */
    void **first, **second; /* the buffers that the two all-reduces average */

    /* memory of the executor */
    float *saved; /* residuals, then the factors q */
    uint64_t saved_n, residual_n;
    float *factors; /* buffer of all p and q_next */
    char *copies;   /* buffer of the tensors that are sent dense */

    void *own; /* of the passes */
};

/* Where gradients are, and who works on them. */
typedef struct tg_lowrank_place {
    const tg_executor *executor;
    const tg_device *device;
    tg_run *run;
} tg_lowrank_place;

/* `place`, and the grid, for its groups, must outlive it. On failure the caller must still pass *out to tg_lowrank_free. Refuses an
 * executor without passes. */
tg_status tg_lowrank_new(tg_lowrank **out, const tg_layout *layout, const tg_grid *grid, tg_nonfinite nonfinite,
                         const tg_lowrank_place *place, const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_lowrank_free(tg_lowrank *l);

/* Space for the tensors of an all-reduce: for one, and two dimensions, per tensor of the layout. */
typedef struct tg_lowrank_listed {
    tg_tensor *tensors;
    uint64_t *dims;
    uint32_t *group_of;
    bool *in_bf16; /* on the wire; else as it is */
} tg_lowrank_listed;

/* Lists the tensors of the first all-reduce (factors P, and tensors that are sent dense) or of the second (factors Q). Returns
 * their number. */
size_t tg_lowrank_list(const tg_lowrank_listed *out, const tg_lowrank *l, bool first);

/* The buffers that the two all-reduces average in place. */
void *const *tg_lowrank_first(const tg_lowrank *l);
void *const *tg_lowrank_second(const tg_lowrank *l);

/* A step, in this order; the first three for each group:
 *   multiply        P = M Q
 *   verdict         after P was encoded: whether a gradient is refused, if `multiply` does not wait until that is known
 *   multiply_back   after P was averaged: makes P orthonormal, Q = M' P
 *   average         after Q was averaged: writes the averages P Q' of a group to `out`, and changes no state; not needed
 *   settle          writes the averages P Q' to the gradients, and the residuals */
tg_status tg_lowrank_multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why) TG_CHECKED;
tg_status tg_lowrank_verdict(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why) TG_CHECKED;
void tg_lowrank_multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step);
void tg_lowrank_average(tg_lowrank *l, uint32_t group, void *const *out);
void tg_lowrank_settle(tg_lowrank *l, void *const *grads);

/* The number of a tensor's matrix, plus 1; 0: the tensor is sent dense. */
size_t tg_lowrank_matrix(const tg_lowrank *l, size_t tensor);
void tg_lowrank_residual(float *out, const tg_lowrank *l, size_t tensor);

/* The saved state: n numbers from number `at` on. Residuals, then the factors that the next step starts from. */
uint64_t tg_lowrank_saved_n(const tg_lowrank *l);
void tg_lowrank_save(float *out, const tg_lowrank *l, uint64_t at, uint64_t n);
void tg_lowrank_load(tg_lowrank *l, uint64_t at, const float *values, uint64_t n);

/* For passes: the group of a tensor, and the bytes of one that is sent dense. */
static inline uint32_t tg_lowrank_group(const tg_lowrank *l, size_t tensor)
{
    return l->grid->group_of[l->context.layout->tensor_unit[tensor]];
}

static inline size_t tg_lowrank_copy_len(const tg_lowrank *l, size_t tensor)
{
    const tg_layout *layout = l->context.layout;
    return l->matrix_of[tensor] != 0
               ? 0
               : (size_t)layout->tensor_elements[tensor] * tg_dtype_len(layout->tensors[tensor].dtype);
}

#endif
