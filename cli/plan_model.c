/* Models to plan for; see plan_model.h. A file of shapes is JSON, as the Python package writes it:
 *     [{"name": "conv1.weight", "shape": [64, 3, 7, 7], "kind": "conv"}, ...]
 * or lines, as in bench/shapes. */
#include "plan_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "file.h"
#include "flags.h"
#include "json_read.h"
#include "run.h"
#include "synth.h"
#include "values.h"

enum { DIM_MAX = 8, NAME_MAX = 255, MATRICES = 32, MEASURED_STEPS = 6 };
static const double element_max = 1e13;

static int acquire(cli_shapes *s, size_t tensor_n, size_t name_len)
{
    s->tensors = calloc(tensor_n + 1, sizeof *s->tensors);
    s->dims = calloc(tensor_n * DIM_MAX + 1, sizeof *s->dims);
    s->names = malloc(name_len + 1);
    return s->tensors != NULL && s->dims != NULL && s->names != NULL ? CLI_OK : cli_fail_memory();
}

static void add(cli_shapes *s, const char *name, const uint64_t *dims, uint32_t dim_n, tg_kind kind, tg_dtype dtype)
{
    size_t t = s->tensor_n++;
    uint64_t n = 1;
    for (uint32_t d = 0; d < dim_n; d++) {
        s->dims[t * DIM_MAX + d] = dims[d];
        n *= dims[d];
    }
    s->tensors[t] = (tg_tensor){name, s->dims + t * DIM_MAX, dim_n, kind, dtype};
    s->element_n += n;
}

/* ---- a number of parameters ------------------------------------------------------------------------------------------ */

