/* Tersegrad over NCCL: a link whose ranks have GPUs of NVIDIA, for exchanges with tg_options.device. It is a separate library,
 * libtersegrad-nccl, and goes with libtersegrad-cuda. NCCL is loaded when a link is made: neither it nor its headers are needed to
 * build. */
#ifndef TERSEGRAD_NCCL_H
#define TERSEGRAD_NCCL_H

#include <tersegrad/cuda.h>
#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_nccl tg_nccl;

/* Creates a link between the ranks of `inner`, a link of the same ranks for host memory that performs several operations at once, such as
 * that of mpi.h. All ranks must call this. It makes a communicator of its own, whose id travels over `inner`.
 *
 * Messages in device memory are sent by ncclSend and ncclRecv, one group of calls an operation, on a stream of the link's own. Votes,
 * lengths and the order of operations travel over `inner` (tg_wire_link_new of cuda.h). NCCL 2.14 or later is needed: `libnccl.so.2`, or
 * the file that the environment variable TG_NCCL names.
 *
 * timeout_ms applies to making the communicator, and to every operation. When one fails or is late, the communicator is aborted
 * (ncclCommAbort), the reason has NCCL's own sentence, and every rank learns it over `inner`. What fails on one rank in this call fails
 * it on all, with the number of that rank. `inner` and `device` must outlive the link, and `inner` is not to be used beside it. */
TG_API tg_status tg_nccl_new(tg_nccl **out, tg_device *device, tg_link *inner, uint32_t rank, uint32_t world,
                             uint32_t timeout_ms, tg_detail *why) TG_CHECKED;
TG_API void tg_nccl_free(tg_nccl *n);

/* The link for tg_reduce and tg_reducer_new. */
TG_API tg_link *tg_nccl_link(tg_nccl *n);

/* The version of the NCCL that was loaded, such as 22803 for 2.28.3; 0 if n is NULL. */
TG_API int tg_nccl_version(const tg_nccl *n);

#ifdef __cplusplus
}
#endif
#endif
