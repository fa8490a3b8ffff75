/* Timing of codecs; see bench_run.h. Rounds of memcpy, encode and decode take turns, so that whatever else the machine does
 * meets all of them alike, and the median of the rounds counts.
 *
 * A gradient that never changes would drive feedback into a state that no training knows: every residual grows
 * evenly, and schemes that adapt send many times as much. So there are more elements than the gradient has, and
 * step by step it begins further on among them.
 */
#include "bench_run.h"

#include <tersegrad/experimental.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "synth.h"

enum { ROUND_MIN = 3, ROUND_MAX = 20000 };

/* ---- the gradient ---------------------------------------------------------------------------------- */

static int make_synthetic(cli_subject *s, const cli_args *args)
{
    /* Layers of synthetic gradients are longer than all steps' shifts together, so that most elements keep their scale. */
    enum { SHIFT = 64, STEP_N = 33 };
    size_t element_len = tg_dtype_len((tg_dtype)args->dtype);
    uint64_t n = s->shapes.tensor_n > 0 ? s->shapes.element_n : args->n;
    if (n > SIZE_MAX / sizeof(float) - SHIFT * STEP_N) {
        return cli_fail_memory();
    }
    s->n = (size_t)n;
    s->len = s->n * element_len;
    s->dim = n;
    s->shift = SHIFT;
    s->step_n = STEP_N;
    s->tensor = (tg_tensor){"synthetic", &s->dim, 1, TG_DENSE, (tg_dtype)args->dtype};
    size_t all_n = s->n + SHIFT * (STEP_N - 1);
    float *values = malloc(all_n * sizeof *values);
    s->made = malloc(all_n * element_len);
    s->grad = s->made;
    if (values == NULL || s->made == NULL) {
        free(values);
        return cli_fail_memory();
    }
    cli_synth_gradient(values, all_n, args->seed);
    tg_narrow(s->made, values, (tg_dtype)args->dtype, all_n);
    free(values);
    return CLI_OK;
}

/* The same values in another dtype. Files of NumPy's know no bf16, so this is how one is measured on recorded gradients. */
static int convert(cli_subject *s, tg_dtype dtype, size_t all_n)
{
    float *values = all_n <= SIZE_MAX / sizeof(float) ? malloc(all_n * sizeof *values) : NULL;
    s->made = malloc(all_n * tg_dtype_len(dtype));
    if (values == NULL || s->made == NULL) {
        free(values);
        return cli_fail_memory();
    }
    tg_widen(values, s->grad, s->tensor.dtype, all_n);
    tg_narrow(s->made, values, dtype, all_n);
    free(values);
    s->grad = s->made;
    s->tensor.dtype = dtype;
    return CLI_OK;
}

static int load_input(cli_subject *s, const cli_args *args)
{
    int code = cli_model_load_one(&s->model, args->input);
    if (code != CLI_OK) {
        return code;
    }
    s->tensor = s->model.tensors[0];
    s->grad = s->model.grads[0];
    s->n = (size_t)s->model.element_n;
    s->step_n = 1;
    size_t all_n = s->n;
    if (cli_args_has(args, CLI_FLAG_SHIFT)) {
        if (args->n > all_n || args->shift > all_n - args->n) {
            return cli_fail(CLI_MISUSE, "%s has %zu elements: too few for two steps with --n %llu and --shift %llu",
                            args->input, all_n, (unsigned long long)args->n, (unsigned long long)args->shift);
        }
        s->dim = args->n;
        s->tensor.dims = &s->dim;
        s->tensor.dim_n = 1;
        s->n = (size_t)args->n;
        s->shift = (size_t)args->shift;
        s->step_n = (all_n - s->n) / s->shift + 1;
    }
    if (cli_args_has(args, CLI_FLAG_DTYPE)) {
        code = convert(s, (tg_dtype)args->dtype, all_n);
    }
    s->len = s->n * tg_dtype_len(s->tensor.dtype);
    return code;
}

int cli_subject_make(cli_subject *out, const cli_args *args)
{
    *out = (cli_subject){0};
    int code = args->shapes != NULL ? cli_shapes_read(&out->shapes, args->shapes, (tg_dtype)args->dtype) : CLI_OK;
    if (code != CLI_OK) {
        return code;
    }
    return args->input != NULL ? load_input(out, args) : make_synthetic(out, args);
}

