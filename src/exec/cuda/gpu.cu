/* gpu.h by the CUDA runtime. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "exec/cuda/gpu_calls.h"
}

/* TG_CUDA_DEBUG in the environment names, with commas between, what helps to find a fault: "serial", no kernel is launched early;
 * "fill", new memory is filled with 0xFF; "copies", the host waits for each copy. */
static bool debugs(const char *word)
{
    const char *words = getenv("TG_CUDA_DEBUG");
    return words != nullptr && strstr(words, word) != nullptr;
}

int tg_gpu_call_find(int ordinal, void *stream, const char **why)
{
    int count = 0, driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
        *why = "this machine has no driver for GPUs of NVIDIA";
        return 1;
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        *why = cudaGetErrorString(error);
        (void)cudaGetLastError();
        return 1;
    }
    if (ordinal < 0 || ordinal >= count) {
        *why = "there is no GPU of that number";
        return 1;
    }
    error = cudaSetDevice(ordinal);
    int of_stream = ordinal;
    if (error == cudaSuccess && stream != nullptr) {
        error = cudaStreamGetDevice((cudaStream_t)stream, &of_stream);
    }
    if (error != cudaSuccess) {
        *why = cudaGetErrorString(error);
        (void)cudaGetLastError();
        return 1;
    }
    if (of_stream != ordinal) {
        *why = "the stream is of another GPU";
        return 1;
    }
    return 0;
}

void tg_gpu_call_name(char *out, size_t cap, int ordinal)
{
    cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
    (void)snprintf(out, cap, "%s", error == cudaSuccess ? properties.name : "");
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
}

void tg_gpu_call_enter(int ordinal)
{
    (void)cudaSetDevice(ordinal);
}

int tg_gpu_call_acquire(void **out, uint64_t len, int pinned, const char **why)
{
    cudaError_t error = pinned ? cudaMallocHost(out, len) : cudaMalloc(out, len);
    *why = error == cudaSuccess ? nullptr : cudaGetErrorString(error);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    } else if (debugs("fill")) {
        if (pinned) {
            memset(*out, 0xff, len);
        } else {
            (void)cudaMemset(*out, 0xff, len);
            (void)cudaStreamSynchronize(nullptr); /* other streams do not wait for it */
        }
    }
    return error != cudaSuccess;
}

void tg_gpu_call_release(void *block, int pinned)
{
    (void)(pinned ? cudaFreeHost(block) : cudaFree(block));
}

void tg_gpu_call_copy(void *to, const void *from, uint64_t len, void *stream)
{
    (void)cudaMemcpyAsync(to, from, len, cudaMemcpyDefault, (cudaStream_t)stream);
    if (debugs("copies") && !tg_gpu_call_is_capturing(stream)) {
        (void)cudaStreamSynchronize((cudaStream_t)stream);
    }
}

void tg_gpu_call_fill(void *to, int byte, uint64_t len, void *stream)
{
    (void)cudaMemsetAsync(to, byte, len, (cudaStream_t)stream);
}

int tg_gpu_call_wait(void *stream, const char **why)
{
    cudaError_t launched = cudaGetLastError(), done = cudaStreamSynchronize((cudaStream_t)stream);
    cudaError_t error = launched != cudaSuccess ? launched : done;
    *why = error == cudaSuccess ? nullptr : cudaGetErrorString(error);
    return error != cudaSuccess;
}

int tg_gpu_call_await(void *mark, const char **why)
{
    cudaError_t launched = cudaGetLastError(), done = cudaEventSynchronize((cudaEvent_t)mark);
    cudaError_t error = launched != cudaSuccess ? launched : done;
    *why = error == cudaSuccess ? nullptr : cudaGetErrorString(error);
    return error != cudaSuccess;
}

int tg_gpu_call_is_capturing(void *stream)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (stream == nullptr || cudaStreamIsCapturing((cudaStream_t)stream, &status) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0; /* the default stream cannot be captured */
    }
    return status == cudaStreamCaptureStatusActive;
}

int tg_gpu_call_overlaps(int ordinal)
{
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return major >= 9 && !debugs("serial");
}

int tg_gpu_call_processors(int ordinal)
{
    int n = 0;
    if (cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, ordinal) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return n > 0 ? n : 1;
}

/* 0: success; else *why is set. */
static int told(cudaError_t error, const char **why)
{
    *why = error == cudaSuccess ? nullptr : cudaGetErrorString(error);
    return error != cudaSuccess;
}

int tg_gpu_call_new_stream(void **out, const char **why)
{
    return told(cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking), why);
}

void tg_gpu_call_free_stream(void *stream)
{
    (void)cudaStreamDestroy((cudaStream_t)stream);
}

int tg_gpu_call_new_mark(void **out, const char **why)
{
    return told(cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDisableTiming), why);
}

void tg_gpu_call_free_mark(void *mark)
{
    (void)cudaEventDestroy((cudaEvent_t)mark);
}

int tg_gpu_call_mark(void *mark, void *stream, const char **why)
{
    return told(cudaEventRecord((cudaEvent_t)mark, (cudaStream_t)stream), why);
}

int tg_gpu_call_follow(void *stream, void *mark, const char **why)
{
    return told(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)mark, 0), why);
}

/* What a query has told. */
static int asked(cudaError_t error, const char **why)
{
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 1;
    }
    return told(error, why) ? 2 : 0;
}

int tg_gpu_call_passed(void *mark, const char **why)
{
    return asked(cudaEventQuery((cudaEvent_t)mark), why);
}

int tg_gpu_call_idle(void *stream, const char **why)
{
    return asked(cudaStreamQuery((cudaStream_t)stream), why);
}

int tg_gpu_call_can_use(const void *memory, int ordinal)
{
    cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return attributes.type == cudaMemoryTypeManaged || (attributes.type == cudaMemoryTypeDevice && attributes.device == ordinal);
}
