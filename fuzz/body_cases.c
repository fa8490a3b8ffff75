/* The codecs of the target `body`. */
#include "body_cases.h"

#include "support.h"

typedef struct row {
    const char *recipe;
    bool large;
    uint32_t slices;
} row;

static const row rows[] = {
    {"fp32", false, 1},
    {"fp16", false, 3},
    {"topk@0.0003+fp16", true, 1},
    {"topk@0.2,scope=model+bf16+bitmap", false, 2},
    [FUZZ_BODY_CASE_LED] = {"threshold@0.5,coords=shared+fp32", false, 1},
    {"topk@0.0003,coords=shared,scope=model+fp16", true, 2},
    {"randomk@0.3,coords=shared+fp16", false, 2},
    {"randomblock@0.0005,coords=shared,scope=model+bf16", true, 2},
    {"randomk@0.1,coords=own+fp32", false, 1},
    {"adabins@20+sign@scale=meanmax", false, 2},
    {"adabins@50+sign+adacomp8", false, 2},
    {"adabins@300,scope=model+sign+adacomp16", false, 1},
    {"sign", false, 2},
    {"fp4+huffman@model", false, 2},
    {"fp8+rans", false, 1},
    {"topk@0.2+fp4+rans", false, 2},
    {"topk@0.0003,coords=shared+fp16+rans", true, 2},
    {"randomk@0.3,coords=shared+orq@9+huffman", false, 2},
    {"fp16+lossless", false, 2},
    {"natural+zstd", false, 1},
};

enum { ROW_N = sizeof rows / sizeof *rows };

const size_t fuzz_body_case_n = ROW_N;

static const uint64_t small_dims[] = {90, 5, 1};
static const uint64_t large_dims[] = {600, TG_CHUNK + 100, 0}; /* two chunks in a unit */

static tg_layout *layout_of(const row *r, const tg_options *options)
{
    const uint64_t *dims = r->large ? large_dims : small_dims;
    const tg_tensor tensors[] = {
        {.name = "first", .dims = &dims[0], .dim_n = 1, .kind = TG_DENSE, .dtype = TG_FP32},
        {.name = "second", .dims = &dims[1], .dim_n = 1, .kind = TG_CONV, .dtype = r->large ? TG_FP32 : TG_FP16},
        {.name = "third", .dims = &dims[2], .dim_n = 1, .kind = TG_OTHER, .dtype = TG_BF16},
    };
    tg_layout *layout = NULL;
    PROMISE(tg_codec_layout(&layout, r->recipe, tensors, sizeof tensors / sizeof *tensors, options, NULL) == TG_OK,
            "a recipe of the table suits its tensors");
    return layout;
}

static void **room_of(const tg_layout *l)
{
    void **room = fuzz_room(l->tensor_n * sizeof *room, 0);
    for (size_t t = 0; t < l->tensor_n; t++) {
        room[t] = fuzz_room((size_t)l->tensor_elements[t] * tg_dtype_len(l->tensors[t].dtype), 0);
    }
    return room;
}

const fuzz_body_case *fuzz_body_case_at(size_t index)
{
    static fuzz_body_case cases[ROW_N];
    fuzz_body_case *made = &cases[index];
    if (made->both == NULL) {
        tg_options options = TG_OPTIONS_INIT;
        options.has_seed = 1;
        options.seed = 7;
        tg_layout *layout = layout_of(&rows[index], &options);
        const tg_codec_purpose both = {.slices = rows[index].slices, .holds = TG_HAS_INDICES | TG_HAS_VALUES};
        const tg_codec_purpose values = {.slices = rows[index].slices, .holds = TG_HAS_VALUES};
        const tg_purpose leader = {.slices = 1, .holds = TG_HAS_INDICES, .has_feedback = true};
        tg_layout *again = layout_of(&rows[index], &options);
        PROMISE(tg_codec_make(&made->both, layout, &both, &options, NULL) == TG_OK &&
                    tg_codec_make(&made->values, again, &values, &options, NULL) == TG_OK &&
                    tg_grid_new(&made->whole, again, 1, &(tg_groups){NULL, 1}, &made->values->allocator, NULL) ==
                        TG_OK &&
                    tg_plan_new(&made->leader, again, made->whole, &leader, &made->values->allocator, NULL) == TG_OK,
                "there is memory for a codec");
        made->zeros = room_of(layout);
        made->ones = room_of(layout);
    }
    return made;
}
