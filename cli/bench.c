/* `tersegrad bench`: speed, size and error of a recipe on a gradient, beside memcpy in the same run; with --shapes, of a model of
 * many tensors beside one tensor of as many elements. What is timed is checked first (check.h).
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_run.h"
#include "check.h"
#include "commands.h"
#include "fail.h"
#include "json.h"
#include "table.h"
#include "text.h"

/* ---- results --------------------------------------------------------------------------------------- */

/* What was measured. */
typedef struct findings {
    const cli_args *args;
    const cli_subject *subject;
    const cli_timing *bench; /* of the tensors ... */
    const cli_timing *one;   /* ... and of one tensor beside them; NULL without --shapes */
    const cli_check_result *check;
    double seconds;
} findings;

typedef struct result {
    double speeds[CLI_OP_N];
    double ratios[CLI_OP_N]; /* time over the time that one tensor takes; NAN without --shapes */
    double frame_len;        /* of the first step */
    double bits;
    double ratio;
    double paper_ratio; /* NAN if the scheme's paper has no count of its own */
} result;

static result result_of(const findings *f)
{
    result r = {.frame_len = (double)f->bench->first_len};
    for (int op = 0; op < CLI_OP_N; op++) {
        r.speeds[op] = cli_timing_speed(f->bench, op);
        r.ratios[op] = f->one != NULL ? cli_timing_seconds(f->bench, op) / cli_timing_seconds(f->one, op) : NAN;
    }
    r.bits = r.frame_len * 8 / (double)f->subject->n;
    r.ratio = (double)f->subject->len / r.frame_len;
    bool counts = f->check->paper_len > 0 && f->one == NULL;
    r.paper_ratio = counts ? (double)f->subject->len / (double)f->check->paper_len : NAN;
    return r;
}

static int print_json(const findings *f)
{
    result r = result_of(f);
    const cli_args *args = f->args;
    cli_json json;
    cli_json_begin_as(&json, stdout, args->csv, NULL);
    cli_json_text(&json, "recipe", f->check->recipe);
    cli_json_count(&json, "n", f->subject->n);
    cli_json_count(&json, "threads", args->threads);
    cli_json_number(&json, "encode_gbps", r.speeds[CLI_OP_ENCODE]);
    cli_json_number(&json, "decode_gbps", r.speeds[CLI_OP_DECODE]);
    cli_json_number(&json, "sum_gbps", r.speeds[CLI_OP_SUM]);
    cli_json_number(&json, "memcpy_gbps", r.speeds[CLI_OP_COPY]);
    cli_json_number(&json, "memcpy_threads_gbps", r.speeds[CLI_OP_COPY_ALL]);
    cli_json_number(&json, "encode_vs_memcpy", r.speeds[CLI_OP_ENCODE] / r.speeds[CLI_OP_COPY]);
    cli_json_number(&json, "decode_vs_memcpy", r.speeds[CLI_OP_DECODE] / r.speeds[CLI_OP_COPY]);
    cli_json_number(&json, "sum_vs_memcpy", r.speeds[CLI_OP_SUM] / r.speeds[CLI_OP_COPY]);
    if (f->one != NULL) {
        cli_json_text(&json, "shapes", args->shapes);
        cli_json_count(&json, "tensors", f->bench->tensor_n);
        cli_json_number(&json, "encode_vs_one_tensor", r.ratios[CLI_OP_ENCODE]);
        cli_json_number(&json, "decode_vs_one_tensor", r.ratios[CLI_OP_DECODE]);
        cli_json_number(&json, "sum_vs_one_tensor", r.ratios[CLI_OP_SUM]);
    }
    cli_json_number(&json, "bits_per_value", r.bits);
    cli_json_number(&json, "ratio", r.ratio);
    cli_json_number(&json, "paper_ratio", r.paper_ratio);
    cli_json_number(&json, "nmse", f->check->nmse);
    cli_json_text(&json, "simd", tg_simd());
    cli_json_number(&json, "frame_bytes", r.frame_len);
    cli_json_count(&json, "entries", f->check->info.entry_n);
    cli_json_count(&json, "last_step", f->bench->last.step);
    cli_json_count(&json, "last_frame_bytes", f->bench->frame_len);
    cli_json_count(&json, "last_entries", f->bench->last.entry_n);
    cli_json_text(&json, "input", args->input);
    cli_json_text(&json, "dtype", tg_dtype_name(f->subject->tensor.dtype));
    cli_json_count(&json, "rounds", f->bench->round_n);
    cli_json_number(&json, "seconds", f->seconds);
    return cli_json_finish(&json);
}

