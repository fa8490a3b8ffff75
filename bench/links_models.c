/* The tensors of models that bench_links averages. */
#include "links_models.h"

#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add(shapes *s, tg_kind kind, const char *name, uint32_t dim_n, const uint64_t *dims)
{
    size_t t = s->tensor_n++;
    uint64_t n = 1;
    snprintf(s->names[t], sizeof s->names[t], "%s", name);
    for (uint32_t d = 0; d < dim_n; d++) {
        s->dims[t][d] = dims[d];
        n *= dims[d];
    }
    s->tensors[t] = (tg_tensor){s->names[t], s->dims[t], dim_n, kind, TG_FP32};
    s->n += n;
}

static void add_conv(shapes *s, const char *name, uint64_t out, uint64_t in, uint64_t side)
{
    char text[64];
    snprintf(text, sizeof text, "%s.conv", name);
    add(s, TG_CONV, text, 4, (const uint64_t[]){out, in, side, side});
    snprintf(text, sizeof text, "%s.norm.scale", name);
    add(s, TG_NORM, text, 1, &out);
    snprintf(text, sizeof text, "%s.norm.shift", name);
    add(s, TG_NORM, text, 1, &out);
}

/* The shapes of ResNet50 (arXiv 1512.03385): 161 tensors, 25,557,032 parameters. */
static void add_resnet50(shapes *s)
{
    static const uint64_t blocks[] = {3, 4, 6, 3};
    uint64_t in = 64;
    add_conv(s, "stem", 64, 3, 7);
    for (uint64_t stage = 0; stage < 4; stage++) {
        uint64_t width = UINT64_C(64) << stage;
        for (uint64_t b = 0; b < blocks[stage]; b++) {
            char name[4][32];
            for (int c = 0; c < 4; c++) {
                snprintf(name[c], sizeof name[c], "stage%d.%d.%d", (int)stage + 1, (int)b + 1, c + 1);
            }
            add_conv(s, name[0], width, in, 1);
            add_conv(s, name[1], width, width, 3);
            add_conv(s, name[2], 4 * width, width, 1);
            if (b == 0) {
                add_conv(s, name[3], 4 * width, in, 1);
            }
            in = 4 * width;
        }
    }
    add(s, TG_DENSE, "fc.weight", 2, (const uint64_t[]){1000, 2048});
    add(s, TG_BIAS, "fc.bias", 1, (const uint64_t[]){1000});
}

/* Six blocks of width 320 over 4,000 words and 256 places: about 10 M parameters. */
static void add_gpt(shapes *s)
{
    enum { WIDTH = 320, WORDS = 4000, PLACES = 256, BLOCKS = 6 };
    static const struct {
        const char *name;
        tg_kind kind;
        uint64_t rows, columns;
    } parts[] = {{"norm1.weight", TG_NORM, WIDTH, 1},         {"norm1.bias", TG_BIAS, WIDTH, 1},
                 {"qkv.weight", TG_DENSE, 3 * WIDTH, WIDTH},  {"qkv.bias", TG_BIAS, 3 * WIDTH, 1},
                 {"out.weight", TG_DENSE, WIDTH, WIDTH},      {"out.bias", TG_BIAS, WIDTH, 1},
                 {"norm2.weight", TG_NORM, WIDTH, 1},         {"norm2.bias", TG_BIAS, WIDTH, 1},
                 {"up.weight", TG_DENSE, 4 * WIDTH, WIDTH},   {"up.bias", TG_BIAS, 4 * WIDTH, 1},
                 {"down.weight", TG_DENSE, WIDTH, 4 * WIDTH}, {"down.bias", TG_BIAS, WIDTH, 1}};
    add(s, TG_EMBEDDING, "words", 2, (const uint64_t[]){WORDS, WIDTH});
    add(s, TG_EMBEDDING, "places", 2, (const uint64_t[]){PLACES, WIDTH});
    for (int b = 0; b < BLOCKS; b++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[64];
            snprintf(name, sizeof name, "block%d.%s", b, parts[i].name);
            add(s, parts[i].kind, name, parts[i].columns > 1 ? 2 : 1,
                (const uint64_t[]){parts[i].rows, parts[i].columns});
        }
    }
    add(s, TG_DENSE, "head.weight", 2, (const uint64_t[]){WORDS, WIDTH});
}

/* 200 tensors, 1 M parameters. */
static void add_small(shapes *s)
{
    for (int t = 0; t < 100; t++) {
        char name[64];
        snprintf(name, sizeof name, "layer%d.weight", t);
        add(s, TG_DENSE, name, 2, (const uint64_t[]){100, 99});
        snprintf(name, sizeof name, "layer%d.bias", t);
        add(s, TG_BIAS, name, 1, (const uint64_t[]){100});
    }
}

static bool add_built_in(shapes *s, const char *name)
{
    tr_shape shape =
        strcmp(name, "lenet") == 0 ? (tr_shape){TR_IMAGES, 1, 28, 28, 10, 1} : (tr_shape){TR_IMAGES, 3, 32, 32, 10, 1};
    tr_model *model = NULL;
    char why[TR_WHY] = "";
    if (tr_model_new(&model, name, &shape, 1, 1, why) != 0) {
        return false;
    }
    for (size_t p = 0; p < tr_model_param_n(model); p++) {
        const tr_param *param = tr_model_param(model, p);
        add(s, param->kind, param->name, param->dim_n, param->dims);
    }
    tr_model_free(model);
    return true;
}

bool add_model(shapes *s, const char *name)
{
    if (strcmp(name, "resnet50") == 0) {
        add_resnet50(s);
    } else if (strcmp(name, "gpt") == 0) {
        add_gpt(s);
    } else if (strcmp(name, "small") == 0) {
        add_small(s);
    } else {
        return add_built_in(s, name);
    }
    return true;
}

bool write_shapes(const shapes *model, const char *path)
{
    FILE *file = fopen(path, "w");
    for (size_t t = 0; t < model->tensor_n && file != NULL; t++) {
        const tg_tensor *of = &model->tensors[t];
        fprintf(file, "%s{\"name\": \"%s\", \"shape\": [", t == 0 ? "[" : ",\n ", of->name);
        for (uint32_t d = 0; d < of->dim_n; d++) {
            fprintf(file, "%s%" PRIu64, d == 0 ? "" : ", ", of->dims[d]);
        }
        fprintf(file, "], \"kind\": \"%s\"}", tg_kind_name(of->kind));
    }
    return file != NULL && fputs("]\n", file) >= 0 && fclose(file) == 0;
}
