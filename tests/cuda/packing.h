/* Chunks of symbols and words that tests pack and read on the GPU, or on its emulation, and on the host. */
#ifndef TG_TESTS_CUDA_PACKING_H
#define TG_TESTS_CUDA_PACKING_H

#include "support.h"

#include "exec/cuda/kernels.h"
#include "pack/pack.h"

enum { PACKING_CHUNKS = 64 };

/* A chunk: symbols of a base, or words of word_len bytes if the base is 0. */
typedef struct packing_chunk {
    uint32_t base, word_len, count;
    uint32_t pack;     /* TG_GPU_BITS, ... */
    uint32_t quantize; /* TG_GPU_FP4, TG_GPU_FP8 or 0: any other */
    bool by_model;     /* huffman with table=model */
    uint8_t row;       /* of the shapes, which travels with the bucket */
    bool is_sparse;
    uint16_t *symbols; /* as the host has them */
    uint8_t *words;
    uint8_t *bytes; /* as the host writes them */
    size_t len;
} packing_chunk;

/* Chunks and the memory of a pass over them. */
typedef struct packing {
    packing_chunk chunks[PACKING_CHUNKS];
    uint32_t chunk_n;
    tg_gpu_pass pass;
    tg_gpu_unit *units;
    tg_gpu_chunk *table;
    tg_gpu_tile *tiles;
    uint8_t *out, *scratch, *body;
    uint64_t elements, out_len;
} packing;

/* Values of a distribution, number 0 to PACKING_SHAPES - 1; or 128 of the symbols, each about as often, so that codes of all of them have 7
 * bits. */
enum { PACKING_SHAPES = 6, PACKING_SEVEN_BITS = PACKING_SHAPES };
void packing_draw(packing_chunk *c, uint32_t shape, uint64_t seed);

/* Adds a chunk, which is drawn and encoded by the host. */
void packing_add(packing *p, packing_chunk c, uint32_t shape, uint64_t seed);

/* Memory for the pass; then what the kernels write for each chunk is compared with the host's, byte by byte. */
void packing_open(packing *p);
void packing_check_writing(packing *p);

/* Reads what the host wrote, and compares symbols and words. */
void packing_check_reading(packing *p);

/* Whether the host and the kernels take these bytes for chunk 0, which is the only one. Fails the test if they disagree. */
bool packing_is_sound(packing *p, const uint8_t *bytes, size_t len);

void packing_close(packing *p);

#endif
