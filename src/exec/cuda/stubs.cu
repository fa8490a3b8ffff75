#include "exec/cuda/kernels.h"
uint64_t tg_gpu_pack_scratch(const tg_gpu_unit *) { return 0; }
const char *tg_gpu_pack_lacks(const tg_gpu_unit *u) { return u->plain_len != 0 && !u->coded ? nullptr : "stub"; }
void tg_gpu_pack_symbols(const tg_gpu_pass *, uint8_t *) {}
void tg_gpu_pack_words(const tg_gpu_pass *, uint8_t *) {}
void tg_gpu_read_symbols(const tg_gpu_pass *, const uint8_t *, uint8_t *) {}
void tg_gpu_read_words(const tg_gpu_pass *, const uint8_t *, uint8_t *) {}
void tg_gpu_write_indices(const tg_gpu_pass *) {}
void tg_gpu_encode_values(const tg_gpu_pass *) {}
void tg_gpu_read_indices(const tg_gpu_pass *, const uint8_t *, const tg_gpu_selection *) {}
