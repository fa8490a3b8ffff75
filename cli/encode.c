/* `tersegrad encode`: gradients in .npy files become one frame, described, so that it can be read again
 * without knowing how it was made.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "device.h"
#include "fail.h"
#include "file.h"
#include "model.h"
#include "summary.h"

/* What encode makes: a codec and the frame that it wrote. */
typedef struct encoded {
    cli_device device;
    cli_copy *grads; /* one a tensor */
    size_t grad_n;
    cli_copy copy; /* of the frame */
    tg_codec *codec;
    uint8_t *frame;
    size_t frame_len;
    tg_frame_info info;
} encoded;

static void free_encoded(encoded *e)
{
    tg_codec_free(e->codec);
    cli_copy_free(&e->copy, &e->device);
    for (size_t t = 0; t < e->grad_n; t++) {
        cli_copy_free(&e->grads[t], &e->device);
    }
    free(e->grads);
    free(e->frame);
    cli_device_close(&e->device);
}

/* Gradients on the device; pointers[t] is set to those of tensor t. */
static int place_gradients(const void **pointers, encoded *out, const cli_model *model)
{
    int code = CLI_OK;
    out->grads = calloc(model->tensor_n + 1, sizeof *out->grads);
    if (out->grads == NULL) {
        return cli_fail_memory();
    }
    for (size_t t = 0; t < model->tensor_n && code == CLI_OK; t++) {
        uint64_t element_n = 0;
        if (tg_tensor_elements(&element_n, &model->tensors[t], NULL) != TG_OK) {
            return cli_fail_memory(); /* was loaded, so it fits */
        }
        size_t len = (size_t)element_n * tg_dtype_len(model->tensors[t].dtype);
        code = cli_copy_new(&out->grads[t], &out->device, model->grads[t], len);
        out->grad_n += code == CLI_OK ? 1 : 0;
        code = code == CLI_OK ? cli_copy_in(&out->grads[t], &out->device, len) : code;
        pointers[t] = out->grads[t].device;
    }
    return code;
}

/* Encodes, checks what was written, and copies it to the host. */
static int encode_on_device(encoded *out, const cli_args *args, const cli_model *model, size_t bound)
{
    tg_detail why;
    const void **grads = calloc(model->tensor_n + 1, sizeof *grads);
    int code = grads == NULL ? cli_fail_memory() : place_gradients(grads, out, model);
    if (code == CLI_OK) {
        code = cli_copy_new(&out->copy, &out->device, out->frame, bound);
    }
    tg_status status = TG_OK;
    if (code == CLI_OK) {
        status = tg_encode(&out->frame_len, out->codec, out->copy.device, bound, args->step, grads, &why);
    }
    if (code == CLI_OK && status == TG_OK) {
        status = tg_frame_inspect(&out->info, out->codec, out->copy.device, out->frame_len, &why);
    }
    free(grads);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }
    return code == CLI_OK ? cli_copy_out(&out->copy, &out->device, out->frame_len) : code;
}

static int encode_model(encoded *out, const cli_args *args, const cli_model *model)
{
    tg_detail why;
    tg_options opt = cli_args_options(args);
    int code = cli_device_open(&out->device, args);
    if (code != CLI_OK) {
        return code;
    }
    opt.describe = 1;
    opt.device = out->device.gpu;
    tg_status status = tg_codec_new(&out->codec, args->recipes.items[0], model->tensors, model->tensor_n, &opt, &why);
    if (status != TG_OK) {
        return cli_fail_status(NULL, status, &why);
    }

    size_t bound = tg_encode_bound(out->codec);
    out->frame = malloc(bound);
    if (out->frame == NULL) {
        return cli_fail_memory();
    }
    return encode_on_device(out, args, model, bound);
}

static int print_result(const cli_args *args, const encoded *e, const cli_summary *summary, const char *path)
{
    if (args->json) {
        cli_json json;
        cli_json_begin(&json, stdout);
        cli_json_text(&json, "output", path);
        cli_summary_json(&json, summary, &e->info);
        cli_json_finish(&json);
        return CLI_OK;
    }
    cli_table table;
    cli_table_init(&table, "ll");
    cli_table_row(&table, "wrote", path);
    cli_summary_rows(&table, summary, &e->info);
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    return code;
}

static int encode_to(const cli_args *args, cli_model *model, const char *path)
{
    encoded e = {0};
    cli_summary summary = {0};
    for (size_t t = 0; t < model->tensor_n; t++) {
        model->tensors[t].kind = cli_args_kind(args, model->tensors[t].name, TG_OTHER);
    }
    int code = encode_model(&e, args, model);
    if (code == CLI_OK) {
        code = cli_summary_new(&summary, e.codec);
    }
    if (code == CLI_OK) {
        code = cli_file_write(path, &(cli_piece){e.frame, e.frame_len}, 1);
    }
    if (code == CLI_OK) {
        code = print_result(args, &e, &summary, path);
    }
    cli_summary_free(&summary);
    free_encoded(&e);
    return code;
}

/* The mistake that would cost most: a command line that ends in an input where the output was left out. */
static int check_output(const char *path)
{
    size_t len = strlen(path);
    if (len >= 4 && strcmp(path + len - 4, ".npy") == 0) {
        return cli_fail(CLI_MISUSE, "the last name is the output, and %s looks like an input; name it OUT.tg", path);
    }
    return CLI_OK;
}

static int run(const cli_args *args)
{
    const char *path = args->files.items[args->files.n - 1];
    if (args->recipes.n == 0) {
        return cli_fail(CLI_MISUSE, "encode needs --recipe; 'tersegrad recipes' lists what it can be made of");
    }
    int code = check_output(path);
    if (code != CLI_OK) {
        return code;
    }
    cli_model model;
    code = cli_model_load(&model, (const char *const *)args->files.items, args->files.n - 1);
    if (code != CLI_OK) {
        return code;
    }
    code = encode_to(args, &model, path);
    cli_model_free(&model);
    return code;
}

static const cli_flag_use flags[] = {
    {CLI_FLAG_RECIPE, NULL},       {CLI_FLAG_RULE, NULL},    {CLI_FLAG_KIND, NULL}, {CLI_FLAG_DENSE_BELOW, "0"},
    {CLI_FLAG_NONFINITE, "error"}, {CLI_FLAG_SEED, NULL},    {CLI_FLAG_STEP, "0"},  {CLI_FLAG_RANK, "0"},
    {CLI_FLAG_THREADS, "1"},       {CLI_FLAG_DEVICE, "cpu"}, {CLI_FLAG_JSON, NULL},
};

const cli_command cli_encode = {
    .name = "encode",
    .summary = "gradients (.npy) into one frame (.tg)",
    .usage = "--recipe R [flags] IN... OUT.tg",
    .about = "Encodes gradients into one frame. One .npy file is one tensor, named after the file. A directory\n"
             "(all *.npy in it, by name) or several files are the tensors of a model.\n"
             "Without --seed, each worker draws its own random coordinates.",
    .examples = "tersegrad encode --recipe topk@0.01+fp16 gradient.npy gradient.tg\n"
                "tersegrad encode --recipe randomblock@0.1 --seed 7 --step 3 gradient.npy gradient.tg\n"
                "tersegrad encode --recipe topk@0.01 --kind '*bias=bias' --rule 'embed*=bf16' model/ model.tg\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 2,
    .file_max = SIZE_MAX,
    .run = run,
};
