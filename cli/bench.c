/* `tersegrad bench`: speed, size and error of a recipe on a gradient, beside memcpy in the same run. What is
 * timed is checked first (check.h). Rounds of memcpy, encode and decode take turns, so that whatever else the
 * machine does meets all three alike, and the median of the rounds counts.
 *
 * A gradient that never changes would drive feedback into a state that no training knows: every residual grows
 * evenly, and schemes that adapt send many times as much. So there are more elements than the gradient has, and
 * step by step it begins further on among them.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "commands.h"
#include "fail.h"
#include "json.h"
#include "model.h"
#include "synth.h"
#include "table.h"
#include "text.h"

enum { OP_COPY, OP_ENCODE, OP_DECODE, OP_N };
enum { ROUND_MIN = 3, ROUND_MAX = 20000 };

/* The gradients that are measured. */
typedef struct subject {
    cli_model model; /* of --input; else empty */
    tg_tensor tensor;
    uint64_t dim;
    const uint8_t *grad; /* that of step 0: n elements, len bytes */
    void *
        made; /* what must be freed of gradients that are no file's: synthetic, or in another dtype than their file's */
    size_t n;
    size_t len;
    size_t shift;  /* elements from the beginning of one step's gradient to the next's ... */
    size_t step_n; /* ... until they begin anew */
} subject;

static const void *grad_of(const subject *s, uint64_t step)
{
    return s->grad + (size_t)(step % s->step_n) * s->shift * tg_dtype_len(s->tensor.dtype);
}

typedef struct bench {
    const subject *subject;
    tg_codec *codec;
    uint8_t *frame;
    size_t frame_cap, frame_len;
    void *copy;
    float *sums;
    uint64_t step;
    float weight;
    size_t repeats[OP_N]; /* runs of an operation in one round */
    double *times[OP_N];  /* seconds of one run, round by round */
    size_t round_n;
    double seconds;
    tg_frame_info last; /* of the frame that was decoded last */
} bench;

/* ---- the gradient ---------------------------------------------------------------------------------- */

