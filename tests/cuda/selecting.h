/* Sparse units of a codec on the emulated GPU, to be compared with what the host makes of them. */
#ifndef TG_TESTS_CUDA_SELECTING_H
#define TG_TESTS_CUDA_SELECTING_H

#include "exec/cuda/select.h"
#include "exec/host.h"
#include "frame/codec.h"
#include "support.h"

/* The device's side of a codec, in host memory, as the emulation has it. */
typedef struct test_gpu {
    tg_gpu_unit *units;
    tg_gpu_piece *pieces;
    tg_gpu_chunk *chunks;
    tg_gpu_tile *tiles;
    uint32_t *tile_first;
    tg_gpu_selection selection;
    void *host_part, *device_part;
    tg_gpu_verdict verdict;
    float *maxima, *next;
    uint8_t *bytes;
    uint32_t chunk_n;
    tg_gpu_pass pass;
} test_gpu;

/* Memory that holds no zeros; to be freed. */
void *test_space(uint64_t len);

test_gpu test_gpu_open(const tg_codec *c);
void test_gpu_close(test_gpu *d);

/* Whether the kernels of selection write the scale of a unit's signs, and subtract it from residuals. */
bool test_gpu_lists_scale(const tg_unit_plan *u);

/* Encodes what is sparse, from the residuals that the codec has now. Returns how often it had to be begun again. */
uint32_t test_gpu_encode(test_gpu *d, const tg_codec *c, uint64_t step, const tg_source *source);

/* Fail the test, naming `what`, unless a chunk, the next residuals, or coordinates that are read again are those of the host. */
void test_gpu_compare_chunk(const test_gpu *d, const tg_codec *c, uint32_t i, const char *what);
void test_gpu_compare_residuals(const test_gpu *d, const tg_codec *c, const char *what);
void test_gpu_read_back(test_gpu *d, const tg_codec *c, const char *what);

#endif
