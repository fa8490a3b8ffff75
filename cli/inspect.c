/* `tersegrad inspect`: what a frame says of itself, after all of it has been checked. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "fail.h"
#include "file.h"
#include "summary.h"
#include "text.h"

/* "3x224x224", "scalar" for none; cut where a frame has very many. */
static const char *shape_text(char *out, size_t cap, const tg_tensor *tensor)
{
    size_t len = (size_t)snprintf(out, cap, "%s", tensor->dim_n == 0 ? "scalar" : "");
    for (uint32_t d = 0; d < tensor->dim_n && len < cap; d++) {
        len += (size_t)snprintf(out + len, cap - len, "%s%" PRIu64, d > 0 ? "x" : "", tensor->dims[d]);
    }
    return out;
}

static int print_tensors(const tg_codec *codec)
{
    cli_table table;
    cli_table_init(&table, "lllll");
    table.has_head = 1;
    cli_table_row(&table, "tensor", "shape", "dtype", "kind", "recipe");
    int code = CLI_OK;
    for (size_t t = 0; t < tg_codec_tensors(codec) && code == CLI_OK; t++) {
        tg_tensor tensor;
        tg_detail why;
        tg_status status = tg_codec_tensor(&tensor, codec, t, &why);
        if (status != TG_OK) {
            code = cli_fail_status(NULL, status, &why);
        } else {
            char shape[256];
            cli_table_row(&table, tensor.name, shape_text(shape, sizeof shape, &tensor), tg_dtype_name(tensor.dtype),
                          tg_kind_name(tensor.kind), tg_codec_recipe(codec, t));
        }
    }
    if (code == CLI_OK) {
        code = cli_table_print(&table, stdout, 0);
    }
    cli_table_free(&table);
    return code;
}

static int print_text(const cli_args *args, const tg_codec *codec, const tg_frame_info *info, const cli_summary *s)
{
    char line[128];
    cli_table table;
    cli_table_init(&table, "ll");
    cli_table_row(&table, "file", args->files.items[0]);
    snprintf(line, sizeof line, "%" PRIu32, info->version);
    cli_table_row(&table, "version", line);
    snprintf(line, sizeof line, "at step %" PRIu64 " by rank %" PRIu32, info->step, info->rank);
    cli_table_row(&table, "made", line);
    cli_summary_rows(&table, s, info);
    snprintf(line, sizeof line, "%016" PRIx64 ", correct", info->checksum);
    cli_table_row(&table, "checksum", line);
    int code = cli_table_print(&table, stdout, 0);
    cli_table_free(&table);
    if (code != CLI_OK) {
        return code;
    }
    putchar('\n');
    return print_tensors(codec);
}

static int json_tensors(cli_json *json, int csv, const tg_codec *codec)
{
    cli_json_array(json, "tensor_list");
    for (size_t t = 0; t < tg_codec_tensors(codec); t++) {
        tg_tensor tensor;
        tg_detail why;
        tg_status status = tg_codec_tensor(&tensor, codec, t, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        cli_json_object(json, NULL);
        cli_json_text(json, "name", tensor.name);
        char shape[256];
        if (csv) {
            cli_json_text(json, "shape", shape_text(shape, sizeof shape, &tensor));
        }
        cli_json_array(json, "shape");
        for (uint32_t d = 0; d < tensor.dim_n; d++) {
            cli_json_count(json, NULL, tensor.dims[d]);
        }
        cli_json_end(json);
        cli_json_text(json, "dtype", tg_dtype_name(tensor.dtype));
        cli_json_text(json, "kind", tg_kind_name(tensor.kind));
        cli_json_text(json, "recipe", tg_codec_recipe(codec, t));
        cli_json_end(json);
    }
    cli_json_end(json);
    return CLI_OK;
}

static int print_json(const cli_args *args, const tg_codec *codec, const tg_frame_info *info, const cli_summary *s)
{
    cli_json json;
    cli_json_begin_as(&json, stdout, args->csv, "tensor_list");
    cli_json_text(&json, "file", args->files.items[0]);
    cli_json_count(&json, "version", info->version);
    cli_json_bool(&json, "checksum_ok", 1);
    cli_json_hex(&json, "checksum", info->checksum);
    cli_json_hex(&json, "fingerprint", info->fingerprint);
    cli_summary_json(&json, s, info);
    int code = json_tensors(&json, args->csv, codec), finished = cli_json_finish(&json);
    return code != CLI_OK ? code : finished;
}

/* A script gets its object for a damaged frame as well, with every promised key in it. */
static void json_failure(const char *path, const char *reason)
{
    static const char *const unknown[] = {"version", "recipe", "step", "tensors", "payload_bytes", "header_bytes"};
    cli_json json;
    cli_json_begin(&json, stdout);
    cli_json_text(&json, "file", path);
    cli_json_bool(&json, "checksum_ok", 0);
    cli_json_text(&json, "error", reason);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        cli_json_null(&json, unknown[i]);
    }
    cli_json_finish(&json);
}

static int run(const cli_args *args)
{
    const char *path = args->files.items[0];
    uint8_t *src;
    size_t src_len;
    int code = cli_file_read(&src, &src_len, path);
    if (code != CLI_OK) {
        return code;
    }
    tg_codec *codec = NULL;
    tg_frame_info info;
    tg_detail why;
    cli_summary summary = {0};
    tg_status status = tg_codec_from_frame(&codec, &info, src, src_len, NULL, &why);
    free(src);
    if (status != TG_OK) {
        if (args->json) {
            json_failure(path, cli_reason(status, &why));
        }
        return cli_fail_frame(path, status, &why);
    }
    code = cli_summary_new(&summary, codec);
    if (code == CLI_OK) {
        code = (args->json || args->csv ? print_json : print_text)(args, codec, &info, &summary);
    }
    cli_summary_free(&summary);
    tg_codec_free(codec);
    return code;
}

static const cli_flag_use flags[] = {{CLI_FLAG_JSON, NULL}, {CLI_FLAG_CSV, NULL}};

const cli_command cli_inspect = {
    .name = "inspect",
    .summary = "check a frame and show what is in it",
    .usage = "[--json | --csv] IN.tg",
    .about = "Checks a whole frame and shows its recipe, step, sizes and tensors. A damaged frame is an error,\n"
             "with the reason.",
    .examples = "tersegrad inspect gradient.tg\n"
                "tersegrad inspect --json model.tg\n",
    .flags = flags,
    .flag_n = sizeof flags / sizeof *flags,
    .file_min = 1,
    .file_max = 1,
    .run = run,
};
