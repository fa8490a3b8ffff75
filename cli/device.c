/* See device.h. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"

#if defined(TG_WITH_CUDA)
#include "tersegrad/cuda.h"
#else
/* As in cuda.h; never called, since no GPU can be opened. */
static void tg_cuda_close(tg_device *device)
{
    (void)device;
}

static tg_status tg_cuda_open(tg_device **out, int ordinal, const void *stream, tg_detail *why)
{
    (void)out;
    (void)ordinal;
    (void)stream;
    *why = (tg_detail){"this program was built without CUDA (cmake --preset cuda builds it)"};
    return TG_E_ARGUMENT;
}

static tg_status tg_cuda_acquire(void **out, tg_device *device, uint64_t len, tg_detail *why)
{
    (void)out;
    (void)device;
    (void)len;
    (void)why;
    return TG_E_ARGUMENT;
}

static void tg_cuda_release(tg_device *device, void *block)
{
    (void)device;
    (void)block;
}

static tg_status tg_cuda_copy(tg_device *device, void *to, const void *from, uint64_t len, tg_detail *why)
{
    (void)device;
    (void)to;
    (void)from;
    (void)len;
    (void)why;
    return TG_E_ARGUMENT;
}

static tg_status tg_cuda_wait(tg_device *device, tg_detail *why)
{
    (void)device;
    (void)why;
    return TG_E_ARGUMENT;
}

static tg_status tg_cuda_link_new(tg_link **out, tg_device *device, tg_link *inner, uint32_t world, tg_detail *why)
{
    (void)out;
    (void)device;
    (void)inner;
    (void)world;
    (void)why;
    return TG_E_ARGUMENT;
}

static void tg_cuda_link_free(tg_link *link)
{
    (void)link;
}

static const char *tg_cuda_name(const tg_device *device)
{
    (void)device;
    return "";
}
#endif

static int settle(tg_status status, const tg_detail *why)
{
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, why);
}

int cli_device_open(cli_device *out, const cli_args *args)
{
    tg_detail why = {{0}};
    *out = (cli_device){0};
    return args->device == CLI_DEVICE_CPU ? CLI_OK : settle(tg_cuda_open(&out->gpu, 0, NULL, &why), &why);
}

void cli_device_close(const cli_device *d)
{
    tg_cuda_close(d->gpu);
}

const char *cli_device_name(const cli_device *d)
{
    return tg_cuda_name(d->gpu);
}

int cli_device_link_new(tg_link **out, const cli_device *d, tg_link *inner, uint32_t world)
{
    tg_detail why = {{0}};
    return settle(tg_cuda_link_new(out, d->gpu, inner, world, &why), &why);
}

void cli_device_link_free(tg_link *link)
{
    tg_cuda_link_free(link);
}

const tr_device *cli_device_of_training(tr_device *out, const cli_device *d)
{
    *out = (tr_device){.device = d->gpu,
                       .acquire = tg_cuda_acquire,
                       .release = tg_cuda_release,
                       .copy = tg_cuda_copy,
                       .wait = tg_cuda_wait,
                       .link_new = tg_cuda_link_new,
                       .link_free = tg_cuda_link_free};
    return d->gpu == NULL ? NULL : out;
}

int cli_device_acquire(void *out, const cli_device *d, size_t len)
{
    tg_detail why = {{0}};
    void *block = NULL;
    if (d->gpu == NULL) {
        block = malloc(len > 0 ? len : 1);
    }
    int code = d->gpu != NULL  ? settle(tg_cuda_acquire(&block, d->gpu, len, &why), &why)
               : block != NULL ? CLI_OK
                               : cli_fail_memory();
    memcpy(out, &block, sizeof block);
    return code;
}

void cli_device_release(const cli_device *d, void *block)
{
    if (d->gpu == NULL) {
        free(block);
    } else {
        tg_cuda_release(d->gpu, block);
    }
}

int cli_device_copy(const cli_device *d, void *to, const void *from, size_t len)
{
    tg_detail why = {{0}};
    if (d->gpu != NULL) {
        return settle(tg_cuda_copy(d->gpu, to, from, len, &why), &why);
    }
    memcpy(to, from, len);
    return CLI_OK;
}

int cli_device_wait(const cli_device *d)
{
    tg_detail why = {{0}};
    return d->gpu == NULL ? CLI_OK : settle(tg_cuda_wait(d->gpu, &why), &why);
}

/* ---- copies ---------------------------------------------------------------------------------------- */

int cli_copy_new(cli_copy *out, const cli_device *d, void *host, size_t len)
{
    *out = (cli_copy){host, host, len};
    return d->gpu == NULL ? CLI_OK : cli_device_acquire(&out->device, d, len);
}

void cli_copy_free(const cli_copy *c, const cli_device *d)
{
    if (d->gpu != NULL) {
        cli_device_release(d, c->device);
    }
}

static int copy(const cli_device *d, void *to, const void *from, size_t len)
{
    int code = to == from ? CLI_OK : cli_device_copy(d, to, from, len);
    return code == CLI_OK ? cli_device_wait(d) : code;
}

int cli_copy_in(const cli_copy *c, const cli_device *d, size_t len)
{
    return copy(d, c->device, c->host, len);
}

int cli_copy_out(const cli_copy *c, const cli_device *d, size_t len)
{
    return copy(d, c->host, c->device, len);
}
