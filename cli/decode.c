/* `tersegrad decode`: a frame becomes .npy files again. The frame may come from anywhere, so a tensor's name
 * is not taken as part of a path before it is known to stay inside the directory.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "device.h"
#include "fail.h"
#include "file.h"
#include "npy.h"
#include "summary.h"
#include "text.h"

/* All tensors of a frame, decoded. */
typedef struct decoded {
    cli_device device;
    cli_copy frame;
    cli_copy *copies; /* of values */
    tg_codec *codec;
    tg_frame_info info;
    cli_summary summary;
    size_t tensor_n;
    void **values; /* values[t] in the dtype that the file will have */
    size_t *lens;  /* bytes behind values[t] */
    int any_bf16;
} decoded;

static void free_decoded(decoded *d)
{
    cli_summary_free(&d->summary);
    tg_codec_free(d->codec);
    for (size_t t = 0; t < d->tensor_n && d->copies != NULL; t++) {
        cli_copy_free(&d->copies[t], &d->device);
    }
    cli_copy_free(&d->frame, &d->device);
    for (size_t t = 0; t < d->tensor_n && d->values != NULL; t++) {
        free(d->values[t]);
    }
    free(d->copies);
    free(d->values);
    free(d->lens);
    cli_device_close(&d->device);
}

/* Room for tensor t. A bf16 tensor gets twice what it needs, because it is widened in place afterwards. */
static int reserve(decoded *d, size_t t)
{
    tg_tensor tensor;
    uint64_t element_n = 0;
    tg_detail why;
    tg_status status = tg_codec_tensor(&tensor, d->codec, t, &why);
    if (status == TG_OK) {
        status = tg_tensor_elements(&element_n, &tensor, &why);
    }
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    size_t element_len = tensor.dtype == TG_BF16 ? sizeof(float) : tg_dtype_len(tensor.dtype);
    if (element_n > (SIZE_MAX - 1) / element_len) {
        return cli_fail_memory();
    }
    d->lens[t] = (size_t)element_n * element_len;
    d->values[t] = malloc(d->lens[t] + 1);
    d->any_bf16 |= tensor.dtype == TG_BF16;
    return d->values[t] != NULL ? cli_copy_new(&d->copies[t], &d->device, d->values[t], d->lens[t]) : cli_fail_memory();
}

/* .npy has no bf16; every value of it is a binary32 as well. From the back, so that none is overwritten. */
static void widen(const decoded *d, size_t t)
{
    tg_tensor tensor;
    if (tg_codec_tensor(&tensor, d->codec, t, NULL) != TG_OK || tensor.dtype != TG_BF16) {
        return;
    }
    unsigned char *bytes = d->values[t];
    for (size_t i = d->lens[t] / sizeof(float); i-- > 0;) {
        uint16_t bits;
        memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        float value;
        tg_widen(&value, &bits, TG_BF16, 1);
        memcpy(bytes + i * sizeof value, &value, sizeof value);
    }
}

/* Decodes on the device, and copies what was decoded to the host. */
static int decode_on_device(const decoded *d, const char *path, size_t src_len)
{
    tg_detail why;
    int code = CLI_OK;
    void **outs = calloc(d->tensor_n + 1, sizeof *outs);
    if (outs == NULL) {
        return cli_fail_memory();
    }
    for (size_t t = 0; t < d->tensor_n; t++) {
        outs[t] = d->copies[t].device;
    }
    tg_status status = tg_decode(d->codec, outs, d->frame.device, src_len, &why);
    free(outs);
    if (status != TG_OK) {
        return cli_fail_frame(path, status, &why);
    }
    for (size_t t = 0; t < d->tensor_n && code == CLI_OK; t++) {
        code = cli_copy_out(&d->copies[t], &d->device, d->lens[t]);
    }
    return code;
}

static int decode_frame(decoded *d, const cli_args *args, const char *path, uint8_t *src, size_t src_len)
{
    tg_detail why;
    tg_options opt = cli_args_options(args);
    int code = cli_device_open(&d->device, args);
    code = code == CLI_OK ? cli_copy_new(&d->frame, &d->device, src, src_len) : code;
    code = code == CLI_OK ? cli_copy_in(&d->frame, &d->device, src_len) : code;
    if (code != CLI_OK) {
        return code;
    }
    opt.device = d->device.gpu;
    tg_status status = tg_codec_from_frame(&d->codec, &d->info, d->frame.device, src_len, &opt, &why);
    if (status != TG_OK) {
        return cli_fail_frame(path, status, &why);
    }
    d->tensor_n = tg_codec_tensors(d->codec);
    d->values = calloc(d->tensor_n + 1, sizeof *d->values);
    d->lens = calloc(d->tensor_n + 1, sizeof *d->lens);
    d->copies = calloc(d->tensor_n + 1, sizeof *d->copies);
    if (d->values == NULL || d->lens == NULL || d->copies == NULL) {
        return cli_fail_memory();
    }
    for (size_t t = 0; t < d->tensor_n && code == CLI_OK; t++) {
        code = reserve(d, t);
    }
    if (code != CLI_OK) {
        return code;
    }
    code = decode_on_device(d, path, src_len);
    if (code != CLI_OK) {
        return code;
    }
    for (size_t t = 0; t < d->tensor_n; t++) {
        widen(d, t);
    }
    return cli_summary_new(&d->summary, d->codec);
}

