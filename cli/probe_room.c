/* Tensors, gradients and buffers; see probe_room.h. */
#include "probe_room.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "synth.h"

enum { SHIFT = 64, SHORT_N = CLI_TENSOR_MAX, SHORT_LEN = 1024, TINY_LEN = 128, TINY_N = 4 };
enum { CHUNK = 262144 }; /* elements (docs/architecture.md) */
enum { OTHER_LEN = 1 << 25 };

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

static void add_tensor(cli_tensors *s, uint64_t rows, uint64_t columns)
{
    size_t t = s->tensor_n++;
    snprintf(s->names[t], sizeof s->names[t], "t%zu", t);
    s->dims[t][0] = rows;
    s->dims[t][1] = columns;
    s->of[t] = (tg_tensor){s->names[t], s->dims[t], 2, t % 2 == 0 ? TG_CONV : TG_DENSE, TG_FP32};
    s->n += (size_t)(rows * columns);
    s->chunks += ceil((double)(rows * columns) / CHUNK);
}

void cli_tensors_long(cli_tensors *out, uint64_t n, int has_ends)
{
    uint64_t columns = n >= UINT64_C(1) << 20 ? 1024 : 128, ends = has_ends ? 2 * TINY_LEN : 0;
    uint64_t half = n > ends ? (n - ends) / 2 : 1;
    *out = (cli_tensors){.n = 0};
    if (has_ends) {
        add_tensor(out, TINY_LEN / 32, 32);
    }
    for (int t = 0; t < 2; t++) {
        add_tensor(out, half / columns > 0 ? half / columns : 1, columns);
    }
    if (has_ends) {
        add_tensor(out, TINY_LEN / 32, 32);
    }
}

void cli_tensors_short(cli_tensors *out)
{
    *out = (cli_tensors){.n = 0};
    for (int t = 0; t < SHORT_N; t++) {
        add_tensor(out, SHORT_LEN / 32, 32);
    }
}

void cli_tensors_tiny(cli_tensors *out)
{
    *out = (cli_tensors){.n = 0};
    for (int t = 0; t < TINY_N; t++) {
        add_tensor(out, TINY_LEN / 32, 32);
    }
}

void cli_tensors_place(void *out[CLI_TENSOR_MAX], const cli_tensors *t, const float *buffer)
{
    for (size_t i = 0; i < t->tensor_n; i++) {
        out[i] = (void *)(uintptr_t)(const void *)buffer;
        buffer += t->dims[i][0] * t->dims[i][1];
    }
}

/* ---- room ---------------------------------------------------------------------------------------------------------- */

uint64_t cli_measuring_largest(const cli_measuring *how)
{
    uint64_t n = SHORT_N * SHORT_LEN;
    for (size_t i = 0; i < how->size_n; i++) {
        n = how->sizes[i] > n ? how->sizes[i] : n;
    }
    return n;
}

static int make_values(cli_room *r, const cli_measuring *how, size_t n)
{
    r->host = how->values;
    r->value_n = how->value_n;
    if (r->host == NULL) {
        r->value_n = n + 32 * SHIFT;
        r->made = malloc(r->value_n * sizeof(float));
        r->host = r->made;
        if (r->made == NULL) {
            return cli_fail_memory();
        }
        cli_synth_gradient(r->made, r->value_n, 1);
    }
    return r->value_n >= n ? CLI_OK : cli_fail(CLI_MISUSE, "--input has %zu elements; %zu are needed", r->value_n, n);
}

int cli_room_open(cli_room *r, const cli_measuring *how)
{
    size_t n = (size_t)cli_measuring_largest(how), len = n * sizeof(float);
    *r = (cli_room){.device = how->device};
    int code = make_values(r, how, n);
    if (code == CLI_OK) {
        code = cli_copy_new(&r->all, r->device, (void *)(uintptr_t)r->host, r->value_n * sizeof(float));
    }
    code = code == CLI_OK ? cli_copy_in(&r->all, r->device, r->all.len) : code;
    r->values = r->all.device;
    /* Written once, so that no round pays for the first use of a page. */
    for (int i = 0; i < 2 && code == CLI_OK; i++) {
        code = cli_device_acquire(&r->sums[i], r->device, len);
        code = code == CLI_OK ? cli_device_copy(r->device, r->sums[i], r->values, len) : code;
    }
    if (code == CLI_OK && r->device->gpu == NULL) {
        r->other = calloc(OTHER_LEN, 1);
        code = r->other != NULL ? CLI_OK : cli_fail_memory();
    }
    return code;
}

void cli_room_close(cli_room *r)
{
    cli_device_release(r->device, r->frame);
    cli_device_release(r->device, r->sums[1]);
    cli_device_release(r->device, r->sums[0]);
    cli_copy_free(&r->all, r->device);
    free(r->other);
    free(r->made);
}

int cli_room_grow(cli_room *r, size_t frame_len)
{
    if (frame_len <= r->frame_cap) {
        return CLI_OK;
    }
    cli_device_release(r->device, r->frame);
    r->frame = NULL;
    r->frame_cap = 0;
    int code = cli_device_acquire(&r->frame, r->device, frame_len);
    if (code == CLI_OK) {
        r->frame_cap = frame_len;
    }
    if (code == CLI_OK && r->device->gpu == NULL) {
        memset(r->frame, 0, frame_len);
    }
    return code;
}

const float *cli_room_values(const cli_room *r, const cli_tensors *t, uint64_t step)
{
    return r->values + (size_t)(step * SHIFT) % (r->value_n - t->n + 1);
}

void cli_room_cool(cli_room *r)
{
    enum { LINE_LEN = 64 };
    for (size_t i = 0; i < OTHER_LEN && r->other != NULL; i += LINE_LEN) {
        r->other[i]++;
    }
}

double cli_room_now(cli_room *r, uint32_t threads)
{
    if (r->device->gpu == NULL && threads == 1) {
        return cli_clock_thread();
    }
    int code = cli_device_wait(r->device);
    r->code = r->code == CLI_OK ? code : r->code;
    return cli_clock_now();
}

/* ---- costs --------------------------------------------------------------------------------------------------------- */

cli_pass_cost cli_room_solve(cli_size lo, cli_size sh, double tiny)
{
    double a = fmax(0, lo.seconds - tiny), b = fmax(0, sh.seconds - tiny);
    double det = lo.elements * sh.chunks - sh.elements * lo.chunks;
    double element = (a * sh.chunks - b * lo.chunks) / det, chunk = (lo.elements * b - sh.elements * a) / det;
    if (!(chunk >= 0)) {
        return (cli_pass_cost){a / lo.elements, 0, tiny};
    }
    return element < 0 ? (cli_pass_cost){0, b / sh.chunks, tiny} : (cli_pass_cost){element, chunk, tiny};
}
