/* The public functions of cuda.h. */
#include "tersegrad/cuda.h"

#include "exec/cuda/gpu_calls.h"
#include "exec/cuda/run.h"

#include <stdlib.h>
#include <string.h>

static const tg_gpu *gpu_of(const tg_device *device)
{
    return (const tg_gpu *)(const void *)device;
}

tg_status tg_cuda_open(tg_device **out, int ordinal, void *stream, tg_detail *why)
{
    TG_NEED(out, why);
    TG_TRY(tg_gpu_find_device(ordinal, stream, why));
    tg_gpu *gpu = malloc(sizeof *gpu);
    if (gpu == NULL) {
        return tg_fail(TG_E_MEMORY, why, "no memory for a device");
    }
    *gpu = (tg_gpu){.device = {.executor = &tg_executor_cuda}, .ordinal = ordinal, .stream = stream};
    tg_gpu_enter(gpu);
    tg_status status = tg_gpu_new_mark(&gpu->mark, gpu, why);
    if (status == TG_OK && (status = tg_gpu_pin(&gpu->refused, gpu, sizeof *gpu->refused, why)) != TG_OK) {
        tg_gpu_free_mark(gpu->mark);
    }
    if (status != TG_OK) {
        free(gpu);
        return status;
    }
    *gpu->refused = 0;
    gpu->overlaps = tg_gpu_call_overlaps(ordinal) != 0;
    gpu->processors = (uint32_t)tg_gpu_call_processors(ordinal);
    tg_gpu_call_name(gpu->name, sizeof gpu->name, ordinal);
    *out = &gpu->device;
    return TG_OK;
}

void tg_cuda_close(tg_device *device)
{
    if (device != NULL) {
        tg_gpu_enter(gpu_of(device));
        tg_gpu_unpin(gpu_of(device), gpu_of(device)->refused);
        tg_gpu_free_mark(gpu_of(device)->mark);
        free(device);
    }
}

const char *tg_cuda_name(const tg_device *device)
{
    return device == NULL ? "" : gpu_of(device)->name;
}

uint32_t tg_cuda_refused(const tg_device *device)
{
    return device == NULL ? 0 : *(const volatile uint32_t *)gpu_of(device)->refused;
}

tg_status tg_cuda_acquire(void **out, tg_device *device, uint64_t len, tg_detail *why)
{
    TG_NEED(out, why);
    TG_NEED(device, why);
    tg_gpu_enter(gpu_of(device));
    return tg_gpu_acquire(out, gpu_of(device), len, why);
}

void tg_cuda_release(tg_device *device, void *block)
{
    if (device != NULL) {
        tg_gpu_enter(gpu_of(device));
        tg_gpu_release(gpu_of(device), block);
    }
}

tg_status tg_cuda_copy(tg_device *device, void *to, const void *from, uint64_t len, tg_detail *why)
{
    TG_NEED(device, why);
    if (len > 0) {
        TG_NEED(to, why);
        TG_NEED(from, why);
    }
    tg_gpu_enter(gpu_of(device));
    tg_gpu_copy(gpu_of(device), to, from, len);
    return TG_OK;
}

tg_status tg_cuda_fill(tg_device *device, void *to, int byte, uint64_t len, tg_detail *why)
{
    TG_NEED(device, why);
    if (len > 0) {
        TG_NEED(to, why);
    }
    tg_gpu_enter(gpu_of(device));
    tg_gpu_fill(gpu_of(device), to, byte, len);
    return TG_OK;
}

tg_status tg_cuda_read_step(tg_device *device, const uint64_t *step, tg_detail *why)
{
    TG_NEED(device, why);
    tg_gpu *gpu = (tg_gpu *)(void *)device;
    tg_gpu_enter(gpu);
    if (step != NULL && !tg_gpu_can_use(gpu, step)) {
        return tg_fail(TG_E_ARGUMENT, why, "the step is not in the memory of GPU %d", gpu->ordinal);
    }
    gpu->step = step;
    return TG_OK;
}

/* What comes next on stream `to` comes after what is on `from`. A stream waits for a mark as it was set last, so one is enough. */
static tg_status order(const tg_gpu *gpu, void *from, void *to, tg_detail *why)
{
    tg_gpu_enter(gpu);
    TG_TRY(tg_gpu_mark(gpu, gpu->mark, from, why));
    return tg_gpu_wait_for(gpu, to, gpu->mark, why);
}

tg_status tg_cuda_follow(tg_device *device, void *stream, tg_detail *why)
{
    TG_NEED(device, why);
    return order(gpu_of(device), stream, gpu_of(device)->stream, why);
}

tg_status tg_cuda_lead(tg_device *device, void *stream, tg_detail *why)
{
    TG_NEED(device, why);
    return order(gpu_of(device), gpu_of(device)->stream, stream, why);
}

tg_status tg_cuda_move(tg_device *device, void *stream, tg_detail *why)
{
    TG_NEED(device, why);
    tg_gpu *gpu = (tg_gpu *)(void *)device;
    if (stream == gpu->stream) {
        return TG_OK;
    }
    TG_TRY(tg_gpu_find_device(gpu->ordinal, stream, why));
    TG_TRY(order(gpu, gpu->stream, stream, why));
    gpu->stream = stream;
    return TG_OK;
}

tg_status tg_cuda_wait(tg_device *device, tg_detail *why)
{
    TG_NEED(device, why);
    tg_gpu_enter(gpu_of(device));
    return tg_gpu_wait(gpu_of(device), why);
}