static void add_speed(cli_table *table, const char *name, const findings *f, const result *r, int op)
{
    char a[CLI_NUMBER_CAP], b[CLI_NUMBER_CAP], c[CLI_NUMBER_CAP];
    cli_text_short(a, r->speeds[op]);
    cli_text_number(b, r->speeds[op] / r->speeds[CLI_OP_COPY], 3);
    if (f->one == NULL) {
        cli_table_row(table, name, a, b);
    } else {
        bool is_copy = op == CLI_OP_COPY || op == CLI_OP_COPY_ALL;
        cli_table_row(table, name, a, b, is_copy ? "" : cli_text_number(c, r->ratios[op], 2));
    }
}

static int print_speeds(const findings *f, const result *r)
{
    cli_table speeds;
    char all[40];
    if (f->one == NULL) {
        cli_table_init(&speeds, "lrr");
        cli_table_row(&speeds, "", "GB/s", "of memcpy");
    } else {
        cli_table_init(&speeds, "lrrr");
        cli_table_row(&speeds, "", "GB/s", "of memcpy", "time, one tensor = 1");
    }
    bool is_host = f->bench->device->gpu == NULL;
    add_speed(&speeds, is_host ? "memcpy (1 thread)" : "copy in device memory", f, r, CLI_OP_COPY);
    if (is_host && f->args->threads > 1) {
        snprintf(all, sizeof all, "memcpy (%u threads)", f->args->threads);
        add_speed(&speeds, all, f, r, CLI_OP_COPY_ALL);
    }
    add_speed(&speeds, "encode", f, r, CLI_OP_ENCODE);
    add_speed(&speeds, "decode and add", f, r, CLI_OP_DECODE);
    add_speed(&speeds, "decode and add, private sums", f, r, CLI_OP_SUM);
    int code = cli_table_print(&speeds, stdout, 0);
    cli_table_free(&speeds);
    return code;
}

static int print_text(const findings *f)
{
    result r = result_of(f);
    const cli_timing *b = f->bench;
    char line[256], x[CLI_NUMBER_CAP], y[CLI_NUMBER_CAP], z[CLI_NUMBER_CAP];
    cli_table facts;
    cli_table_init(&facts, "ll");
    cli_table_row(&facts, "recipe", f->check->recipe);
    snprintf(line, sizeof line, "%s values, %s, %s bytes, %s", cli_text_count(x, f->subject->n),
             tg_dtype_name(f->subject->tensor.dtype), cli_text_count(y, f->subject->len),
             f->args->input != NULL ? "from the file" : "synthetic");
    cli_table_row(&facts, "gradient", line);
    if (f->one != NULL) {
        snprintf(line, sizeof line, "%s, and one of as many values beside them", cli_text_count(x, b->tensor_n));
        cli_table_row(&facts, "tensors", line);
    }
    snprintf(line, sizeof line, "%s; same bytes again and with one thread", f->check->law);
    cli_table_row(&facts, "checked", line);
    snprintf(line, sizeof line, "%s bytes: %s to 1, %s bits per value", cli_text_count(x, (uint64_t)r.frame_len),
             cli_text_short(y, r.ratio), cli_text_short(z, r.bits));
    cli_table_row(&facts, "frame", line);
    if (isfinite(r.paper_ratio)) {
        snprintf(line, sizeof line, "%s bytes as the scheme's paper counts: %s to 1",
                 cli_text_count(x, f->check->paper_len), cli_text_short(y, r.paper_ratio));
        cli_table_row(&facts, "", line);
    }
    if (b->frame_len != (size_t)r.frame_len) {
        snprintf(line, sizeof line, "%s bytes in step %s: %s to 1", cli_text_count(x, b->frame_len),
                 cli_text_count(y, b->last.step), cli_text_short(z, (double)f->subject->len / (double)b->frame_len));
        cli_table_row(&facts, "", line);
    }
    snprintf(line, sizeof line, "%s of the energy (NMSE of one step%s)", cli_text_short(x, f->check->nmse),
             f->one != NULL ? ", as one tensor" : "");
    cli_table_row(&facts, "error", line);
    snprintf(line, sizeof line, "threads %u, instructions %s, median of %zu rounds", f->args->threads, tg_simd(),
             b->round_n);
    cli_table_row(&facts, "timed", line);
    int code = cli_table_print(&facts, stdout, 0);
    putchar('\n');
    cli_table_free(&facts);
    return code == CLI_OK ? print_speeds(f, &r) : code;
}

