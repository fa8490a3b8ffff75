/* A stream of the emulated GPU. Kernels and copies are done when they are put on it. What works in the background, as the stand-in for
 * NCCL of the tests does, counts what it has put on the stream and what of that is done. */
#ifndef TG_EXEC_CUDA_EMULATE_STREAM_H
#define TG_EXEC_CUDA_EMULATE_STREAM_H

#include <stdatomic.h>
#include <stdint.h>

#define TG_EMULATED_STREAM UINT64_C(0x7473747265616d21)

typedef struct tg_emulated_stream {
    uint64_t magic;
    _Atomic uint64_t put, done;
} tg_emulated_stream;

#endif
