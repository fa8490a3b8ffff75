/* See device.h. */
#include "device.h"

#include "fail.h"

#if defined(TG_WITH_CUDA)
#include "tersegrad/cuda.h"

int cli_device_open(cli_device *out, const cli_args *args)
{
    tg_detail why;
    *out = (cli_device){0};
    if (args->device == CLI_DEVICE_CPU) {
        return CLI_OK;
    }
    tg_status status = tg_cuda_open(&out->gpu, 0, NULL, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

void cli_device_close(const cli_device *d)
{
    tg_cuda_close(d->gpu);
}

static int copy(const cli_device *d, void *to, const void *from, size_t len)
{
    tg_detail why;
    tg_status status = to == from ? TG_OK : tg_cuda_copy(d->gpu, to, from, len, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

int cli_copy_new(cli_copy *out, const cli_device *d, void *host, size_t len)
{
    tg_detail why;
    *out = (cli_copy){host, host, len};
    if (d->gpu == NULL) {
        return CLI_OK;
    }
    tg_status status = tg_cuda_acquire(&out->device, d->gpu, len, &why);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

void cli_copy_free(const cli_copy *c, const cli_device *d)
{
    if (d->gpu != NULL) {
        tg_cuda_release(d->gpu, c->device);
    }
}
#else
int cli_device_open(cli_device *out, const cli_args *args)
{
    *out = (cli_device){0};
    return args->device == CLI_DEVICE_CPU
               ? CLI_OK
               : cli_fail(CLI_MISUSE, "this program was built without CUDA; build it with `cmake --preset cuda`");
}

void cli_device_close(const cli_device *d)
{
    (void)d;
}

static int copy(const cli_device *d, const void *to, const void *from, size_t len)
{
    (void)d;
    (void)to;
    (void)from;
    (void)len;
    return CLI_OK;
}

int cli_copy_new(cli_copy *out, const cli_device *d, void *host, size_t len)
{
    (void)d;
    *out = (cli_copy){host, host, len};
    return CLI_OK;
}

void cli_copy_free(const cli_copy *c, const cli_device *d)
{
    (void)c;
    (void)d;
}
#endif

int cli_copy_in(const cli_copy *c, const cli_device *d, size_t len)
{
    return copy(d, c->device, c->host, len);
}

int cli_copy_out(const cli_copy *c, const cli_device *d, size_t len)
{
    return copy(d, c->host, c->device, len);
}
