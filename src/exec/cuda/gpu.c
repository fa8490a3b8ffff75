/* gpu.h by calls of the CUDA runtime. */
#include "exec/cuda/gpu.h"

#include "exec/cuda/gpu_calls.h"

#include <inttypes.h>
#include <string.h>

tg_status tg_gpu_find_device(int ordinal, void *stream, tg_detail *why)
{
    const char *reason = NULL;
    if (tg_gpu_call_find(ordinal, stream, &reason) != 0) {
        return tg_fail(TG_E_ARGUMENT, why, "GPU %d cannot be used: %s", ordinal, reason);
    }
    return TG_OK;
}

void tg_gpu_enter(const tg_gpu *gpu)
{
    tg_gpu_call_enter(gpu->ordinal);
}

static tg_status acquire(void *out, const tg_gpu *gpu, uint64_t len, int pinned, tg_detail *why)
{
    void *block = NULL;
    const char *reason = NULL;
    if (tg_gpu_call_acquire(&block, len > 0 ? len : 1, pinned, &reason) != 0) {
        return tg_fail(TG_E_MEMORY, why, "GPU %d has no %" PRIu64 " bytes of %s: %s", gpu->ordinal, len,
                       pinned ? "pinned host memory" : "memory", reason);
    }
    memcpy(out, &block, sizeof block);
    return TG_OK;
}

tg_status tg_gpu_acquire(void *out, const tg_gpu *gpu, uint64_t len, tg_detail *why)
{
    return acquire(out, gpu, len, 0, why);
}

tg_status tg_gpu_pin(void *out, const tg_gpu *gpu, uint64_t len, tg_detail *why)
{
    return acquire(out, gpu, len, 1, why);
}

void tg_gpu_release(const tg_gpu *gpu, void *block)
{
    (void)gpu;
    if (block != NULL) {
        tg_gpu_call_release(block, 0);
    }
}

void tg_gpu_unpin(const tg_gpu *gpu, void *block)
{
    (void)gpu;
    if (block != NULL) {
        tg_gpu_call_release(block, 1);
    }
}

void tg_gpu_copy(const tg_gpu *gpu, void *to, const void *from, uint64_t len)
{
    if (len > 0) {
        tg_gpu_call_copy(to, from, len, gpu->stream);
    }
}

void tg_gpu_fill(const tg_gpu *gpu, void *to, int byte, uint64_t len)
{
    if (len > 0) {
        tg_gpu_call_fill(to, byte, len, gpu->stream);
    }
}

/* What a wait has told. */
static tg_status waited(int failed, const char *const *reason, const tg_gpu *gpu, tg_detail *why)
{
    return failed ? tg_fail(TG_E_ARGUMENT, why, "GPU %d has failed: %s", gpu->ordinal, *reason) : TG_OK;
}

tg_status tg_gpu_wait(const tg_gpu *gpu, tg_detail *why)
{
    const char *reason = NULL;
    return waited(tg_gpu_call_wait(gpu->stream, &reason), &reason, gpu, why);
}

tg_status tg_gpu_await(const tg_gpu *gpu, void *mark, tg_detail *why)
{
    const char *reason = NULL;
    return waited(tg_gpu_call_await(mark, &reason), &reason, gpu, why);
}

bool tg_gpu_is_capturing(const tg_gpu *gpu)
{
    return tg_gpu_call_is_capturing(gpu->stream) != 0;
}

bool tg_gpu_can_use(const tg_gpu *gpu, const void *memory)
{
    return tg_gpu_call_can_use(memory, gpu->ordinal) != 0;
}

/* ---- streams and marks ------------------------------------------------------------------------------------------------- */

/* `reason` is a pointer because the call that sets it is an argument, too. */
static tg_status told(int failed, const char *const *reason, const tg_gpu *gpu, tg_detail *why)
{
    return failed ? tg_fail(TG_E_LINK, why, "GPU %d has failed: %s", gpu->ordinal, *reason) : TG_OK;
}

tg_status tg_gpu_new_stream(void **out, const tg_gpu *gpu, tg_detail *why)
{
    const char *reason = NULL;
    return told(tg_gpu_call_new_stream(out, &reason), &reason, gpu, why);
}

void tg_gpu_free_stream(void *stream)
{
    if (stream != NULL) {
        tg_gpu_call_free_stream(stream);
    }
}

tg_status tg_gpu_new_mark(void **out, const tg_gpu *gpu, tg_detail *why)
{
    const char *reason = NULL;
    return told(tg_gpu_call_new_mark(out, &reason), &reason, gpu, why);
}

void tg_gpu_free_mark(void *mark)
{
    if (mark != NULL) {
        tg_gpu_call_free_mark(mark);
    }
}

tg_status tg_gpu_mark(const tg_gpu *gpu, void *mark, void *stream, tg_detail *why)
{
    const char *reason = NULL;
    return told(tg_gpu_call_mark(mark, stream, &reason), &reason, gpu, why);
}

tg_status tg_gpu_wait_for(const tg_gpu *gpu, void *stream, void *mark, tg_detail *why)
{
    const char *reason = NULL;
    return told(tg_gpu_call_follow(stream, mark, &reason), &reason, gpu, why);
}

tg_status tg_gpu_passed(const tg_gpu *gpu, void *mark, tg_detail *why)
{
    const char *reason = NULL;
    int passed = tg_gpu_call_passed(mark, &reason);
    return passed == 1 ? TG_MORE : told(passed, &reason, gpu, why);
}

tg_status tg_gpu_idle(const tg_gpu *gpu, tg_detail *why)
{
    const char *reason = NULL;
    int idle = tg_gpu_call_idle(gpu->stream, &reason);
    return idle == 1 ? TG_MORE : told(idle, &reason, gpu, why);
}
