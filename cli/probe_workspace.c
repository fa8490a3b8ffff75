/* Tensors, gradients and buffers; see probe_workspace.h. */
#include "probe_workspace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "synth.h"

enum { SHIFT = 64, SHORT_N = CLI_TENSOR_MAX, SHORT_LEN = 1024, TINY_LEN = 128, TINY_N = 4 };
enum { CHUNK = 262144 }; /* elements (docs/architecture.md) */
enum { EVICTION_LEN = 1 << 25 };

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

/* ---- workspace ----------------------------------------------------------------------------------------------------- */

uint64_t cli_measuring_largest(const cli_measuring *how)
{
    uint64_t n = SHORT_N * SHORT_LEN;
    for (size_t i = 0; i < how->size_n; i++) {
        n = how->sizes[i] > n ? how->sizes[i] : n;
    }
    return n;
}

static int make_values(cli_workspace *w, const cli_measuring *how, size_t n)
{
    w->host = how->values;
    w->value_n = how->value_n;
    if (w->host == NULL) {
        w->value_n = n + 32 * SHIFT;
        w->synthetic = malloc(w->value_n * sizeof(float));
        w->host = w->synthetic;
        if (w->synthetic == NULL) {
            return cli_fail_memory();
        }
        cli_synth_gradient(w->synthetic, w->value_n, 1);
    }
    return w->value_n >= n ? CLI_OK : cli_fail(CLI_MISUSE, "--input has %zu elements; %zu are needed", w->value_n, n);
}

int cli_workspace_open(cli_workspace *w, const cli_measuring *how)
{
    size_t n = (size_t)cli_measuring_largest(how), len = n * sizeof(float);
    *w = (cli_workspace){.device = how->device};
    int code = make_values(w, how, n);
    if (code == CLI_OK) {
        code = cli_copy_new(&w->copy, w->device, (void *)(uintptr_t)w->host, w->value_n * sizeof(float));
    }
    code = code == CLI_OK ? cli_copy_in(&w->copy, w->device, w->copy.len) : code;
    w->values = w->copy.device;
    /* Written once, so that no round pays for the first use of a page. */
    for (int i = 0; i < 2 && code == CLI_OK; i++) {
        code = cli_device_acquire(&w->sums[i], w->device, len);
        code = code == CLI_OK ? cli_device_copy(w->device, w->sums[i], w->values, len) : code;
    }
    if (code == CLI_OK && w->device->gpu == NULL) {
        w->eviction = calloc(EVICTION_LEN, 1);
        code = w->eviction != NULL ? CLI_OK : cli_fail_memory();
    }
    return code;
}

void cli_workspace_close(cli_workspace *w)
{
    cli_device_release(w->device, w->frame);
    cli_device_release(w->device, w->sums[1]);
    cli_device_release(w->device, w->sums[0]);
    cli_copy_free(&w->copy, w->device);
    free(w->eviction);
    free(w->synthetic);
}

int cli_workspace_reserve(cli_workspace *w, size_t frame_len)
{
    if (frame_len <= w->frame_cap) {
        return CLI_OK;
    }
    cli_device_release(w->device, w->frame);
    w->frame = NULL;
    w->frame_cap = 0;
    int code = cli_device_acquire(&w->frame, w->device, frame_len);
    if (code == CLI_OK) {
        w->frame_cap = frame_len;
    }
    if (code == CLI_OK && w->device->gpu == NULL) {
        memset(w->frame, 0, frame_len);
    }
    return code;
}

const float *cli_workspace_gradients(const cli_workspace *w, const cli_tensors *t, uint64_t step)
{
    return w->values + step % ((w->value_n - t->n) / SHIFT + 1) * SHIFT; /* 256 bytes apart: all are aligned alike */
}

void cli_workspace_evict_caches(cli_workspace *w)
{
    enum { LINE_LEN = 64 };
    for (size_t i = 0; i < EVICTION_LEN && w->eviction != NULL; i += LINE_LEN) {
        w->eviction[i]++;
    }
}

double cli_workspace_now(cli_workspace *w, uint32_t threads)
{
    if (w->device->gpu == NULL && threads == 1) {
        return cli_clock_thread();
    }
    int code = cli_device_wait(w->device);
    w->code = w->code == CLI_OK ? code : w->code;
    return cli_clock_now();
}

/* ---- costs --------------------------------------------------------------------------------------------------------- */

cli_pass_cost cli_pass_cost_solve(cli_size lo, cli_size sh, double tiny)
{
    double a = fmax(0, lo.seconds - tiny), b = fmax(0, sh.seconds - tiny);
    double det = lo.elements * sh.chunks - sh.elements * lo.chunks;
    double element = (a * sh.chunks - b * lo.chunks) / det, chunk = (lo.elements * b - sh.elements * a) / det;
    if (!(chunk >= 0)) {
        return (cli_pass_cost){a / lo.elements, 0, tiny};
    }
    return element < 0 ? (cli_pass_cost){0, b / sh.chunks, tiny} : (cli_pass_cost){element, chunk, tiny};
}
