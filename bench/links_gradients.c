/* Gradients of bench_links; see links_gradients.h. */
#include "links_gradients.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_N = 1 << 20 };

float *pool_new(uint64_t seed)
{
    float *pool = malloc(POOL_N * sizeof *pool);
    for (size_t i = 0; i < POOL_N && pool != NULL; i++) {
        double u[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            u[k] = ((double)(seed >> 11) + 0.5) * 0x1p-53;
        }
        pool[i] = (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]) * exp(1.5 * u[2]) * 1e-3);
    }
    return pool;
}

void fill(float *grad, uint64_t n, const float *common, const float *own, uint64_t step)
{
    uint64_t a = step * 7919, b = step * 104729 + 31;
    for (uint64_t i = 0; i < n; i++) {
        grad[i] = 0.5F * (common[(i + a) % POOL_N] + own[(i * 3 + b) % POOL_N]);
    }
}

/* The file is .npy of version 1, whose header is padded to a multiple of 64 bytes. Longer than the probe's largest
 * size, so that steps may begin further on. */
bool write_gradient(const char *path)
{
    enum { N = 9 << 20, HEADER = 128 };
    float *common = pool_new(1), *own = pool_new(100), *grad = malloc(N * sizeof *grad);
    char header[HEADER + 1];
    FILE *file = fopen(path, "wb");
    bool is_sound = common != NULL && own != NULL && grad != NULL && file != NULL;
    if (is_sound) {
        fill(grad, N, common, own, 0);
    }
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(header + 10, sizeof header - 10, "%-117s\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (9437184,), }");
    is_sound = is_sound && fwrite(header, 1, HEADER, file) == HEADER && fwrite(grad, sizeof *grad, N, file) == N;
    if (file != NULL && fclose(file) != 0) {
        is_sound = false;
    }
    free(grad);
    free(own);
    free(common);
    return is_sound;
}