void cli_subject_free(cli_subject *s)
{
    free(s->made);
    cli_shapes_free(&s->shapes);
    cli_model_free(&s->model);
}

/* ---- a codec and its buffers ----------------------------------------------------------------------- */

static uint64_t elements_of(const tg_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->dim_n; d++) {
        n *= t->dims[d];
    }
    return n;
}

static int acquire(cli_timing *b)
{
    b->frame_cap = tg_encode_bound(b->codec);
    int code = cli_device_acquire(&b->frame, b->device, b->frame_cap);
    code = code == CLI_OK ? cli_device_acquire(&b->copy, b->device, b->subject->len) : code;
    code = code == CLI_OK ? cli_device_acquire(&b->sums, b->device, b->subject->n * sizeof(float)) : code;
    if (code != CLI_OK) {
        return code;
    }
    b->grads = calloc(b->tensor_n * b->subject->step_n, sizeof *b->grads);
    b->sum_of = calloc(b->tensor_n, sizeof *b->sum_of);
    int sound = b->grads != NULL && b->sum_of != NULL;
    for (int op = 0; op < CLI_OP_N; op++) {
        b->times[op] = malloc(ROUND_MAX * sizeof(double));
        sound = sound && b->times[op] != NULL;
    }
    return sound ? CLI_OK : cli_fail_memory();
}

static void place_tensors(const cli_timing *b)
{
    const cli_subject *s = b->subject;
    size_t element_len = tg_dtype_len(s->tensor.dtype), at = 0;
    for (size_t t = 0; t < b->tensor_n; t++) {
        b->sum_of[t] = b->sums + at;
        for (size_t step = 0; step < s->step_n; step++) {
            b->grads[step * b->tensor_n + t] = b->grad + (step * s->shift + at) * element_len;
        }
        at += (size_t)elements_of(&b->tensors[t]);
    }
}

/* Gradients of all steps to the device. Buffers are touched once, so that no round pays for the first use of a page. */
static int place_gradients(cli_timing *b)
{
    const cli_subject *s = b->subject;
    size_t element_len = tg_dtype_len(s->tensor.dtype), len = (s->n + (s->step_n - 1) * s->shift) * element_len;
    b->grad = s->grad;
    if (b->device->gpu == NULL) {
        memset(b->frame, 0, b->frame_cap);
        memset(b->copy, 0, s->len);
        for (size_t i = 0; i < s->n; i++) {
            b->sums[i] = 0;
        }
        return CLI_OK;
    }
    float *zeros = calloc(s->n, sizeof *zeros);
    int code = zeros == NULL ? cli_fail_memory() : cli_device_copy(b->device, b->sums, zeros, s->n * sizeof *zeros);
    code = code == CLI_OK ? cli_copy_new(&b->all, b->device, (void *)(uintptr_t)s->grad, len) : code;
    code = code == CLI_OK ? cli_copy_in(&b->all, b->device, len) : code;
    b->grad = b->all.device;
    free(zeros);
    return code;
}

