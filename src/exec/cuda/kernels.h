/* The launches of all kernels, as C functions: what the executor's passes call. Pointers are to device memory unless stated
 * otherwise. A launch returns at once; faults are reported by the next tg_gpu_wait. */
#ifndef TG_EXEC_CUDA_KERNELS_H
#define TG_EXEC_CUDA_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_gpu_span {
    const uint8_t *bytes;
    uint64_t len;
} tg_gpu_span;

/* ---- hash.cu -------------------------------------------------------------------------------------------------------------- */

/* out[i]: the hash of span i. `leaves` has space for span_n * leaf_cap words; no span has more than leaf_cap leaves, which is at
 * most 512. Up to 7 bytes before and after a span must be readable. */
void tg_gpu_hash(uint64_t *out, uint64_t *leaves, const tg_gpu_span *spans, uint32_t span_n, uint32_t leaf_cap,
                 void *stream);

#ifdef __cplusplus
}
#endif
#endif
