/* Tersegrad on GPUs of NVIDIA: gradients, residuals and frames in device memory, encoded and decoded on a stream.
 *
 * A codec or an exchange whose tg_options.device is a GPU has the interface of tersegrad.h: the same functions, frames and
 * results to the bit. Ranks with and without a GPU may work in one job. Recipes whose parts have no kernel are refused when the
 * codec is made. The library is libtersegrad-cuda. */
#ifndef TERSEGRAD_CUDA_H
#define TERSEGRAD_CUDA_H

#include <tersegrad/tersegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens GPU number `ordinal`. `stream` is a cudaStream_t of that GPU, which must outlive the device; NULL: the default
 * stream. Fails with TG_E_ARGUMENT if there is no such GPU, no driver, or the driver is too old. */
TG_API tg_status tg_cuda_open(tg_device **out, int ordinal, void *stream, tg_detail *why) TG_CHECKED;

/* After all codecs and exchanges of the device. */
TG_API void tg_cuda_close(tg_device *device);

/* The name of the GPU, such as "NVIDIA H200", as long as the device is open; empty if the driver does not tell it. */
TG_API const char *tg_cuda_name(const tg_device *device);

/* Device memory: for programs that do not use the CUDA runtime themselves. Copies and fills are in the order of the stream; copies
 * are in any direction, and host memory must stay as it is until tg_cuda_wait. */
TG_API tg_status tg_cuda_acquire(void **out, tg_device *device, uint64_t len, tg_detail *why) TG_CHECKED;
TG_API void tg_cuda_release(tg_device *device, void *block);
TG_API tg_status tg_cuda_copy(tg_device *device, void *to, const void *from, uint64_t len, tg_detail *why) TG_CHECKED;
TG_API tg_status tg_cuda_fill(tg_device *device, void *to, int byte, uint64_t len, tg_detail *why) TG_CHECKED;

/* CUDA graphs. tg_encode can be captured, on a stream that is not the default one, if frames of the recipe have a fixed length (no
 * selection and no entropy coding), the policy is TG_NONFINITE_ZERO or TG_NONFINITE_PASS, and the feedback is `none` or `ef`; else it
 * fails. The codec must have encoded once with the same gradients and frame, not captured. A replay encodes what is in these gradients
 * then, and updates the residual. The codec must not encode with other pointers while the graph is in use.
 *
 * A captured step number would stay the same. With tg_cuda_read_step, codecs of the device read it from `step`, in device memory,
 * whenever they encode, and the one given to tg_encode does not count; random rounding depends on it, too. NULL: as before. Not for
 * exchanges. */
TG_API tg_status tg_cuda_read_step(tg_device *device, const uint64_t *step, tg_detail *why) TG_CHECKED;

/* tg_decode_add can be captured, too, of frames of a fixed length, if the codec has decoded once from the same place to the same sums, not
 * captured. A replay checks the frame that is there then, and adds nothing if it is damaged. Nobody waits for that, so it succeeds; this
 * is the number of frames that replays on the device have refused so far, as of the last tg_cuda_wait. */
TG_API uint32_t tg_cuda_refused(const tg_device *device);

/* Order between the device's stream and another one of the same GPU, a cudaStream_t; nobody waits. `follow`: what the device does from
 * now on comes after all that is on the other stream now. `lead`: what is put on the other stream from now on comes after all that the
 * device was given so far. Not by several threads at once. */
TG_API tg_status tg_cuda_follow(tg_device *device, void *stream, tg_detail *why) TG_CHECKED;
TG_API tg_status tg_cuda_lead(tg_device *device, void *stream, tg_detail *why) TG_CHECKED;

/* Another stream of the same GPU in place of that of tg_cuda_open: what the device does from now on is put on it, and comes after all
 * that it was given before. Costs nothing if it is the same one. Both must outlive the device or the next call. Not while codecs,
 * exchanges or links of the device are at work. */
TG_API tg_status tg_cuda_move(tg_device *device, void *stream, tg_detail *why) TG_CHECKED;

/* Waits for the stream. Fails if something on it has failed, kernels of the caller's own included. */
TG_API tg_status tg_cuda_wait(tg_device *device, tg_detail *why) TG_CHECKED;

/* A link for the exchange of a rank whose tg_options.device is `device`. Its messages are in device memory, and links carry host
 * memory. This link copies messages to pinned host memory before `inner` carries them, and back when they have arrived, on the
 * device's stream. It performs several operations at once, and listens, if `inner` does. `world` is the number of ranks. Other ranks
 * may use `inner`'s kind of link as it is. `inner` and the device must outlive it, and only one of both links may be used. A link that
 * carries device memory itself needs none of this. */
TG_API tg_status tg_cuda_link_new(tg_link **out, tg_device *device, tg_link *inner, uint32_t world,
                                  tg_detail *why) TG_CHECKED;
TG_API void tg_cuda_link_free(tg_link *link);

/* What carries messages in device memory from rank to rank: NCCL (nccl.h), or something of your own. Fill in all members. */
typedef struct tg_wire tg_wire;
struct tg_wire {
    /* Puts the messages of an operation on `stream`. Those in host memory are empty in *op, which stays as it is until `test` returns
     * TG_OK. All ranks post operations in the same order. The next one is posted when `test` has returned TG_OK. */
    tg_status (*post)(tg_wire *self, const tg_op *op, tg_detail *why);
    /* TG_OK: all that was posted is on the stream, or done. TG_MORE: not yet. Any other: the wire has failed. */
    tg_status (*test)(tg_wire *self, tg_detail *why);
    /* Ends what is on the stream at once. Called once at most; nothing is posted afterwards. */
    void (*abort)(tg_wire *self);
    void *
        stream; /* a cudaStream_t of the device's GPU, another one than the device's; NULL: the link makes one and writes it here */
};

/* A link for the exchange of a rank whose tg_options.device is `device`, and for which all ranks have devices. Messages in device memory
 * are carried by `wire`. Votes, lengths and the order of operations on the wire are carried by `inner`, a link of the same ranks for host
 * memory, which must perform several operations at once (tg_link.start). Channels are those of tg_reducer (docs/steps.md). Rank 0 decides the order: ranks may start groups in different
 * orders, and a wire such as NCCL needs one that is common to all. The link has one channel less than `inner`.
 *
 * An operation on the wire that takes longer than timeout_ms fails the link. inner, wire and device must outlive it. */
TG_API tg_status tg_wire_link_new(tg_link **out, tg_device *device, tg_link *inner, tg_wire *wire, uint32_t rank,
                                  uint32_t world, uint32_t timeout_ms, tg_detail *why) TG_CHECKED;
TG_API void tg_wire_link_free(tg_link *link);

#ifdef __cplusplus
}
#endif
#endif
