/* --device: the CPU, or a GPU with copies of gradients and frames in its memory. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include "args.h"

/* Where a command encodes and decodes. On the CPU all memory is the host's, and nothing is copied. */
typedef struct cli_device {
    tg_device *gpu; /* NULL: the CPU */
} cli_device;

/* Memory on the device for bytes of the host. */
typedef struct cli_copy {
    void *host, *device; /* the same on the CPU */
    size_t len;
} cli_copy;

int cli_device_open(cli_device *out, const cli_args *args);
void cli_device_close(const cli_device *d);

/* Takes memory for `len` bytes at `host`; they are not copied. cli_copy_free accepts one that was not made, all zeros. */
int cli_copy_new(cli_copy *out, const cli_device *d, void *host, size_t len);
void cli_copy_free(const cli_copy *c, const cli_device *d);

/* Copies the first `len` bytes to the device, and back. */
int cli_copy_in(const cli_copy *c, const cli_device *d, size_t len);
int cli_copy_out(const cli_copy *c, const cli_device *d, size_t len);

#endif
