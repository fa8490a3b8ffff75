/* The memory of the emulated GPU, for its kernels and for tests. */
#ifndef TG_EXEC_CUDA_EMULATE_CALLS_H
#define TG_EXEC_CUDA_EMULATE_CALLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Around kernels: only between these calls may a thread touch device memory. Calls may be nested, and from several threads. */
void tg_emulated_unlock(void);
void tg_emulated_lock(void);

/* Device memory and pinned memory together: fails the nth acquisition from now on (from 1; 0: none). */
void tg_emulated_fail(uint64_t nth);

/* While this is on, the stream counts as captured: kernels run at once, and what a CUDA graph cannot hold ends the program, that is,
 * waiting, taking memory, and copies from or to host memory. */
void tg_emulated_capture(int is_on);

/* Acquisitions so far, and blocks that are not released. */
uint64_t tg_emulated_acquired(void);
uint64_t tg_emulated_held(void);

/* fibers.cc, for tests: blocks that may wait for each other; see emulate/cuda.h. */
void tg_emulated_launch_together(unsigned blocks, unsigned threads, size_t shared_len, void (*body)(void *context),
                                 void *context);
void tg_emulated_let_others(void);
void tg_emulated_went_on(void);

/* How often the host has waited for the device. */
uint64_t tg_emulated_waits(void);

#ifdef __cplusplus
}
#endif
#endif
