/* Gradients to measure, and the timing of memcpy, encode and decode on them; for `tersegrad bench`. */
#ifndef CLI_BENCH_RUN_H
#define CLI_BENCH_RUN_H

#include "args.h"
#include "copier.h"
#include "device.h"
#include "model.h"
#include "shapes.h"

/* The gradients that are measured: those of one tensor, or of the tensors of --shapes laid end to end. */
typedef struct cli_subject {
    cli_model model;   /* of --input; else empty */
    cli_shapes shapes; /* of --shapes; else empty */
    tg_tensor tensor;  /* all elements as one */
    uint64_t dim;
    const uint8_t *grad; /* that of step 0: n elements, len bytes */
    void *made; /* gradients that are no file's, freed with this: synthetic, or in another dtype than their file's */
    size_t n;
    size_t len;
    size_t shift;  /* elements from the beginning of one step's gradient to the next's ... */
    size_t step_n; /* ... until they begin anew */
} cli_subject;

/* Makes or loads them, as the flags say. Free `out` in any case. */
int cli_subject_make(cli_subject *out, const cli_args *args);
void cli_subject_free(cli_subject *s);

enum {
    CLI_OP_COPY,
    CLI_OP_COPY_ALL,
    CLI_OP_ENCODE,
    CLI_OP_DECODE,
    CLI_OP_SUM,
    CLI_OP_N
}; /* COPY_ALL: by all threads */

/* One codec and its buffers. */
typedef struct cli_timing {
    const cli_subject *subject;
    const cli_device *device;
    const uint8_t *grad; /* the subject's, on the device */
    cli_copy all;        /* of all steps */
    const tg_tensor *tensors;
    size_t tensor_n;
    tg_codec *codec;
    cli_copier *copier; /* NULL: one thread copies as fast as all, or a GPU copies */
    const void **grads; /* of all steps, `tensor_n` each */
    float **sum_of;     /* where each tensor's sums begin in `sums` */
    uint8_t *frame;
    size_t frame_cap, frame_len, first_len; /* of the last step's frame, and of the first's */
    void *copy;
    float *sums;
    uint64_t step;
    float weight;
    size_t repeats[CLI_OP_N]; /* runs of an operation in one round */
    double *times[CLI_OP_N];  /* seconds of one run, round by round */
    size_t round_n;
    tg_frame_info last; /* of the frame that was decoded last */
} cli_timing;

/* Opens a codec of these tensors, which together have as many elements as the subject. Free `out` in any case. */
int cli_timing_open(cli_timing *out, const cli_subject *s, const tg_tensor *tensors, size_t tensor_n,
                    const char *recipe, const tg_options *opt, const cli_device *device);
void cli_timing_free(cli_timing *b);

/* Times all of them in turns, until each operation has had so many seconds. *spent is the time that it took. */
int cli_timing_run(double *spent, cli_timing *benches, size_t bench_n, double seconds);

/* Seconds of one run, by the median round; and gradient bytes a second, in 1e9. */
double cli_timing_seconds(const cli_timing *b, int op);
double cli_timing_speed(const cli_timing *b, int op);

#endif