int cli_timing_open(cli_timing *out, const cli_subject *s, const tg_tensor *tensors, size_t tensor_n,
                    const char *recipe, const tg_options *opt, const cli_device *device)
{
    tg_detail why;
    *out = (cli_timing){.subject = s, .device = device, .tensors = tensors, .tensor_n = tensor_n, .weight = -1.0f};
    tg_status status = tg_codec_new(&out->codec, recipe, tensors, tensor_n, opt, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    int code = acquire(out);
    if (code == CLI_OK && opt->threads > 1 && device->gpu == NULL) {
        code = cli_copier_new(&out->copier, opt->threads);
    }
    if (code != CLI_OK) {
        return code;
    }
    code = place_gradients(out);
    if (code == CLI_OK) {
        place_tensors(out);
    }
    return code;
}

void cli_timing_free(cli_timing *b)
{
    for (int op = 0; op < CLI_OP_N; op++) {
        free(b->times[op]);
    }
    cli_copier_free(b->copier);
    free(b->sum_of);
    free(b->grads);
    tg_codec_free(b->codec);
    if (b->device != NULL) {
        cli_copy_free(&b->all, b->device);
        cli_device_release(b->device, b->frame);
        cli_device_release(b->device, b->copy);
        cli_device_release(b->device, b->sums);
    }
}

/* ---- timing ---------------------------------------------------------------------------------------- */

static tg_status run_once(cli_timing *b, int op, tg_detail *why)
{
    const void **grads = b->grads + (size_t)(b->step % b->subject->step_n) * b->tensor_n;
    switch (op) {
    case CLI_OP_COPY:
        if (cli_device_copy(b->device, b->copy, grads[0], b->subject->len) != CLI_OK) {
            return TG_E_ARGUMENT;
        }
        /* A copy that nobody reads could be left out by the compiler. */
        __asm__ volatile("" : : "r"(b->copy) : "memory");
        return TG_OK;
    case CLI_OP_COPY_ALL: cli_copier_run(b->copier, b->copy, grads[0], b->subject->len); return TG_OK;
    case CLI_OP_ENCODE: return tg_encode(&b->frame_len, b->codec, b->frame, b->frame_cap, b->step++, grads, why);
    case CLI_OP_DECODE:
        b->weight = -b->weight; /* so that the sums stay where they are, however often this runs */
        return tg_decode_add(b->codec, b->sum_of, b->weight, b->frame, b->frame_len, why);
    default:
        b->weight = -b->weight;
        return tg_decode_add_private(b->codec, b->sum_of, b->weight, b->frame, b->frame_len, why);
    }
}

/* Seconds for one run, from `repeats` in a row. */
static int time_op(double *out, cli_timing *b, int op, size_t repeats)
{
    tg_detail why;
    double start = cli_clock_now();
    for (size_t i = 0; i < repeats; i++) {
        tg_status status = run_once(b, op, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
    }
    int code = cli_device_wait(b->device);
    *out = (cli_clock_now() - start) / (double)repeats;
    return code;
}

/* Warms everything up and finds how many runs in a row are long enough for the clock. */
static int warm_up(cli_timing *b)
{
    const double long_enough = 0.5e-3;
    for (int op = 0; op < CLI_OP_N; op++) {
        double once = 0;
        size_t repeats = 1;
        if (op == CLI_OP_COPY_ALL && b->copier == NULL) {
            continue;
        }
        int code = time_op(&once, b, op, 1);
        if (code == CLI_OK) {
            b->first_len = op == CLI_OP_ENCODE ? b->frame_len : b->first_len;
            code = time_op(&once, b, op, 1);
        }
        while (code == CLI_OK && once * (double)repeats < long_enough && repeats < 1u << 20) {
            repeats *= 2;
            code = time_op(&once, b, op, repeats);
        }
        if (code != CLI_OK) {
            return code;
        }
        b->repeats[op] = repeats;
    }
    return CLI_OK;
}

static int run_round(cli_timing *b)
{
    for (int op = 0; op < CLI_OP_N; op++) {
        double *seconds = &b->times[op][b->round_n];
        bool is_known = op == CLI_OP_COPY_ALL && b->copier == NULL;
        *seconds = is_known ? b->times[CLI_OP_COPY][b->round_n] : 0;
        int code = is_known ? CLI_OK : time_op(seconds, b, op, b->repeats[op]);
        if (code != CLI_OK) {
            return code;
        }
    }
    b->round_n++;
    return CLI_OK;
}

int cli_timing_run(double *spent, cli_timing *benches, size_t bench_n, double seconds)
{
    int code = CLI_OK;
    for (size_t i = 0; i < bench_n && code == CLI_OK; i++) {
        code = warm_up(&benches[i]);
    }
    double start = cli_clock_now(), all = CLI_OP_N * (double)bench_n * seconds;
    *spent = 0;
    while (code == CLI_OK && benches->round_n < ROUND_MAX && (*spent < all || benches->round_n < ROUND_MIN)) {
        for (size_t i = 0; i < bench_n && code == CLI_OK; i++) {
            code = run_round(&benches[i]);
        }
        *spent = cli_clock_now() - start;
    }
    for (size_t i = 0; i < bench_n && code == CLI_OK; i++) {
        cli_timing *b = &benches[i];
        tg_detail why;
        tg_status status = tg_frame_inspect(&b->last, b->codec, b->frame, b->frame_len, &why);
        code = status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
    }
    return code;
}

double cli_timing_seconds(const cli_timing *b, int op)
{
    return cli_median(b->times[op], b->round_n);
}

double cli_timing_speed(const cli_timing *b, int op)
{
    return (double)b->subject->len / cli_timing_seconds(b, op) / 1e9;
}
