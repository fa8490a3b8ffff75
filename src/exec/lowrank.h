/* PowerSGD's factors on the host: computes the low-rank factors of gradients, their averages and the residuals. */
#ifndef TG_EXEC_LOWRANK_H
#define TG_EXEC_LOWRANK_H

#include "exec/exec.h"

typedef struct tg_lowrank tg_lowrank;

/* Uses the threads of `run`, which must outlive it, and so must the grid, for its groups. On failure the caller must still pass *out to tg_lowrank_free. */
tg_status tg_lowrank_new(tg_lowrank **out, const tg_layout *layout, const tg_grid *grid, tg_nonfinite nonfinite,
                         const tg_run *run, const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_lowrank_free(tg_lowrank *l);

/* Lists the tensors of the first all-reduce (factors P, and tensors that are sent dense) or of the second (factors Q). Returns
 * their number. `tensors` and `group_of` have space for one tensor, and `dims` for two dimensions, per tensor of the layout. */
size_t tg_lowrank_list(tg_tensor *tensors, uint64_t *dims, uint32_t *group_of, const tg_lowrank *l, bool first);

/* The buffers that the two all-reduces average in place. */
void *const *tg_lowrank_first(const tg_lowrank *l);
void *const *tg_lowrank_second(const tg_lowrank *l);

/* A step, in this order; the first two for each group:
 *   multiply        P = M Q
 *   multiply_back   after P was averaged: makes P orthonormal, Q = M' P
 *   average         after Q was averaged: writes the averages P Q' of a group to `out`, and changes no state; not needed
 *   settle          writes the averages P Q' to the gradients, and the residuals */
tg_status tg_lowrank_multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why) TG_CHECKED;
void tg_lowrank_multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step);
void tg_lowrank_average(tg_lowrank *l, uint32_t group, void *const *out);
void tg_lowrank_settle(tg_lowrank *l, void *const *grads);

/* The number of a tensor's matrix, plus 1; 0: the tensor is sent dense. */
size_t tg_lowrank_matrix(const tg_lowrank *l, size_t tensor);
void tg_lowrank_residual(float *out, const tg_lowrank *l, size_t tensor);

/* The saved state, *n floats: residuals, then the factors that the next step starts from. */
float *tg_lowrank_saved(const tg_lowrank *l, uint64_t *n);

#endif
