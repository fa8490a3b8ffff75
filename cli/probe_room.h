/* Tensors, gradients and buffers that costs are measured on, in host or device memory; for `tersegrad probe`. */
#ifndef CLI_PROBE_ROOM_H
#define CLI_PROBE_ROOM_H

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

typedef struct cli_room {
    const cli_device *device;
    const float *host;   /* gradients of all steps */
    const float *values; /* the same on the device */
    size_t value_n;
    float *made;    /* values that are not the caller's */
    cli_copy all;   /* of them on a GPU */
    float *sums[2]; /* as long as the largest gradient */
    uint8_t *frame;
    size_t frame_cap;
    int code; /* of a device that has failed */
} cli_room;

/* Room for all sizes of `how`. Close in any case. */
int cli_room_open(cli_room *r, const cli_measuring *how);
void cli_room_close(cli_room *r);
int cli_room_grow(cli_room *r, size_t frame_len);

/* The largest number of elements that `how` measures. */
uint64_t cli_measuring_largest(const cli_measuring *how);

/* Gradients of a step. */
const float *cli_room_values(const cli_room *r, const cli_tensors *t, uint64_t step);

/* The time when all that was started is done: of a thread's own clock where one thread computes. */
double cli_room_now(cli_room *r, uint32_t threads);

/* What an element, a chunk and, if `tiny` is not 0, a call cost, by the seconds that three sets of tensors take. */
typedef struct cli_size {
    double elements, chunks, seconds;
} cli_size;
cli_pass_cost cli_room_solve(cli_size lo, cli_size sh, double tiny);

#endif
