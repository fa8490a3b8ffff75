/* A GPU and a stream: memory, copies and waiting. */
#ifndef TG_EXEC_CUDA_GPU_H
#define TG_EXEC_CUDA_GPU_H

#include "exec/exec.h"

typedef struct tg_gpu {
    tg_device device;
    int ordinal;
    void *stream;
    bool overlaps;        /* kernels may be launched early (kernel.h) */
    uint32_t processors;  /* multiprocessors */
    void *mark;           /* of tg_cuda_follow and tg_cuda_lead */
    const uint64_t *step; /* device memory that holds the step; NULL: it is given by callers */
    uint32_t *refused;    /* pinned: frames that were refused when nobody waited for them */
    char name[160];
} tg_gpu;

/* Whether a GPU can be used, and the stream is its own. */
tg_status tg_gpu_find_device(int ordinal, void *stream, tg_detail *why) TG_CHECKED;

/* Makes the GPU current for the calling thread. To be called at the start of every pass. */
void tg_gpu_enter(const tg_gpu *gpu);

/* Device memory, not cleared; pinned host memory. */
tg_status tg_gpu_acquire(void *out, const tg_gpu *gpu, uint64_t len, tg_detail *why) TG_CHECKED;
void tg_gpu_release(const tg_gpu *gpu, void *block);
tg_status tg_gpu_pin(void *out, const tg_gpu *gpu, uint64_t len, tg_detail *why) TG_CHECKED;
void tg_gpu_unpin(const tg_gpu *gpu, void *block);

/* In the order of the stream. Copies are in any direction; pageable host memory may be reused at once. */
void tg_gpu_copy(const tg_gpu *gpu, void *to, const void *from, uint64_t len);
void tg_gpu_fill(const tg_gpu *gpu, void *to, int byte, uint64_t len);

/* Waits for the stream. Reports what has failed since the last wait, in kernels of the caller's own, too. */
tg_status tg_gpu_wait(const tg_gpu *gpu, tg_detail *why) TG_CHECKED;

/* Whether work on the stream is being captured in a CUDA graph. */
bool tg_gpu_is_capturing(const tg_gpu *gpu);

/* A stream beside that of the GPU, and marks on streams. A mark is passed when all that was on the stream before it is done. */
tg_status tg_gpu_new_stream(void **out, const tg_gpu *gpu, tg_detail *why) TG_CHECKED;
void tg_gpu_free_stream(void *stream);
tg_status tg_gpu_new_mark(void **out, const tg_gpu *gpu, tg_detail *why) TG_CHECKED;
void tg_gpu_free_mark(void *mark);
tg_status tg_gpu_mark(const tg_gpu *gpu, void *mark, void *stream, tg_detail *why) TG_CHECKED;
/* Has what comes next on a stream wait for a mark. */
tg_status tg_gpu_wait_for(const tg_gpu *gpu, void *stream, void *mark, tg_detail *why) TG_CHECKED;
/* Waits until a mark is passed, and reports as tg_gpu_wait does; what comes after it on the stream goes on. */
tg_status tg_gpu_await(const tg_gpu *gpu, void *mark, tg_detail *why) TG_CHECKED;
/* TG_OK: passed; TG_MORE: not yet. Likewise whether all is done that is on the stream of the GPU. */
tg_status tg_gpu_passed(const tg_gpu *gpu, void *mark, tg_detail *why) TG_CHECKED;
tg_status tg_gpu_idle(const tg_gpu *gpu, tg_detail *why) TG_CHECKED;

/* Whether memory can be used by kernels of this GPU. */
bool tg_gpu_can_use(const tg_gpu *gpu, const void *memory);

#endif
