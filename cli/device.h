/* --device: memory of the CPU or of a GPU, and copies between them. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include "args.h"
#include "place.h"

/* Where a command encodes and decodes. */
typedef struct cli_device {
    tg_device *gpu; /* NULL: the CPU */
} cli_device;

int cli_device_open(cli_device *out, const cli_args *args);
void cli_device_close(const cli_device *d);

/* The name of the GPU. */
const char *cli_device_name(const cli_device *d);

/* A link over `inner` for messages in the GPU's memory (tg_cuda_link_new). Free accepts NULL. */
int cli_device_link_new(tg_link **out, const cli_device *d, tg_link *inner, uint32_t world);
void cli_device_link_free(tg_link *link);

/* For a training run: sets *out and returns it, or NULL for the CPU. */
const tr_device *cli_device_of_training(tr_device *out, const cli_device *d);

/* Memory of the device. On the CPU it is the host's. Release accepts NULL. */
int cli_device_acquire(void *out, const cli_device *d, size_t len);
void cli_device_release(const cli_device *d, void *block);

/* Copies in any direction. On a GPU it is done after cli_device_wait. */
int cli_device_copy(const cli_device *d, void *to, const void *from, size_t len);
int cli_device_wait(const cli_device *d);

/* Bytes of the host that are on the device, too; on the CPU they are the same. */
typedef struct cli_copy {
    void *host, *device;
    size_t len;
} cli_copy;

/* Takes memory for `len` bytes at `host`; they are not copied. cli_copy_free accepts one that was not made, all zeros. */
int cli_copy_new(cli_copy *out, const cli_device *d, void *host, size_t len);
void cli_copy_free(const cli_copy *c, const cli_device *d);

/* Copies the first `len` bytes to the device, and back. */
int cli_copy_in(const cli_copy *c, const cli_device *d, size_t len);
int cli_copy_out(const cli_copy *c, const cli_device *d, size_t len);

#endif
