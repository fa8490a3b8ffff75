/* Tersegrad for sharded training: reduce-scatter. Each rank gets the sum of one slice of every tensor. The rules of tersegrad.h
 * apply. */
#ifndef TERSEGRAD_SCATTER_H
#define TERSEGRAD_SCATTER_H

#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Slice `slice` of `slices` of n elements: elements *first to *first + *slice_n - 1. Slices follow each other; the first n mod
 * slices of them have one element more. Of n = slices * m elements, slice s is row s of a (slices, m) matrix. All of 0 if slice is
 * not below slices. Either output may be NULL. */
TG_API void tg_slice(uint64_t *first, uint64_t *slice_n, uint64_t n, uint32_t slice, uint32_t slices);

/* An exchange that scatters: rank r gets slice r of `world` of every tensor, summed over all ranks, in rank order and in fp32. Every
 * rank sends slice s of its gradients to rank s, encoded by the recipe, in one operation. There is nothing else: no votes, no
 * lengths, no answers. So the recipe must have lengths that all ranks know beforehand (no entropy coding, no indices, a selection of
 * one tensor's elements at most), host_size is 1, and tensors are in one group; others are TG_E_RECIPE or TG_E_ARGUMENT.
 *
 * All ranks must use the same recipe, tensors and options; tg_handshake compares them. Residuals, saved states and meters are as of
 * any exchange; `meter.dense` is of an all-reduce. Its steps are performed by the functions below only. */
TG_API tg_status tg_scatter_new(tg_exchange **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                                uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why) TG_CHECKED;

/* Encodes inputs[t], the elements of tensor t in its dtype, and writes the operation to perform to *op, of kind TG_ALLTOALLV. Its
 * lengths depend on recipe, tensors and step alone. Inputs may change once this returns; with a device, once its stream has passed
 * this. An error in the data of this rank, such as a NaN, is not returned here: all ranks learn of it by the operation. */
TG_API tg_status tg_scatter_begin(tg_op *op, tg_exchange *x, uint64_t step, const void *const *inputs,
                                  tg_detail *why) TG_CHECKED;

/* After the operation: checks and sums what arrived. out[t] gets the sum over ranks of this rank's slice of tensor t, over `divisor`,
 * in the tensor's dtype: `divisor` = world for the average, 1 for the sum, 1 / f for a sum of inputs times f. It may be where the
 * slice is in the input. An average is finite if all values are; other sums that fp32 cannot hold are Inf.
 *
 * Residuals are committed if this succeeds. If the data of a rank is refused, this fails on every rank, with TG_E_PEER on others, no
 * residual changes, and the next step may begin. Any other failure (bytes that are not the frame of this step: TG_E_FRAME and others)
 * may be this rank's alone; abort the link.
 *
 * With a device, a policy other than TG_NONFINITE_ERROR and a recipe without drawn coordinates, nothing waits for the device: the sums
 * are there once its stream has passed this. Then a damaged frame is reported by a later tg_scatter_begin, and an average whose sum
 * fp32 cannot hold is Inf. */
TG_API tg_status tg_scatter_end(tg_exchange *x, void *const *out, float divisor, tg_detail *why) TG_CHECKED;

/* Both, over a link. `inputs` must stay valid until this returns. On a failure that may be this rank's alone it aborts the link. */
TG_API tg_status tg_reduce_scatter(tg_exchange *x, tg_link *link, uint64_t step, void *const *out,
                                   const void *const *inputs, float divisor, tg_detail *why) TG_CHECKED;

#ifdef __cplusplus
}
#endif

#endif