static int make_synthetic(subject *s, const cli_args *args)
{
    /* Layers of synthetic gradients are longer than all steps' shifts together, so that most elements keep their scale. */
    enum { SHIFT = 64, STEP_N = 33 };
    size_t element_len = tg_dtype_len((tg_dtype)args->dtype);
    if (args->n > SIZE_MAX / sizeof(float) - SHIFT * STEP_N) {
        return cli_fail_memory();
    }
    s->n = (size_t)args->n;
    s->len = s->n * element_len;
    s->dim = args->n;
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
static int convert(subject *s, tg_dtype dtype, size_t all_n)
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

static int load_input(subject *s, const cli_args *args)
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

static void free_subject(subject *s)
{
    free(s->made);
    cli_model_free(&s->model);
}

/* ---- timing ---------------------------------------------------------------------------------------- */

static tg_status run_once(bench *b, int op, tg_detail *why)
{
    const void *grads[1] = {grad_of(b->subject, b->step)};
    float *sums[1] = {b->sums};
    switch (op) {
    case OP_COPY:
        memcpy(b->copy, grads[0], b->subject->len);
        /* A copy that nobody reads could be left out by the compiler. */
        __asm__ volatile("" : : "r"(b->copy) : "memory");
        return TG_OK;
    case OP_ENCODE: return tg_encode(&b->frame_len, b->codec, b->frame, b->frame_cap, b->step++, grads, why);
    default:
        b->weight = -b->weight; /* so that the sums stay where they are, however often this runs */
        return tg_decode_add(b->codec, sums, b->weight, b->frame, b->frame_len, why);
    }
}

/* Seconds for one run, from `repeats` in a row. */
static int time_op(double *out, bench *b, int op, size_t repeats)
{
    tg_detail why;
    double start = cli_clock_now();
    for (size_t i = 0; i < repeats; i++) {
        tg_status status = run_once(b, op, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
    }
    *out = (cli_clock_now() - start) / (double)repeats;
    return CLI_OK;
}

/* Warms everything up and finds how many runs in a row are long enough for the clock. */
static int warm_up(bench *b)
{
    const double long_enough = 0.5e-3;
    for (int op = 0; op < OP_N; op++) {
        double once = 0;
        size_t repeats = 1;
        int code = time_op(&once, b, op, 1);
        if (code == CLI_OK) {
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

/* Rounds until the three operations together have had three times the seconds that each was promised. */
static int run_rounds(bench *b, double seconds)
{
    double start = cli_clock_now();
    double spent = 0;
    while (b->round_n < ROUND_MAX && (spent < 3 * seconds || b->round_n < ROUND_MIN)) {
        for (int op = 0; op < OP_N; op++) {
            int code = time_op(&b->times[op][b->round_n], b, op, b->repeats[op]);
            if (code != CLI_OK) {
                return code;
            }
        }
        b->round_n++;
        spent = cli_clock_now() - start;
    }
    b->seconds = spent;
    tg_detail why;
    tg_status status = tg_frame_inspect(&b->last, b->codec, b->frame, b->frame_len, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Gradient bytes per second, in 1e9, by the median round. */
static double speed(const bench *b, int op)
{
    qsort(b->times[op], b->round_n, sizeof(double), by_value);
    return (double)b->subject->len / b->times[op][b->round_n / 2] / 1e9;
}

static void free_bench(bench *b)
{
    for (int op = 0; op < OP_N; op++) {
        free(b->times[op]);
    }
    free(b->frame);
    free(b->copy);
    free(b->sums);
    tg_codec_free(b->codec);
}

static int start_bench(bench *b, const subject *s, const char *recipe, const tg_options *opt)
{
    tg_detail why;
    *b = (bench){.subject = s, .weight = -1.0f};
    tg_status status = tg_codec_new(&b->codec, recipe, &s->tensor, 1, opt, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    b->frame_cap = tg_encode_bound(b->codec);
    b->frame = malloc(b->frame_cap);
    b->copy = malloc(s->len);
    b->sums = malloc(s->n * sizeof(float));
    int sound = b->frame != NULL && b->copy != NULL && b->sums != NULL;
    for (int op = 0; op < OP_N; op++) {
        b->times[op] = malloc(ROUND_MAX * sizeof(double));
        sound = sound && b->times[op] != NULL;
    }
    if (!sound) {
        return cli_fail_memory();
    }
    /* Touched once, so that no round pays for the first use of a page. */
    memset(b->frame, 0, b->frame_cap);
    memset(b->copy, 0, s->len);
    for (size_t i = 0; i < s->n; i++) {
        b->sums[i] = 0;
    }
    return CLI_OK;
}

/* ---- results --------------------------------------------------------------------------------------- */

typedef struct result {
    double speeds[OP_N];
    double frame_len; /* of the first step */
    double bits;
    double ratio;
    double paper_ratio; /* NAN if the scheme's paper has no count of its own */
} result;

static result result_of(const bench *b, const cli_check_result *check)
{
    result r = {.frame_len = (double)(check->info.header_len + check->info.payload_len)};
    for (int op = 0; op < OP_N; op++) {
        r.speeds[op] = speed(b, op);
    }
    r.bits = r.frame_len * 8 / (double)b->subject->n;
    r.ratio = (double)b->subject->len / r.frame_len;
    r.paper_ratio = check->paper_len > 0 ? (double)b->subject->len / (double)check->paper_len : NAN;
    return r;
}

static int print_json(const cli_args *args, const bench *b, const cli_check_result *check)
{
    result r = result_of(b, check);
    cli_json json;
    cli_json_begin_as(&json, stdout, args->csv, NULL);
    cli_json_text(&json, "recipe", check->recipe);
    cli_json_count(&json, "n", b->subject->n);
    cli_json_count(&json, "threads", args->threads);
    cli_json_number(&json, "encode_gbps", r.speeds[OP_ENCODE]);
    cli_json_number(&json, "decode_gbps", r.speeds[OP_DECODE]);
    cli_json_number(&json, "memcpy_gbps", r.speeds[OP_COPY]);
    cli_json_number(&json, "encode_vs_memcpy", r.speeds[OP_ENCODE] / r.speeds[OP_COPY]);
    cli_json_number(&json, "decode_vs_memcpy", r.speeds[OP_DECODE] / r.speeds[OP_COPY]);
    cli_json_number(&json, "bits_per_value", r.bits);
    cli_json_number(&json, "ratio", r.ratio);
    cli_json_number(&json, "paper_ratio", r.paper_ratio);
    cli_json_number(&json, "nmse", check->nmse);
    cli_json_text(&json, "simd", tg_simd());
    cli_json_number(&json, "frame_bytes", r.frame_len);
    cli_json_count(&json, "entries", check->info.entry_n);
    cli_json_count(&json, "last_step", b->last.step);
    cli_json_count(&json, "last_frame_bytes", b->frame_len);
    cli_json_count(&json, "last_entries", b->last.entry_n);
    cli_json_text(&json, "input", args->input);
    cli_json_text(&json, "dtype", tg_dtype_name(b->subject->tensor.dtype));
    cli_json_count(&json, "rounds", b->round_n);
    cli_json_number(&json, "seconds", b->seconds);
    return cli_json_finish(&json);
}

static void add_speed(cli_table *table, const char *name, const result *r, int op)
{
    char a[CLI_NUMBER_CAP], b[CLI_NUMBER_CAP];
    cli_table_row(table, name, cli_text_short(a, r->speeds[op]),
                  cli_text_number(b, r->speeds[op] / r->speeds[OP_COPY], 3));
}

static int print_text(const cli_args *args, const bench *b, const cli_check_result *check)
{
    result r = result_of(b, check);
    char line[256], x[CLI_NUMBER_CAP], y[CLI_NUMBER_CAP], z[CLI_NUMBER_CAP];
    cli_table facts, speeds;
    cli_table_init(&facts, "ll");
    cli_table_row(&facts, "recipe", check->recipe);
    snprintf(line, sizeof line, "%s values, %s, %s bytes, %s", cli_text_count(x, b->subject->n),
             tg_dtype_name(b->subject->tensor.dtype), cli_text_count(y, b->subject->len),
             args->input != NULL ? "from the file" : "synthetic");
    cli_table_row(&facts, "gradient", line);
    snprintf(line, sizeof line, "%s; same bytes again and with one thread", check->law);
    cli_table_row(&facts, "checked", line);
    snprintf(line, sizeof line, "%s bytes: %s to 1, %s bits per value", cli_text_count(x, (uint64_t)r.frame_len),
             cli_text_short(y, r.ratio), cli_text_short(z, r.bits));
    cli_table_row(&facts, "frame", line);
    if (check->paper_len > 0) {
        snprintf(line, sizeof line, "%s bytes as the scheme's paper counts: %s to 1",
                 cli_text_count(x, check->paper_len), cli_text_short(y, r.paper_ratio));
        cli_table_row(&facts, "", line);
    }
    if (b->frame_len != (size_t)r.frame_len) {
        snprintf(line, sizeof line, "%s bytes in step %s: %s to 1", cli_text_count(x, b->frame_len),
                 cli_text_count(y, b->last.step), cli_text_short(z, (double)b->subject->len / (double)b->frame_len));
        cli_table_row(&facts, "", line);
    }
    snprintf(line, sizeof line, "%s of the energy (NMSE of one step)", cli_text_short(x, check->nmse));
    cli_table_row(&facts, "error", line);
    snprintf(line, sizeof line, "threads %u, instructions %s, median of %zu rounds", args->threads, tg_simd(),
             b->round_n);
    cli_table_row(&facts, "timed", line);
    cli_table_init(&speeds, "lrr");
    cli_table_row(&speeds, "", "GB/s", "of memcpy");
    add_speed(&speeds, "memcpy (1 thread)", &r, OP_COPY);
    add_speed(&speeds, "encode", &r, OP_ENCODE);
    add_speed(&speeds, "decode and add", &r, OP_DECODE);
    int code = cli_table_print(&facts, stdout, 0);
    putchar('\n');
    if (code == CLI_OK) {
        code = cli_table_print(&speeds, stdout, 0);
    }
    cli_table_free(&facts);
    cli_table_free(&speeds);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------- */

static int measure(const cli_args *args, const subject *s)
{
    tg_options opt = cli_args_options(args);
    cli_check check = {args->recipes.items[0], &s->tensor, &opt, s->grad, s->n};
    cli_check_result checked;
    int code = cli_check_run(&checked, &check);
    if (code != CLI_OK) {
        return code;
    }
    bench b;
    code = start_bench(&b, s, args->recipes.items[0], &opt);
    if (code == CLI_OK) {
        code = warm_up(&b);
    }
    if (code == CLI_OK) {
        code = run_rounds(&b, args->seconds);
    }
    if (code == CLI_OK) {
        code = (args->json || args->csv ? print_json : print_text)(args, &b, &checked);
    }
    free_bench(&b);
    return code;
}

static int run(const cli_args *args)
{
    if (args->recipes.n == 0) {
        return cli_fail(CLI_MISUSE, "bench needs --recipe; 'tersegrad recipes' lists what it can be made of");
    }
    if (args->input != NULL && cli_args_has(args, CLI_FLAG_N) != cli_args_has(args, CLI_FLAG_SHIFT)) {
        return cli_fail(CLI_MISUSE,
                        "--input brings its own size; give both --n and --shift to go through it step by step");
    }
    if (args->input == NULL && cli_args_has(args, CLI_FLAG_SHIFT)) {
        return cli_fail(CLI_MISUSE,
                        "--shift goes through the gradients of --input; a synthetic one moves on by itself");
    }
    subject s = {0};
    int code = args->input != NULL ? load_input(&s, args) : make_synthetic(&s, args);
    if (code == CLI_OK) {
        code = measure(args, &s);
    }
    free_subject(&s);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_RECIPE, NULL}, {CLI_FLAG_RULE, NULL},     {CLI_FLAG_N, "4194304"},       {CLI_FLAG_DTYPE, "fp32"},
    {CLI_FLAG_INPUT, NULL},  {CLI_FLAG_SHIFT, NULL},    {CLI_FLAG_NONFINITE, "error"}, {CLI_FLAG_SEED, "1"},
    {CLI_FLAG_THREADS, "1"}, {CLI_FLAG_SECONDS, "1.0"}, {CLI_FLAG_JSON, NULL},         {CLI_FLAG_CSV, NULL},
};

const cli_command cli_bench = {
    .name = "bench",
    .summary = "speed, size and error of a recipe, beside memcpy",
    .usage = "--recipe R [--n N | --input FILE.npy [--n N --shift N]] [flags]",
    .about = "Measures a recipe on one gradient: a synthetic one of N elements (4194304 = 2^22 unless told), or\n"
             "the one in FILE.npy; with --n and --shift, on the gradients of many steps there. A synthetic one\n"
             "changes from step to step, too. The round trip is checked before anything is timed. GB/s counts\n"
             "bytes of the gradient, in 1e9 a second; memcpy copies the same bytes with one thread, in turns with\n"
             "the rest.",
    .examples = "tersegrad bench --recipe ef+topk@0.01+fp16\n"
                "tersegrad bench --recipe ef+randomblock@0.01 --n 10000000 --threads 2\n"
                "tersegrad bench --recipe fp16 --input gradient.npy --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