/* ---- the command ----------------------------------------------------------------------------------- */

/* A frame of many tensors: the same bytes with one thread, and decodes. */
static int check_tensors(const cli_subject *s, const char *recipe, const tg_options *opt)
{
    const cli_device cpu = {0};
    cli_timing b[2];
    tg_options single = *opt;
    single.threads = 1;
    int code = cli_timing_open(&b[0], s, s->shapes.tensors, s->shapes.tensor_n, recipe, opt, &cpu);
    int other = cli_timing_open(&b[1], s, s->shapes.tensors, s->shapes.tensor_n, recipe, &single, &cpu);
    code = code == CLI_OK ? other : code;
    tg_detail why;
    for (int i = 0; i < 2 && code == CLI_OK; i++) {
        tg_status status = tg_encode(&b[i].frame_len, b[i].codec, b[i].frame, b[i].frame_cap, 0, b[i].grads, &why);
        status = status == TG_OK ? tg_decode_add(b[i].codec, b[i].sum_of, 1, b[0].frame, b[0].frame_len, &why) : status;
        code = status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
    }
    if (code == CLI_OK && (b[0].frame_len != b[1].frame_len || memcmp(b[0].frame, b[1].frame, b[0].frame_len) != 0)) {
        code = cli_fail(CLI_FAILED, "%s wrote other bytes with one thread than with several", recipe);
    }
    cli_timing_free(&b[0]);
    cli_timing_free(&b[1]);
    return code;
}

/* The first frame of a GPU has the bytes of the CPU's. */
static int check_device(cli_timing *b, const char *recipe, const tg_options *opt)
{
    const cli_device cpu = {0};
    cli_timing host;
    tg_options on_host = *opt;
    on_host.device = NULL;
    tg_detail why;
    int code = cli_timing_open(&host, b->subject, b->tensors, b->tensor_n, recipe, &on_host, &cpu);
    tg_status status = TG_OK;
    if (code == CLI_OK) {
        status = tg_encode(&host.frame_len, host.codec, host.frame, host.frame_cap, 0, host.grads, &why);
        status =
            status == TG_OK ? tg_encode(&b->frame_len, b->codec, b->frame, b->frame_cap, 0, b->grads, &why) : status;
        code = status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
    }
    uint8_t *frame = code == CLI_OK ? malloc(b->frame_len) : NULL;
    if (code == CLI_OK) {
        code = frame == NULL ? cli_fail_memory() : cli_device_copy(b->device, frame, b->frame, b->frame_len);
        code = code == CLI_OK ? cli_device_wait(b->device) : code;
    }
    if (code == CLI_OK && (host.frame_len != b->frame_len || memcmp(host.frame, frame, b->frame_len) != 0)) {
        code = cli_fail(CLI_FAILED, "%s wrote other bytes on the GPU than on the CPU", recipe);
    }
    free(frame);
    cli_timing_free(&host);
    return code;
}

