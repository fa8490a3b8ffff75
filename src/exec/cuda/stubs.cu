#include "exec/cuda/kernels.h"
void tg_gpu_write_indices(const tg_gpu_pass *) {}
void tg_gpu_encode_values(const tg_gpu_pass *) {}
void tg_gpu_read_indices(const tg_gpu_pass *, const uint8_t *, const tg_gpu_selection *) {}
