/* gpu_calls.h in host memory, for tests. New memory is filled with 0xA5. */
#include "exec/cuda/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

int tg_gpu_call_find(int ordinal, void *stream, const char **why)
{
    (void)stream;
    *why = "the emulation has one GPU, number 0";
    return ordinal != 0;
}

void tg_gpu_call_enter(int ordinal)
{
    (void)ordinal;
}

int tg_gpu_call_acquire(void **out, uint64_t len, int pinned, const char **why)
{
    (void)pinned;
    *out = malloc(len + 8 - len % 8); /* whole words, as kernels read them */
    *why = "out of memory";
    if (*out != NULL) {
        memset(*out, 0xA5, len);
    }
    return *out == NULL;
}

void tg_gpu_call_release(void *block, int pinned)
{
    (void)pinned;
    free(block);
}

void tg_gpu_call_copy(void *to, const void *from, uint64_t len, void *stream)
{
    (void)stream;
    memmove(to, from, len);
}

void tg_gpu_call_fill(void *to, int byte, uint64_t len, void *stream)
{
    (void)stream;
    memset(to, byte, len);
}

int tg_gpu_call_wait(void *stream, const char **why)
{
    (void)stream;
    *why = NULL;
    return 0;
}

int tg_gpu_call_can_use(const void *memory, int ordinal)
{
    (void)ordinal;
    return memory != NULL;
}