static int measure(const cli_args *args, const cli_subject *s, const cli_device *device)
{
    tg_options opt = cli_args_options(args);
    const char *recipe = args->recipes.items[0];
    bool has_shapes = s->shapes.tensor_n > 0;
    cli_check check = {recipe, &s->tensor, &opt, s->grad, s->n};
    cli_check_result checked;
    int code = cli_check_run(&checked, &check);
    if (code == CLI_OK && has_shapes) {
        code = check_tensors(s, recipe, &opt);
    }
    if (code != CLI_OK) {
        return code;
    }
    cli_timing b[2] = {{0}}; /* of one tensor and of many */
    opt.device = device->gpu;
    findings f = {args, s, &b[has_shapes ? 1 : 0], has_shapes ? &b[0] : NULL, &checked, 0};
    code = cli_timing_open(&b[0], s, &s->tensor, 1, recipe, &opt, device);
    if (code == CLI_OK && has_shapes) {
        code = cli_timing_open(&b[1], s, s->shapes.tensors, s->shapes.tensor_n, recipe, &opt, device);
    }
    for (int i = 0; i < (has_shapes ? 2 : 1) && code == CLI_OK && device->gpu != NULL; i++) {
        code = check_device(&b[i], recipe, &opt);
    }
    if (code == CLI_OK) {
        code = cli_timing_run(&f.seconds, b, has_shapes ? 2 : 1, args->seconds);
    }
    if (code == CLI_OK) {
        code = (args->json || args->csv ? print_json : print_text)(&f);
    }
    cli_timing_free(&b[0]);
    cli_timing_free(&b[1]);
    return code;
}

static int check_args(const cli_args *args)
{
    if (args->recipes.n == 0) {
        return cli_fail(CLI_MISUSE, "bench needs --recipe; 'tersegrad recipes' lists what it can be made of");
    }
    if (args->shapes != NULL && (args->input != NULL || cli_args_has(args, CLI_FLAG_N))) {
        return cli_fail(CLI_MISUSE, "--shapes brings its own sizes, and its gradients are synthetic");
    }
    if (args->input != NULL && cli_args_has(args, CLI_FLAG_N) != cli_args_has(args, CLI_FLAG_SHIFT)) {
        return cli_fail(CLI_MISUSE,
                        "--input brings its own size; give both --n and --shift to go through it step by step");
    }
    if (args->input == NULL && cli_args_has(args, CLI_FLAG_SHIFT)) {
        return cli_fail(CLI_MISUSE,
                        "--shift goes through the gradients of --input; a synthetic one moves on by itself");
    }
    return CLI_OK;
}

static int run(const cli_args *args)
{
    cli_subject s = {0};
    cli_device device = {0};
    int code = check_args(args);
    if (code == CLI_OK) {
        code = cli_subject_make(&s, args);
    }
    if (code == CLI_OK) {
        code = cli_device_open(&device, args);
        code = code == CLI_OK ? measure(args, &s, &device) : code;
        cli_device_close(&device);
    }
    cli_subject_free(&s);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_RECIPE, NULL},  {CLI_FLAG_RULE, NULL},   {CLI_FLAG_N, "4194304"},  {CLI_FLAG_SHAPES, NULL},
    {CLI_FLAG_DTYPE, "fp32"}, {CLI_FLAG_INPUT, NULL},  {CLI_FLAG_SHIFT, NULL},   {CLI_FLAG_NONFINITE, "error"},
    {CLI_FLAG_SEED, "1"},     {CLI_FLAG_THREADS, "1"}, {CLI_FLAG_DEVICE, "cpu"}, {CLI_FLAG_SECONDS, "1.0"},
    {CLI_FLAG_JSON, NULL},    {CLI_FLAG_CSV, NULL},
};

const cli_command cli_bench = {
    .name = "bench",
    .summary = "speed, size and error of a recipe, beside memcpy",
    .usage = "--recipe R [--n N | --shapes SHAPES | --input FILE.npy [--n N --shift N]] [flags]",
    .about = "Measures speed, size and error of a recipe on one gradient: a synthetic one of N elements (4194304 =\n"
             "2^22 by default), or the one in FILE.npy; with --n and --shift, on the gradients of many steps\n"
             "there. A synthetic gradient changes from step to step, too. The round trip is checked before\n"
             "anything is timed. GB/s are 1e9 bytes of gradient per second. memcpy copies the same bytes with one\n"
             "thread and with --threads, in turns with the rest. Decoding adds to the caller's sums, after the\n"
             "whole frame is checked, or to private sums, which are checked on the way. With --shapes, a model of\n"
             "many tensors is measured beside one tensor of as many elements.",
    .examples = "tersegrad bench --recipe ef+topk@0.01+fp16\n"
                "tersegrad bench --recipe ef+randomblock@0.01 --n 10000000 --threads 2\n"
                "tersegrad bench --recipe adacomp --shapes 10000x100\n"
                "tersegrad bench --recipe fp16 --input gradient.npy --json\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 0,
    .file_max = 0,
    .run = run,
};