/* ---- files ----------------------------------------------------------------------------------------- */

/* The header of tensor t's file, and its elements behind it. */
static int tensor_pieces(cli_piece pieces[2], uint8_t header[CLI_NPY_HEADER_CAP], tg_tensor *tensor, const decoded *d,
                         size_t t)
{
    tg_detail why;
    tg_status status = tg_codec_tensor(tensor, d->codec, t, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    tg_dtype dtype = tensor->dtype == TG_FP16 ? TG_FP16 : TG_FP32;
    pieces[0] = (cli_piece){header, cli_npy_header(header, dtype, tensor->dims, tensor->dim_n)};
    pieces[1] = (cli_piece){d->values[t], d->lens[t]};
    return CLI_OK;
}

static int write_one(const decoded *d, const char *path)
{
    size_t len = strlen(path);
    if (len >= 3 && strcmp(path + len - 3, ".tg") == 0) {
        return cli_fail(CLI_MISUSE, "the last name is the output, and %s looks like a frame; name it OUT.npy", path);
    }
    cli_piece pieces[2];
    uint8_t header[CLI_NPY_HEADER_CAP];
    tg_tensor tensor;
    int code = tensor_pieces(pieces, header, &tensor, d, 0);
    return code != CLI_OK ? code : cli_file_write(path, pieces, 2);
}

static int write_in(cli_folder *folder, const decoded *d, size_t t)
{
    cli_piece pieces[2];
    uint8_t header[CLI_NPY_HEADER_CAP];
    char name[300];
    tg_tensor tensor;
    int code = tensor_pieces(pieces, header, &tensor, d, t);
    if (code != CLI_OK) {
        return code;
    }
    if (strchr(tensor.name, '/') != NULL || strcmp(tensor.name, ".") == 0 || strcmp(tensor.name, "..") == 0) {
        return cli_fail(CLI_FAILED, "cannot write the tensor '%s': its name would lead out of the directory",
                        tensor.name);
    }
    snprintf(name, sizeof name, "%s.npy", tensor.name);
    return cli_folder_add(folder, name, pieces, 2);
}

static int write_folder(const decoded *d, const char *path)
{
    cli_folder folder;
    int code = cli_folder_open(&folder, path);
    if (code != CLI_OK) {
        return code;
    }
    for (size_t t = 0; t < d->tensor_n && code == CLI_OK; t++) {
        code = write_in(&folder, d, t);
    }
    if (code == CLI_OK) {
        code = cli_folder_commit(&folder);
    }
    cli_folder_discard(&folder);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------- */

static int print_result(const cli_args *args, const decoded *d, const char *path)
{
    if (args->json) {
        cli_json json;
        cli_json_begin(&json, stdout);
        cli_json_text(&json, "output", path);
        cli_json_bool(&json, "bf16_as_fp32", d->any_bf16);
        cli_summary_json(&json, &d->summary, &d->info);
        cli_json_finish(&json);
        return CLI_OK;
    }
    cli_table table;
    cli_table_init(&table, "ll");
    cli_table_row(&table, "wrote", path);
    if (d->any_bf16) {
        cli_table_row(&table, "", "bf16 written as fp32, because .npy has no bf16");
    }
    cli_summary_rows(&table, &d->summary, &d->info);
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}

static int run(const cli_args *args)
{
    const char *in = args->files.items[0];
    const char *out = args->files.items[1];
    uint8_t *src;
    size_t src_len;
    int code = cli_file_read(&src, &src_len, in);
    if (code != CLI_OK) {
        return code;
    }
    decoded d = {0};
    code = decode_frame(&d, args, in, src, src_len);
    if (code == CLI_OK) {
        code = d.tensor_n == 1 ? write_one(&d, out) : write_folder(&d, out);
    }
    if (code == CLI_OK) {
        code = print_result(args, &d, out);
    }
    free_decoded(&d);
    free(src);
    return code;
}

static const cli_flag_use flags[] = {{CLI_FLAG_THREADS, "1"}, {CLI_FLAG_DEVICE, "cpu"}, {CLI_FLAG_JSON, NULL}};

const cli_command cli_decode = {
    .name = "decode",
    .summary = "a frame (.tg) back into gradients (.npy)",
    .usage = "[flags] IN.tg OUT",
    .about = "Decodes a frame that `tersegrad encode` wrote. One tensor becomes the file OUT; several become a\n"
             "new directory OUT with one .npy file each. Values that were not sent are 0. The whole\n"
             "frame is checked before anything is written.",
    .examples = "tersegrad decode gradient.tg back.npy\n"
                "tersegrad decode model.tg model-back/\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 2,
    .file_max = 2,
    .run = run,
};
