/* The memory of the emulated GPU.
 *
 * New memory is filled with 0xA5, or with the byte TG_EMULATED_NEW. Bytes after each block are checked when it is released. With
 * TG_EMULATED_PROTECT in the environment, only kernels and copies can touch device memory: to all other code it is protected, as on a
 * machine with a GPU. That costs two calls of mprotect a kernel. With TG_EMULATED_REACH, all memory counts as memory of the GPU, so that
 * programs that allocate it themselves can be tested. With TG_EMULATED_EDGE=after or =before, what is after or before a block cannot be
 * touched at all, reads included: a page that is protected is there. */
#ifndef TG_EXEC_CUDA_EMULATE_MEMORY_H
#define TG_EXEC_CUDA_EMULATE_MEMORY_H

#include <stdint.h>

/* A block of device memory or of pinned host memory; NULL: there is none. */
void *tg_emulated_take(uint64_t len, int is_pinned);
void tg_emulated_give_back(const void *start, int is_pinned);

/* Whether an address is in device memory, or in pinned memory; whether kernels may use all of these bytes. */
int tg_emulated_is_device(const void *at);
int tg_emulated_is_pinned(const void *at);
int tg_emulated_has(const void *at, uint64_t len);

/* Ends the program with a sentence. */
void tg_emulated_give_up(const char *what);

#endif
