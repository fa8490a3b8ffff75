/* Calls of the CUDA runtime, in plain C types. gpu.cu makes them; emulate/calls.c does the same for tests in host memory. */
#ifndef TG_EXEC_CUDA_GPU_CALLS_H
#define TG_EXEC_CUDA_GPU_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* 0: success; else *why is a static sentence. */
int tg_gpu_call_find(int ordinal, void *stream, const char **why);
int tg_gpu_call_acquire(void **out, uint64_t len, int pinned, const char **why);
int tg_gpu_call_wait(void *stream, const char **why);

void tg_gpu_call_name(char *out, size_t cap, int ordinal); /* empty: it cannot be told */
void tg_gpu_call_enter(int ordinal);
void tg_gpu_call_release(void *block, int pinned);
void tg_gpu_call_copy(void *to, const void *from, uint64_t len, void *stream);
void tg_gpu_call_fill(void *to, int byte, uint64_t len, void *stream);
int tg_gpu_call_is_capturing(void *stream);
int tg_gpu_call_overlaps(int ordinal);   /* whether a kernel can be put on the GPU before the one before it ends */
int tg_gpu_call_processors(int ordinal); /* multiprocessors, at least 1 */
int tg_gpu_call_can_use(const void *memory, int ordinal);

/* Streams, and marks on them: a mark is passed when all that was on the stream before it is done. */
int tg_gpu_call_new_stream(void **out, const char **why);
void tg_gpu_call_free_stream(void *stream);
int tg_gpu_call_new_mark(void **out, const char **why);
void tg_gpu_call_free_mark(void *mark);
int tg_gpu_call_mark(void *mark, void *stream, const char **why);
int tg_gpu_call_follow(void *stream, void *mark,
                       const char **why);             /* has what comes next on the stream wait for the mark */
int tg_gpu_call_passed(void *mark, const char **why); /* 0: passed; 1: not yet; 2: failed */
int tg_gpu_call_await(void *mark, const char **why);
int tg_gpu_call_idle(void *stream, const char **why); /* as tg_gpu_call_passed, of all that is on the stream */

#endif