/* Matrices as nearly square as whole numbers are, the last one with what is left. */
static int make_matrices(cli_shapes *s, uint64_t n)
{
    enum { NAME_CAP = 16 };
    uint64_t each = n / MATRICES, columns = (uint64_t)sqrt((double)each);
    int code = acquire(s, MATRICES + 1, (MATRICES + 1) * NAME_CAP);
    columns = columns > 0 ? columns : 1;
    for (size_t t = 0; t <= MATRICES && code == CLI_OK; t++) {
        uint64_t rest = n - s->element_n, rows = t < MATRICES ? each / columns : rest;
        char *name = s->names + t * NAME_CAP;
        snprintf(name, NAME_CAP, "matrix%zu", t);
        if (rows > 0) {
            add(s, name, (const uint64_t[]){rows, t < MATRICES ? columns : 1}, 2, TG_DENSE, TG_FP32);
        }
    }
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------- */

static int refuse(const char *path, size_t t, const char *what)
{
    return cli_fail(
        CLI_MISUSE,
        "%s: tensor %zu %s; a tensor is {\"name\": \"conv1\", \"shape\": [64, 3, 7, 7], \"kind\": \"conv\"}", path, t,
        what);
}

static int read_choice(int *out, const cli_document *d, const cli_node *of, const char *key, const char *const *choices)
{
    const cli_node *m = cli_node_member(d, of, key);
    if (m == NULL) {
        return 1;
    }
    *out = m->type == CLI_STRING ? cli_choice_find(choices, m->text) : -1;
    return *out >= 0;
}

static int read_dims(uint64_t dims[DIM_MAX], const cli_document *d, const cli_node *list)
{
    double n = 1;
    size_t i = 0;
    if (list == NULL || list->type != CLI_ARRAY || list->count > DIM_MAX) {
        return 0;
    }
    for (const cli_node *at = cli_node_first(d, list); at != NULL; at = cli_node_next(d, at)) {
        if (at->type != CLI_NUMBER || at->number < 1 || at->number != floor(at->number) || at->number > element_max ||
            (n *= at->number) > element_max) {
            return 0;
        }
        dims[i++] = (uint64_t)at->number;
    }
    return 1;
}

static int read_tensor(cli_shapes *s, char **names, const cli_document *d, const cli_node *of, const char *path)
{
    const cli_node *name = cli_node_member(d, of, "name"), *shape = cli_node_member(d, of, "shape");
    uint64_t dims[DIM_MAX];
    int kind = TG_OTHER, dtype = TG_FP32;
    if (name == NULL || name->type != CLI_STRING || name->text[0] == '\0' || strlen(name->text) > NAME_MAX) {
        return refuse(path, s->tensor_n, "has no name");
    }
    if (!read_dims(dims, d, shape)) {
        return refuse(path, s->tensor_n, "has no shape of up to 8 whole numbers above 0");
    }
    if (!read_choice(&kind, d, of, "kind", cli_flags[CLI_FLAG_KIND].choices) ||
        !read_choice(&dtype, d, of, "dtype", cli_flags[CLI_FLAG_DTYPE].choices)) {
        return refuse(path, s->tensor_n, "has an unknown kind or dtype");
    }
    strcpy(*names, name->text);
    add(s, *names, dims, (uint32_t)shape->count, (tg_kind)kind, (tg_dtype)dtype);
    *names += strlen(*names) + 1;
    return (double)s->element_n <= element_max ? CLI_OK : cli_fail(CLI_MISUSE, "%s has more than 1e13 elements", path);
}

static int read_document(cli_shapes *s, const cli_document *d, const char *path, size_t len)
{
    const cli_node *root = cli_document_root(d);
    if (root->type != CLI_ARRAY || root->count == 0) {
        return cli_fail(CLI_MISUSE, "%s is no list of tensors", path);
    }
    int code = acquire(s, root->count, len);
    char *names = s->names;
    for (const cli_node *at = cli_node_first(d, root); at != NULL && code == CLI_OK; at = cli_node_next(d, at)) {
        code = read_tensor(s, &names, d, at, path);
    }
    return code;
}

static int read_json(cli_shapes *s, const char *path, const uint8_t *bytes, size_t len)
{
    cli_document d;
    char why[96];
    int code = cli_document_read(&d, why, bytes, len) == 0 ? read_document(s, &d, path, len)
                                                           : cli_fail(CLI_MISUSE, "%s is no JSON: %s", path, why);
    cli_document_free(&d);
    return code;
}

static int is_named_json(const char *path)
{
    size_t len = strlen(path);
    return len >= 5 && strcmp(path + len - 5, ".json") == 0;
}

static int read_shapes(cli_shapes *s, const char *path)
{
    uint8_t *bytes = NULL;
    size_t len = 0, at = 0;
    int is_count = path[strspn(path, "0123456789x")] == '\0';
    int code = is_count ? CLI_OK : cli_file_read(&bytes, &len, path);
    if (code != CLI_OK) {
        return code;
    }
    while (at < len && strchr(" \t\r\n", bytes[at]) != NULL && bytes[at] != '\0') {
        at++;
    }
    if (!is_count && (is_named_json(path) || (at < len && (bytes[at] == '[' || bytes[at] == '{')))) {
        code = read_json(s, path, bytes, len);
    } else {
        code = cli_shapes_read(s, path, TG_FP32);
        code = code == CLI_FAILED ? CLI_MISUSE : code; /* neither JSON nor lines */
    }
    free(bytes);
    return code;
}

/* ---- built-in models ----------------------------------------------------------------------------------------------------- */

/* The data that a model is usually given. */
static tr_shape shape_of(const char *name)
{
    int is_text = strcmp(name, "charlstm") == 0, is_grey = strcmp(name, "lenet") == 0 || strcmp(name, "mlp") == 0;
    return is_text   ? (tr_shape){TR_TEXT, 0, 0, 0, 96, 64}
           : is_grey ? (tr_shape){TR_IMAGES, 1, 28, 28, 10, 1}
                     : (tr_shape){TR_IMAGES, 3, 32, 32, 10, 1};
}

static int read_built_in(cli_shapes *s, const char *name)
{
    tr_shape shape = shape_of(name);
    tr_model *model = NULL;
    char why[TR_WHY] = "";
    if (tr_model_new(&model, name, &shape, 1, 1, why) != 0) {
        return cli_fail(CLI_FAILED, "%s", why);
    }
    size_t n = tr_model_param_n(model);
    int code = acquire(s, n, n * sizeof((tr_param *)NULL)->name);
    for (size_t p = 0; p < n && code == CLI_OK; p++) {
        const tr_param *param = tr_model_param(model, p);
        char *text = s->names + p * sizeof param->name;
        memcpy(text, param->name, sizeof param->name);
        add(s, text, param->dims, param->dim_n, param->kind, TG_FP32);
    }
    tr_model_free(model);
    return code;
}

int cli_plan_model(cli_shapes *out, const cli_args *args)
{
    *out = (cli_shapes){0};
    int given = (args->model != NULL) + (args->shapes != NULL) + (args->params > 0);
    if (given != 1) {
        return cli_fail(CLI_MISUSE,
                        "plan needs one of --model, --shapes and --params, which say how large the model is");
    }
    return args->model != NULL    ? read_built_in(out, args->model)
           : args->shapes != NULL ? read_shapes(out, args->shapes)
                                  : make_matrices(out, args->params);
}

/* ---- computing ----------------------------------------------------------------------------------------------------------- */

typedef struct watch {
    double first; /* when the first gradient was ready; 0: none yet */
} watch;

static void on_ready(void *context, size_t index)
{
    watch *w = context;
    (void)index;
    w->first = w->first > 0 ? w->first : cli_clock_now();
}

/* A batch of noise takes as long as one of images. */
static int time_batches(double *forward, double *backward, tr_model *model, const tr_shape *shape, size_t batch_n)
{
    size_t places = shape->task == TR_TEXT ? shape->sequence : 1;
    size_t pixel_n = batch_n * shape->channels * shape->height * shape->width, label_n = batch_n * places;
    float *pixels = calloc(pixel_n + 1, sizeof *pixels);
    int32_t *labels = calloc(label_n + 1, sizeof *labels);
    *forward = *backward = INFINITY;
    int code = pixels != NULL && labels != NULL ? CLI_OK : cli_fail_memory();
    if (code == CLI_OK) {
        cli_synth_gradient(pixels, pixel_n, 1);
        for (size_t i = 0; i < label_n; i++) {
            labels[i] = (int32_t)(i % shape->classes);
        }
    }
    const tr_batch batch = {batch_n, pixels, labels, labels};
    for (int step = 0; step < MEASURED_STEPS && code == CLI_OK; step++) {
        watch w = {0};
        double begin = cli_clock_now();
        (void)tr_model_train(model, &batch, &(tr_ready){on_ready, &w});
        double end = cli_clock_now();
        *forward = fmin(*forward, w.first - begin);
        *backward = fmin(*backward, end - w.first);
    }
    free(labels);
    free(pixels);
    return code;
}

int cli_plan_compute(double *compute, double *backward, const char *name, size_t batch_n)
{
    tr_shape shape = shape_of(name);
    tr_model *model = NULL;
    char why[TR_WHY] = "";
    double forward = 0;
    if (tr_model_new(&model, name, &shape, batch_n, 1, why) != 0) {
        return cli_fail(CLI_FAILED, "%s", why);
    }
    int code = time_batches(&forward, backward, model, &shape, batch_n);
    *compute = forward + *backward;
    tr_model_free(model);
    return code;
}
