/* Tensors, gradients and buffers that costs are measured on, in host or device memory; for `tersegrad probe`. */
#ifndef CLI_PROBE_WORKSPACE_H
#define CLI_PROBE_WORKSPACE_H

#include "device.h"
#include "probe_machine.h"

enum { CLI_TENSOR_MAX = 128 };

/* Tensors laid end to end, of kinds conv and dense in turn, and their gradients, which begin further on from step to step. */
typedef struct cli_tensors {
    tg_tensor of[CLI_TENSOR_MAX];
    uint64_t dims[CLI_TENSOR_MAX][2];
    char names[CLI_TENSOR_MAX][16];
    size_t tensor_n, n;
    double chunks; /* of a frame */
} cli_tensors;

/* Two long tensors of n elements together; with ends, between two short ones. */
void cli_tensors_long(cli_tensors *out, uint64_t n, int has_ends);
/* As many short ones as can be; four that are hardly there. */
void cli_tensors_short(cli_tensors *out);
void cli_tensors_tiny(cli_tensors *out);

/* Places of the tensors in a buffer. */
void cli_tensors_place(void *out[CLI_TENSOR_MAX], const cli_tensors *t, const float *buffer);

typedef struct cli_workspace {
    const cli_device *device;
    const float *host;   /* gradients of all steps */
    const float *values; /* the same on the device */
    size_t value_n;
    float *synthetic; /* gradients, if the caller gives none */
    cli_copy copy;    /* of gradients, on a GPU */
    float *sums[2];   /* as long as the largest gradient */
    uint8_t *frame;
    size_t frame_cap;
    uint8_t *eviction; /* of a CPU: more than its caches hold */
    int code;          /* of a device that has failed */
} cli_workspace;

/* For all sizes of `how`. Close in any case. */
int cli_workspace_open(cli_workspace *w, const cli_measuring *how);
void cli_workspace_close(cli_workspace *w);

/* Makes the frame at least so long. */
int cli_workspace_reserve(cli_workspace *w, size_t frame_len);

/* The largest number of elements that `how` measures. */
uint64_t cli_measuring_largest(const cli_measuring *how);

/* Gradients of a step. */
const float *cli_workspace_gradients(const cli_workspace *w, const cli_tensors *t, uint64_t step);

/* Evicts gradients and residuals from the caches of a CPU, as computing does between two steps. */
void cli_workspace_evict_caches(cli_workspace *w);

/* The time when all that was started is done: of a thread's own clock where one thread computes. */
double cli_workspace_now(cli_workspace *w, uint32_t threads);

/* What an element, a chunk and, if `tiny` is not 0, a call cost, by the seconds that three sets of tensors take. */
typedef struct cli_size {
    double elements, chunks, seconds;
} cli_size;
cli_pass_cost cli_pass_cost_solve(cli_size lo, cli_size sh, double tiny);

#endif
